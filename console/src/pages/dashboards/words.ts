import type { Widget, WidgetType } from '../../lib/dashboard';
import { m } from '../../paraglide/messages';

export function typeWord(type: WidgetType): string {
  switch (type) {
    case 'line':
      return m.widget_line();
    case 'value':
      return m.widget_value();
    case 'gauge':
      return m.widget_gauge();
    case 'table':
      return m.widget_table();
    case 'map':
      return m.widget_map();
    case 'status':
      return m.widget_status();
    case 'text':
      return m.widget_text();
  }
}

/** A widget's title, or else what it is. */
export function widgetTitle({ title, type, settings }: Pick<Widget, 'title' | 'type' | 'settings'>): string {
  if (title) return title;
  const [key] = settings.keys ?? [];
  if (key) return `${key.deviceName}: ${key.path || key.elementName}`;
  return type in WORDS ? typeWord(type as WidgetType) : m.widget_unknown();
}

const WORDS: Record<WidgetType, true> = {
  line: true,
  value: true,
  gauge: true,
  table: true,
  map: true,
  status: true,
  text: true,
};
