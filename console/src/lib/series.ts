/** What charts are made of: which key, which range of time, and points with gaps between them. */

import { namesIn, pathOf } from './table';

/** Where numbers stand: the path in what a device stores in an element. An empty path is the payload itself. */
export interface Key {
  deviceId: string;
  elementName: string;
  path: string;
}

/** A range of time in milliseconds; its end is not in it. */
export interface Span {
  from: number;
  to: number;
}

/** A bucket that holds numbers. */
export interface Point extends Span {
  count: number;
  mean: number;
  min: number;
  max: number;
  /** The number as it was sent, where there is one alone. */
  text?: string;
}

const SECOND_MS = 1_000;
const HOUR_MS = 3_600 * SECOND_MS;
const DAY_MS = 24 * HOUR_MS;

/** Ranges that end now. */
export const SPANS_MS = {
  hour: HOUR_MS,
  '6h': 6 * HOUR_MS,
  day: DAY_MS,
  week: 7 * DAY_MS,
  month: 30 * DAY_MS,
  year: 365 * DAY_MS,
} as const;
export type Preset = keyof typeof SPANS_MS;
export const PRESETS = Object.keys(SPANS_MS) as Preset[];

/** Buckets are a second wide at least: nearer, there is nothing more to see. */
export const SPAN_MIN_MS = 10 * SECOND_MS;
const SPAN_MAX_MS = 20 * 365 * DAY_MS;
/** No device reported before. */
const FIRST_MS = Date.UTC(2000, 0, 1);

/** The field as the interface names it. */
export function fieldOf(path: string): string {
  return `payload${pathOf(namesIn(path))}`;
}

/** A key of one device as text: `climate/door.open`. */
export function keyText({ elementName, path }: Pick<Key, 'elementName' | 'path'>): string {
  return `${encodeURIComponent(elementName)}/${encodeURIComponent(path)}`;
}

/** Keys as they stand in an address. */
export function keysText(keys: readonly Pick<Key, 'elementName' | 'path'>[]): string {
  return keys.map(keyText).join(',');
}

/** What `keysText` has written; without those that were typed wrongly. */
export function keysFrom(text: string): { elementName: string; path: string }[] {
  return text.split(',').flatMap((one) => {
    const [elementName, path, more] = one.split('/');
    if (!elementName || path === undefined || more !== undefined) return [];
    try {
      return [{ elementName: decodeURIComponent(elementName), path: decodeURIComponent(path) }];
    } catch {
      return [];
    }
  });
}

/** The preset that a text names. */
export function presetFrom(text: string | null, fallback: Preset): Preset {
  return PRESETS.find((known) => known === text) ?? fallback;
}

/** A range as an address has it: two moments of which the later comes second. */
export function spanFrom(from: string | null, to: string | null): Span | null {
  const span = { from: Date.parse(from ?? ''), to: Date.parse(to ?? '') };
  return span.to - span.from > 0 ? bounded(span) : null;
}

/** Neither shorter than what buckets can tell apart, nor of times in which nothing was. */
export function bounded({ from, to }: Span): Span {
  const width = Math.min(Math.max(to - from, SPAN_MIN_MS), SPAN_MAX_MS);
  const start = Math.max(Math.round((from + to - width) / 2), FIRST_MS);
  return { from: start, to: start + Math.round(width) };
}

/** Nearer (a factor below 1) or farther, around a moment that stays where it is. */
export function zoomed({ from, to }: Span, factor: number, around = (from + to) / 2): Span {
  return bounded({ from: around - (around - from) * factor, to: around + (to - around) * factor });
}

/** Later by this part of its width, or earlier. */
export function moved({ from, to }: Span, part: number): Span {
  const by = (to - from) * part;
  return bounded({ from: from + by, to: to + by });
}

/** Fingers that are closer to each other, as a part of the width, tell a place and no distance. */
const FINGERS_MIN = 0.04;

/** The range in which what two fingers took hold of, at places that are parts of its width, stands where they are now. */
export function pinched({ from, to }: Span, held: readonly [number, number], now: readonly [number, number]): Span {
  const apart = ([one, other]: readonly [number, number]): number => Math.abs(one - other);
  const between = ([one, other]: readonly [number, number]): number => (one + other) / 2;
  const isZoomed = Math.min(apart(held), apart(now)) >= FINGERS_MIN;
  const width = (to - from) * (isZoomed ? apart(held) / apart(now) : 1);
  const start = from + (to - from) * between(held) - width * between(now);
  return bounded({ from: start, to: start + width });
}

/** Where a point is drawn: in the middle of its bucket, as far as that lies within the range. */
export function middle(point: Span, span: Span): number {
  return Math.min(Math.max((point.from + point.to) / 2, span.from), span.to);
}

/** A series is silent when nothing comes for so many of its usual steps. */
const GAP_STEPS = 3;

/** From which distance on two points have a gap between them. */
export function gapOf(points: readonly Span[]): number {
  if (points.length < 2) return Infinity;
  const steps: number[] = [];
  points.forEach((point, index) => {
    const before = points[index - 1];
    if (before) steps.push(point.from - before.from);
  });
  steps.sort((a, b) => a - b);
  return (steps[Math.floor((steps.length - 1) / 2)] ?? 0) * GAP_STEPS;
}

/** Several series on one axis of time, as the chart draws them. `null` is a gap, `undefined` says nothing of that moment. */
export interface Aligned {
  times: number[];
  /** Mean, max and min of each series, one after the other. */
  columns: (number | null | undefined)[][];
}

