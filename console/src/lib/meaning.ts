import { m } from '../paraglide/messages';
import { ExactNumber, doubleOf, isNumber, writeExact } from './exact';
import { formatLocale, localized, number, shown } from './format';
import { namesIn } from './table';
import type { Point } from './series';
import { figure, toldOf } from './ticks';

/** What a design says of a key of stored values. */
export interface Meaning {
  title: string;
  unit: string;
  decimals?: number;
  /** The range of a chart. */
  minimum?: number;
  maximum?: number;
  /** Limits that are marked. */
  low?: number;
  high?: number;
  /** What is shown in place of a value. */
  words: ReadonlyMap<string, string>;
}

/** What is said of the keys of an element, by the names that lead to each. */
export type Meanings = ReadonlyMap<string, Meaning>;

/** Of what nothing is said. */
export const NO_MEANING: Meaning = { title: '', unit: '', words: new Map() };
export const NO_MEANINGS: Meanings = new Map();

const ROOT = 'payload';
const STEP = /^(?:\[("(?:[^"\\]|\\.)*")\]|\.((?:(?!\[")[^.])+))/;

/** The names that a path of the interface leads along: `payload.a["b c"]`; null where it is no such path. */
export function namesOfField(path: string): string[] | null {
  if (!path.startsWith(ROOT)) return null;
  const names: string[] = [];
  let rest = path.slice(ROOT.length);
  while (rest !== '') {
    const [step, quoted, plain] = STEP.exec(rest) ?? [];
    if (step === undefined) return null;
    try {
      names.push(quoted === undefined ? (plain ?? '') : String(JSON.parse(quoted)));
    } catch {
      return null;
    }
    rest = rest.slice(step.length);
  }
  return names;
}

/** What a storage element says of its keys. What is not as it should be is left out. */
export function meaningsFrom(fields: unknown): Meanings {
  const found = new Map<string, Meaning>();
  for (const [path, said] of members(fields)) {
    const names = namesOfField(path);
    if (names) found.set(JSON.stringify(names), meaningFrom(Object.fromEntries(members(said))));
  }
  return found;
}

function meaningFrom(said: Record<string, unknown>): Meaning {
  const numbers = ['decimals', 'minimum', 'maximum', 'low', 'high'] as const;
  const words = members(said.words).flatMap(([value, word]) =>
    typeof word === 'string' ? [[value, word] as const] : [],
  );
  return {
    title: localized(said.title),
    unit: typeof said.unit === 'string' ? said.unit : '',
    words: new Map(words),
    ...Object.fromEntries(
      numbers.flatMap((name) => {
        const number = doubleOf(said[name]);
        return number === undefined ? [] : [[name, number]];
      }),
    ),
  };
}

function members(value: unknown): [string, unknown][] {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.entries(value) : [];
}

/** What is said of a key, whose path is one of `leaves`. */
export function meaningAt(meanings: Meanings, path: string): Meaning {
  return meanings.get(JSON.stringify(namesIn(path))) ?? NO_MEANING;
}

/** What a key is called. */
export function titleAt(meanings: Meanings, path: string): string {
  return meaningAt(meanings, path).title || path || m.value();
}

/** The same with its unit, as columns have it: `Temperature (°C)`. */
export function headingAt(meanings: Meanings, path: string): string {
  return withUnitIn(titleAt(meanings, path), meaningAt(meanings, path).unit);
}

export function withUnitIn(title: string, unit: string | undefined): string {
  return unit ? `${title} (${unit})` : title;
}

/** Digits after the point that say something at a glance. */
const GLANCE_DIGITS = 4;
const SCIENTIFIC_FROM = 1e21;
const SCIENTIFIC_BELOW = 1e-6;

/** A value as tiles and tables have it, without its unit: by its word, with the decimals that are said, or else in few digits. */
export function glance(value: unknown, meaning: Meaning, locale = formatLocale()): string {
  const word = wordOf(value, meaning);
  if (word !== undefined) return word;
  if (!isNumber(value)) return shown(value, locale);
  return figured(value, meaning.decimals, locale);
}

/** A value as tables have it: in full, unless decimals or words are said. */
export function inTable(value: unknown, meaning: Meaning, locale = formatLocale()): string {
  const isPlain = isNumber(value) && meaning.decimals === undefined && wordOf(value, meaning) === undefined;
  return isPlain ? number(value, locale) : glance(value, meaning, locale);
}

