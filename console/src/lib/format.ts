import { m } from '../paraglide/messages';
import { getLocale } from '../paraglide/runtime';
import { ExactNumber, isNumber, writeExact } from './exact';

/** The user's own locale where it fits the console's language, so that dates look as at home. */
export function formatLocale(): string {
  const language = getLocale();
  return navigator.languages.find((locale) => locale.split('-')[0] === language) ?? language;
}

const MINUTE_S = 60;
const HOUR_S = 3_600;
const DAY_S = 86_400;

/** How long ago, in words. */
export function ago(time: string, now: number, locale = formatLocale()): string {
  const seconds = Math.round((Date.parse(time) - now) / 1000);
  const size = Math.abs(seconds);
  const words = new Intl.RelativeTimeFormat(locale, { numeric: 'auto' });
  if (size < MINUTE_S) return words.format(Math.min(seconds, 0), 'second');
  if (size < HOUR_S) return words.format(Math.trunc(seconds / MINUTE_S), 'minute');
  if (size < DAY_S) return words.format(Math.trunc(seconds / HOUR_S), 'hour');
  if (size < 30 * DAY_S) return words.format(Math.trunc(seconds / DAY_S), 'day');
  return new Intl.DateTimeFormat(locale, { dateStyle: 'medium' }).format(new Date(time));
}

/** A length of time in its two largest units: `3 days, 4 hours`. */
export function duration(milliseconds: number, locale = formatLocale()): string {
  const seconds = Math.floor(milliseconds / 1000);
  const units = [
    { unit: 'day', value: Math.floor(seconds / DAY_S) },
    { unit: 'hour', value: Math.floor((seconds % DAY_S) / HOUR_S) },
    { unit: 'minute', value: Math.floor((seconds % HOUR_S) / MINUTE_S) },
    { unit: 'second', value: seconds % MINUTE_S },
  ];
  const first = Math.max(
    units.findIndex(({ value }) => value > 0),
    0,
  );
  const parts = units
    .slice(seconds === 0 ? -1 : first, seconds === 0 ? undefined : first + 2)
    .filter(({ value }, index) => value > 0 || index === 0)
    .map(({ unit, value }) =>
      new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'long' }).format(value),
    );
  return new Intl.ListFormat(locale, { type: 'unit', style: 'long' }).format(parts);
}

/** A moment to the second, in the user's zone. */
export function moment(time: string, locale = formatLocale()): string {
  return new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'medium' }).format(new Date(time));
}

const TO_THE_MILLISECOND = {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
  hourCycle: 'h23',
} as const;

/** A moment to the millisecond, where many share a second. */
export function fineMoment(time: string, locale = formatLocale()): string {
  return new Intl.DateTimeFormat(locale, {
    year: 'numeric',
    month: 'short',
    day: 'numeric',
    ...TO_THE_MILLISECOND,
  }).format(new Date(time));
}

/** The time of day to the millisecond, for lists in which many events share a second. */
export function clock(time: string, locale = formatLocale()): string {
  return new Intl.DateTimeFormat(locale, TO_THE_MILLISECOND).format(new Date(time));
}

/** The day, for headings between events. */
export function day(time: string, locale = formatLocale()): string {
  return new Intl.DateTimeFormat(locale, { dateStyle: 'full' }).format(new Date(time));
}

const FRACTION_DIGITS = 6;
/** From here on powers of ten are read more easily than digits. */
const DIGITS_MAX = 1e21;

/**
 * A number in full, or as it was written where that says more. One that is too small or too large for that is told by its power of
 * ten, and none is told as 0 that is not.
 */
export function number(value: number | ExactNumber, locale?: string): string {
  if (value instanceof ExactNumber) return value.text;
  const size = Math.abs(value);
  const isPower = size >= DIGITS_MAX || (size > 0 && size < 10 ** -FRACTION_DIGITS);
  const notation = isPower ? 'scientific' : 'standard';
  const format = { notation, maximumFractionDigits: FRACTION_DIGITS } as const;
  return new Intl.NumberFormat(locale ?? formatLocale(), format).format(value);
}

/** A size in bytes, in the largest unit in which it is at least one. */
export function bytes(size: number, locale = formatLocale()): string {
  const units = ['byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte'];
  const power = size < 1 ? 0 : Math.min(Math.floor(Math.log10(size) / 3), units.length - 1);
  const unit = units[power] ?? 'byte';
  // "1 byte, 2 bytes", but "2 MB".
  const unitDisplay = power === 0 ? 'long' : 'short';
  return new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay, maximumFractionDigits: 1 }).format(
    size / 1000 ** power,
  );
}

/** Any JSON on one line, as short as it is readable. */
export function brief(value: unknown): string {
  if (isNumber(value)) return number(value);
  if (typeof value === 'string') return value;
  return value === undefined ? '' : writeExact(value);
}

/** A moment as devices and the interface write it. */
const MOMENT = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)$/;

/** A value as people read it: a moment in their zone, yes and no, and a dash for nothing. */
export function shown(value: unknown, locale?: string): string {
  if (value === undefined || value === null) return '–';
  if (typeof value === 'boolean') return value ? m.yes() : m.no();
  if (typeof value === 'string' && MOMENT.test(value) && !Number.isNaN(Date.parse(value))) return moment(value, locale);
  return brief(value);
}

/** A text that a design may give by locale: `"Text"` or `{"en": "Text"}`. Empty when it gives none. */
export function localized(text: unknown): string {
  if (typeof text === 'string') return text;
  if (typeof text !== 'object' || text === null) return '';
  const texts = text as Record<string, unknown>;
  const found = texts[getLocale()] ?? texts.en ?? Object.values(texts)[0];
  return typeof found === 'string' ? found : '';
}
