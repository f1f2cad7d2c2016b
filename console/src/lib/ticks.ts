import { formatLocale } from './format';
import type { Point } from './series';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const MONTH_MS = 28 * DAY_MS;
const YEAR_MS = 365 * DAY_MS;

/**
 * Words for the marks of an axis of time that are `step` apart: as short as they can be told apart, with the day on the line below
 * where it begins, and at the first of them.
 */
export function timeTicks(
  times: readonly number[],
  step: number,
  locale = formatLocale(),
  timeZone?: string,
): string[] {
  const zone = timeZone ? { timeZone } : {};
  const form = (options: Intl.DateTimeFormatOptions) => {
    const format = new Intl.DateTimeFormat(locale, { ...options, ...zone });
    return (time: number) => format.format(time);
  };
  if (step >= YEAR_MS) return times.map(form({ year: 'numeric' }));
  if (step >= MONTH_MS) return withLine(times, form({ month: 'short' }), form({ year: 'numeric' }));
  if (step >= DAY_MS) return withLine(times, form({ day: 'numeric', month: 'short' }), form({ year: 'numeric' }));
  const seconds: Intl.DateTimeFormatOptions = step < MINUTE_MS ? { second: '2-digit' } : {};
  const short = form({ hour: '2-digit', minute: '2-digit', ...seconds });
  return withLine(times, short, form({ day: 'numeric', month: 'short' }));
}

/** The second line stands where it differs from the one before. */
function withLine(
  times: readonly number[],
  upper: (time: number) => string,
  lower: (time: number) => string,
): string[] {
  let before = '';
  return times.map((time) => {
    const line = lower(time);
    const text = line === before ? upper(time) : `${upper(time)}\n${line}`;
    before = line;
    return text;
  });
}

/** A moment as exactly as a bucket of this width tells it. */
export function momentOf(time: number, widthMs: number, locale = formatLocale(), timeZone?: string): string {
  const day: Intl.DateTimeFormatOptions = { day: 'numeric', month: 'short', year: 'numeric' };
  const clock: Intl.DateTimeFormatOptions = {
    hour: '2-digit',
    minute: '2-digit',
    ...(widthMs < MINUTE_MS ? { second: '2-digit' } : {}),
  };
  const options = widthMs >= DAY_MS ? day : { ...day, ...clock };
  return new Intl.DateTimeFormat(locale, { ...options, ...(timeZone ? { timeZone } : {}) }).format(time);
}

/** What a point of a chart tells: the number as it was sent where there is one alone, else the mean. */
export function toldOf({ mean, text }: Pick<Point, 'mean' | 'text'>): string {
  return text ?? figure(mean);
}

/** A figure with as many digits as one reads at a glance. */
export function figure(value: number, locale = formatLocale()): string {
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) {
    return new Intl.NumberFormat(locale, { notation: 'scientific', maximumFractionDigits: 3 }).format(value);
  }
  return new Intl.NumberFormat(locale, { maximumFractionDigits: size >= 1_000 ? 1 : size >= 10 ? 2 : 3 }).format(value);
}