/** The word that stands for a value. */
export function wordOf(value: unknown, { words }: Meaning): string | undefined {
  if (words.size === 0 || (typeof value === 'object' && value !== null && !isNumber(value))) return undefined;
  const text = typeof value === 'string' ? value : writeExact(value);
  return words.get(text) ?? (isNumber(value) ? words.get(String(Number(value))) : undefined);
}

/** A value in full, with its unit: what a tile says when asked. A value that has a word is told behind it. */
export function inFull(value: unknown, meaning: Meaning, locale = formatLocale()): string {
  const text = isNumber(value) ? writeExact(value) : shown(value, locale);
  const word = wordOf(value, meaning);
  if (word !== undefined) return word === text ? word : `${word} (${text})`;
  return isNumber(value) && meaning.unit ? `${text} ${meaning.unit}` : text;
}

/** The unit that stands behind a value: numbers that have no word have one. */
export function unitOf(value: unknown, meaning: Meaning): string {
  return isNumber(value) && wordOf(value, meaning) === undefined ? meaning.unit : '';
}

function figured(value: number | ExactNumber, decimals: number | undefined, locale: string): string {
  const size = Math.abs(Number(value));
  if (size >= SCIENTIFIC_FROM || (decimals === undefined && size > 0 && size < SCIENTIFIC_BELOW)) {
    return new Intl.NumberFormat(locale, { notation: 'scientific', maximumFractionDigits: 3 }).format(Number(value));
  }
  if (decimals !== undefined) {
    const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    return new Intl.NumberFormat(locale, digits).format(exactly(value));
  }
  // A number that a double does not give back stays as it was written, unless that is long.
  if (value instanceof ExactNumber && !/[eE]/.test(value.text) && !/\.\d{5}/.test(value.text)) return value.text;
  const digits =
    size > 0 && size < 1 ? { maximumSignificantDigits: GLANCE_DIGITS } : { maximumFractionDigits: GLANCE_DIGITS };
  return new Intl.NumberFormat(locale, digits).format(exactly(value));
}

/** Formats take decimal texts, which lose nothing; the types of the language know only doubles. */
function exactly(value: number | ExactNumber): number {
  return value instanceof ExactNumber ? (value.text as unknown as number) : value;
}

/** What a point of a chart tells, without its unit. */
export function toldIn(point: Pick<Point, 'mean' | 'text'>, meaning: Meaning, locale = formatLocale()): string {
  const word = point.text === undefined ? undefined : meaning.words.get(point.text);
  if (word !== undefined) return word;
  return meaning.decimals === undefined ? toldOf(point) : figured(point.mean, meaning.decimals, locale);
}

/** Between what the values of a point lie; empty where they are one. */
export function rangeIn(
  { min, max }: Pick<Point, 'min' | 'max'>,
  { decimals }: Meaning,
  locale = formatLocale(),
): string {
  if (min === max) return '';
  const end = (value: number): string =>
    decimals === undefined ? figure(value, locale) : figured(value, decimals, locale);
  return `${end(min)} … ${end(max)}`;
}

/** On which side of its limits a value lies; null within them, and where there are none. */
export function beyond(value: unknown, { low, high }: Pick<Meaning, 'low' | 'high'>): 'low' | 'high' | null {
  const number = doubleOf(value);
  if (number === undefined) return null;
  if (low !== undefined && number < low) return 'low';
  return high !== undefined && number > high ? 'high' : null;
}

/** That a value lies beyond its limits, in words; empty within them. */
export function beyondWords(value: unknown, meaning: Meaning): string {
  const side = beyond(value, meaning);
  if (side === null) return '';
  const limit = `${figured(meaning[side] ?? 0, undefined, formatLocale())} ${meaning.unit}`.trim();
  return side === 'low' ? m.meaning_below({ limit }) : m.meaning_above({ limit });
}

/** The first line of a table as the interface exports it, with what its columns are called. */
export function headed(line: string, meanings: Meanings): string {
  const cells = line.match(/"(?:[^"]|"")*"|[^,]+|(?<=,|^)(?=,|$)/g) ?? [];
  return cells
    .map((cell) => {
      const path = cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell;
      const names = namesOfField(path);
      const meaning = names && meanings.get(JSON.stringify(names));
      if (!meaning || (!meaning.title && !meaning.unit)) return cell;
      const heading = withUnitIn(meaning.title || path, meaning.unit);
      const safe = /^[=+@\t\r-]/.test(heading) ? `'${heading}` : heading;
      return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    })
    .join(',');
}