/** Lays series over each other. */
export function aligned(series: readonly (readonly Point[])[], span: Span): Aligned {
  const gaps = series.map(gapsOf);
  const moments = new Set<number>();
  for (const points of series) for (const point of points) moments.add(middle(point, span));
  for (const gap of gaps.flat()) moments.add(gap);
  const times = [...moments].sort((a, b) => a - b);
  const places = new Map(times.map((time, index) => [time, index]));
  const columns: Aligned['columns'] = [];
  series.forEach((points, index) => {
    const [means, highs, lows] = [0, 1, 2].map(() =>
      new Array<number | null | undefined>(times.length).fill(undefined),
    );
    for (const gap of gaps[index] ?? []) {
      for (const column of [means, highs, lows]) if (column) column[places.get(gap) ?? 0] = null;
    }
    for (const point of points) {
      const place = places.get(middle(point, span)) ?? 0;
      if (means) means[place] = point.mean;
      if (highs) highs[place] = point.max;
      if (lows) lows[place] = point.min;
    }
    columns.push(means ?? [], highs ?? [], lows ?? []);
  });
  return { times, columns };
}

/** A moment within each gap. */
function gapsOf(points: readonly Point[]): number[] {
  const limit = gapOf(points);
  const gaps: number[] = [];
  points.forEach((point, index) => {
    const before = points[index - 1];
    if (before && point.from - before.from > limit) gaps.push((before.to + point.from) / 2);
  });
  return gaps;
}

/** The point that is drawn next to a moment, unless it lies in a gap. */
export function pointAt(points: readonly Point[], time: number, span: Span): Point | undefined {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const half = (low + high) >> 1;
    const point = points[half];
    if (point && middle(point, span) < time) low = half + 1;
    else high = half;
  }
  const distance = (point: Point | undefined) => (point ? Math.abs(middle(point, span) - time) : Infinity);
  const [before, after] = [points[low - 1], points[low]];
  const nearest = distance(before) < distance(after) ? before : after;
  return distance(nearest) <= gapOf(points) / 2 ? nearest : undefined;
}

/** A series with its newest part read again, and without what has left the range. */
export function renewed(points: readonly Point[], newer: readonly Point[], newerFrom: number, span: Span): Point[] {
  return [...points.filter(({ from }) => from < newerFrom), ...newer].filter(({ to }) => to > span.from);
}

/** The range of the same width that ends where this one begins. */
export function spanBefore({ from, to }: Span): Span {
  return { from: 2 * from - to, to: from };
}

/** A series with what comes behind it; where they tell of one moment, what was known first stays. */
export function merged(points: readonly Point[], later: readonly Point[]): Point[] {
  const known = points.at(-1)?.to ?? -Infinity;
  return [...points, ...later.filter(({ from }) => from >= known)];
}

/** Points as if they were so much later. */
export function shifted(points: readonly Point[], by: number): Point[] {
  return points.map((point) => ({ ...point, from: point.from + by, to: point.to + by }));
}

/** From this ratio of their largest values on, lines of one scale leave one of them flat. */
const APART = 20;

/** Which of some series need a scale of their own beside that of the first, as their values are so much larger or smaller. */
export function apart(series: readonly (readonly Point[])[]): boolean[] {
  const sizes = series.map((points) =>
    Math.max(0, ...points.map(({ min, max }) => Math.max(Math.abs(min), Math.abs(max)))),
  );
  const known = sizes.filter((size) => size > 0).sort((one, other) => one - other);
  const steps = known.slice(1).map((size, index) => size / (known[index] ?? size));
  const widest = Math.max(0, ...steps);
  if (widest <= APART) return series.map(() => false);
  const limit = known[steps.indexOf(widest) + 1] ?? Infinity;
  const isLarge = sizes.map((size) => size >= limit);
  const first = sizes.findIndex((size) => size > 0);
  return isLarge.map((large, index) => (sizes[index] ?? 0) > 0 && large !== isLarge[first]);
}

/** The moments that any of these series tells of, newest first, with the point of each at it. */
export function rowsOf(
  series: readonly (readonly Point[])[],
): { from: number; to: number; points: (Point | undefined)[] }[] {
  const rows = new Map<number, { from: number; to: number; points: (Point | undefined)[] }>();
  series.forEach((points, index) => {
    for (const point of points) {
      const row = rows.get(point.from) ?? { from: point.from, to: point.to, points: [] };
      row.points[index] = point;
      rows.set(point.from, row);
    }
  });
  return [...rows.values()].sort((a, b) => b.from - a.from);
}

/** What is shown, for a spreadsheet: oldest first, one row a bucket. */
export function csvOf(names: readonly string[], series: readonly (readonly Point[])[]): string {
  const head = ['from', 'to', ...names.flatMap((name) => ['mean', 'min', 'max', 'count'].map((of) => `${name} ${of}`))];
  const rows = rowsOf(series)
    .reverse()
    .map(({ from, to, points }) => [
      new Date(from).toISOString(),
      new Date(to).toISOString(),
      ...names.flatMap((_, index) => {
        const point = points[index];
        return point ? [point.mean, point.min, point.max, point.count].map(String) : ['', '', '', ''];
      }),
    ]);
  return [head, ...rows].map((row) => row.map(cell).join(',') + '\r\n').join('');
}

/** A cell as RFC 4180 has it; a text that a spreadsheet would run gets an apostrophe before it. */
function cell(text: string): string {
  const safe = /^[=+@\t\r]|^-(?![\d.])/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
