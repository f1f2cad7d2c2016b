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

/** A line of a chart. */
export interface Line {
  label: string;
  unit?: string | undefined;
}
