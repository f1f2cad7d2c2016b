import { describe, expect, it } from 'vitest';
import { m } from '../paraglide/messages';

describe('one', () => {
  const german = { locale: 'de' } as const;
  const english = { locale: 'en' } as const;
  const fleet = (total: number, active: number) => ({
    total,
    active,
    shownTotal: String(total),
    shownActive: String(active),
  });
  const points = (points: number, values: number) => ({
    points,
    values,
    shownPoints: String(points),
    shownValues: String(values),
  });

  it('device is no devices', () => {
    expect(m.overview_sentence(fleet(1, 1), german)).toBe('Ein Gerät, in der letzten Stunde aktiv.');
    expect(m.overview_sentence(fleet(1, 0), english)).toBe('One device, not active within the last hour.');
    expect(m.overview_sentence(fleet(2, 1), german)).toBe('2 Geräte, davon eines in der letzten Stunde aktiv.');
    expect(m.overview_sentence(fleet(0, 0), english)).toBe('0 devices, 0 of them active within the last hour.');
  });

  it('second is no seconds', () => {
    expect(m.rate_last_seconds({ seconds: 1 }, german)).toBe('Ereignisse in der letzten Sekunde');
    expect(m.rate_last_seconds({ seconds: 2 }, german)).toBe('Ereignisse in den letzten 2 s');
  });

  it('point of a chart is no points', () => {
    expect(m.chart_made_of(points(1, 13), english)).toMatch(/^One point of 13 values:/);
    expect(m.chart_made_of(points(1, 1), german)).toBe('Ein Punkt, der ein Wert ist.');
    expect(m.chart_made_of(points(2, 13), german)).toMatch(/^2 Punkte aus 13 Werten:/);
    expect(m.chart_of({ count: 1, shown: '1' }, english)).toBe('one value');
  });
});
