import type { Preset } from '../../lib/series';
import { m } from '../../paraglide/messages';

export function presetWord(preset: Preset): string {
  switch (preset) {
    case 'hour':
      return m.range_hour();
    case '6h':
      return m.range_six_hours();
    case 'day':
      return m.range_day();
    case 'week':
      return m.range_week();
    case 'month':
      return m.range_month();
    case 'year':
      return m.range_year();
  }
}
