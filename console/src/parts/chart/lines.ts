import type { Meaning } from '../../lib/meaning';

/** How lines are told apart: by colour, and by a pattern for those who do not tell colours apart. */

/** Lines that one chart shows. */
export const LINES_MAX = 6;

const DASHES: readonly (readonly number[])[] = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5], [14, 4, 4, 4]];

/** Solid, dashed, dotted … */
export function dashOf(index: number): readonly number[] {
  return DASHES[index % DASHES.length] ?? [];
}

/** The token of its colour. */
export function colourOf(index: number): string {
  return `--series-${(index % LINES_MAX) + 1}`;
}

/** A moment that is pointed out: a line down the chart, in the colour of a token. */
export interface Mark {
  at: number;
  colour: string;
}

/** A line of a chart. */
export interface Line {
  label: string;
  unit?: string | undefined;
  /** What the design says of its numbers. */
  meaning?: Meaning | undefined;
}

/** What a plot shows besides its lines. */
export interface Scale {
  /** The unit of all of its lines. */
  unit: string;
  /** What its range holds at least, where all of its lines say so. */
  minimum?: number | undefined;
  maximum?: number | undefined;
  /** Limits, with the place of the line whose they are. */
  limits: readonly { place: number; side: 'low' | 'high'; at: number }[];
}

/** The scale of a plot of these lines. */
export function scaleOf(lines: readonly Line[], places: readonly number[]): Scale {
  const shown = places.flatMap((place) => (lines[place] ? [{ place, line: lines[place] }] : []));
  const units = new Set(shown.map(({ line }) => line.unit ?? ''));
  const ends = (of: 'minimum' | 'maximum'): number[] | null => {
    const found = shown.flatMap(({ line }) => line.meaning?.[of] ?? []);
    return found.length === shown.length && found.length > 0 ? found : null;
  };
  const [minima, maxima] = [ends('minimum'), ends('maximum')];
  return {
    unit: units.size === 1 ? ([...units][0] ?? '') : '',
    minimum: minima ? Math.min(...minima) : undefined,
    maximum: maxima ? Math.max(...maxima) : undefined,
    limits: shown.flatMap(({ place, line }) =>
      (['low', 'high'] as const).flatMap((side) => {
        const at = line.meaning?.[side];
        return at === undefined ? [] : [{ place, side, at }];
      }),
    ),
  };
}

/** The range of an axis: what the numbers take with some room, all limits, and the range that is said. */
export function rangeOf(least: number | null, most: number | null, scale: Scale): [number, number] {
  const held = [least, most, ...scale.limits.map(({ at }) => at)].filter((end): end is number => end !== null);
  const ends = [...held, ...[scale.minimum, scale.maximum].filter((end) => end !== undefined)];
  if (ends.length === 0) return [0, 1];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const room = high > low ? (high - low) * 0.08 : Math.abs(high) * 0.1 || 1;
  return [scale.minimum === low ? low : low - room, scale.maximum === high && high > low ? high : high + room];
}
