import { describe, expect, it } from 'vitest';
import { figure, momentOf, timeTicks } from './ticks';

const at = (text: string) => Date.parse(text);
const ticks = (step: number, ...times: string[]) => timeTicks(times.map(at), step, 'en-GB', 'UTC');

describe('marks of time', () => {
  it('name the day once, and again where it changes', () => {
    expect(ticks(3_600_000, '2026-03-10T22:00Z', '2026-03-10T23:00Z', '2026-03-11T00:00Z')).toEqual([
      '22:00\n10 Mar',
      '23:00',
      '00:00\n11 Mar',
    ]);
    expect(ticks(10_000, '2026-03-10T22:00:00Z', '2026-03-10T22:00:10Z')).toEqual(['22:00:00\n10 Mar', '22:00:10']);
    expect(ticks(86_400_000, '2026-12-31T00:00Z', '2027-01-01T00:00Z')).toEqual(['31 Dec\n2026', '1 Jan\n2027']);
    expect(ticks(31 * 86_400_000, '2026-02-01T00:00Z', '2026-03-01T00:00Z')).toEqual(['Feb\n2026', 'Mar']);
    expect(ticks(366 * 86_400_000, '2026-01-01T00:00Z')).toEqual(['2026']);
  });

  it('tell a bucket as exactly as it is wide', () => {
    const time = at('2026-03-10T22:00:05Z');
    expect(momentOf(time, 1_000, 'en-GB', 'UTC')).toBe('10 Mar 2026, 22:00:05');
    expect(momentOf(time, 900_000, 'en-GB', 'UTC')).toBe('10 Mar 2026, 22:00');
    expect(momentOf(time, 86_400_000, 'en-GB', 'UTC')).toBe('10 Mar 2026');
  });
});

describe('figures', () => {
  it('have the digits that one reads at a glance, as at home', () => {
    expect([3.14159, 31.4159, 12345.678, 0.00001, 2e12, 0].map((value) => figure(value, 'en'))).toEqual([
      '3.142',
      '31.42',
      '12,345.7',
      '1E-5',
      '2E12',
      '0',
    ]);
    expect(figure(1234.5, 'de')).toBe('1.234,5');
  });
});
