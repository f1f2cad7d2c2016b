import { ROW_HEIGHT } from './layout';

/** A link as a line on the canvas: the two elements that it joins, and the rows of both its ends, added up. */
export interface Line {
  between: string;
  rows: number;
}

/** As high as a label is, and a little more. */
export const LABEL_HEIGHT = 21;

/** Where the label of a line stands of itself: in the middle between its ends. */
export function labelMiddle({ rows }: Line): number {
  return (rows * ROW_HEIGHT) / 2;
}

/** How far down each label is moved, so that those of links between the same two elements do not lie on each other. */
export function labelShifts(lines: readonly Line[]): number[] {
  const shifts = lines.map(() => 0);
  const order = lines.map((line, place) => ({ ...line, place, middle: labelMiddle(line) }));
  order.sort((a, b) => a.middle - b.middle);
  const groups = new Map<string, typeof order>();
  for (const line of order) {
    const group = groups.get(line.between);
    if (group) group.push(line);
    else groups.set(line.between, [line]);
  }
  for (const group of groups.values()) {
    let free = -Infinity;
    const moved = group.map(({ middle }) => {
      const at = Math.max(middle, free);
      free = at + LABEL_HEIGHT;
      return at - middle;
    });
    // They give way to both sides alike.
    const mean = moved.reduce((sum, by) => sum + by, 0) / moved.length;
    group.forEach(({ place }, index) => (shifts[place] = (moved[index] ?? 0) - mean));
  }
  return shifts;
}
