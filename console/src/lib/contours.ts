/** Isobars: the lines of equal pressure of a field of highs and lows. The console's own drawing. */

/** A high (positive) or a low (negative), in units of the field's width and height. */
export interface Centre {
  x: number;
  y: number;
  strength: number;
  spread: number;
}

/** One line of equal pressure: its path, and where its label goes, if it crosses there. */
export interface Isobar {
  hectopascal: number;
  path: string;
  label: { x: number; y: number } | null;
}

const MEAN_HPA = 1013;

/** The pressure at a place: a gentle slope with the centres on it. */
export function pressure(centres: readonly Centre[], x: number, y: number): number {
  let sum = MEAN_HPA + 6 * (x - y);
  for (const { x: cx, y: cy, strength, spread } of centres) {
    const distance = (x - cx) ** 2 + (y - cy) ** 2;
    sum += strength * Math.exp(-distance / (2 * spread * spread));
  }
  return sum;
}

/** Lines for every `step` hectopascals over a field of this size, by marching squares on a grid of `cell` units. */
export function isobars(
  centres: readonly Centre[],
  width: number,
  height: number,
  cell: number,
  step: number,
): Isobar[] {
  const columns = Math.ceil(width / cell);
  const rows = Math.ceil(height / cell);
  const field: number[][] = [];
  let low = Infinity;
  let high = -Infinity;
  for (let row = 0; row <= rows; row += 1) {
    const line: number[] = [];
    for (let column = 0; column <= columns; column += 1) {
      const value = pressure(centres, (column * cell) / width, (row * cell) / height);
      low = Math.min(low, value);
      high = Math.max(high, value);
      line.push(value);
    }
    field.push(line);
  }
  const lines: Isobar[] = [];
  for (let level = Math.ceil(low / step) * step; level <= high; level += step) {
    lines.push(isobar(field, level, cell));
  }
  return lines;
}

function isobar(field: readonly (readonly number[])[], level: number, cell: number): Isobar {
  let path = '';
  let label: Isobar['label'] = null;
  const labelColumn = Math.floor((field[0]?.length ?? 0) * 0.62);
  for (let row = 0; row + 1 < field.length; row += 1) {
    for (let column = 0; column + 1 < (field[0]?.length ?? 0); column += 1) {
      const points = crossings(field, row, column, level);
      for (let index = 0; index + 1 < points.length; index += 2) {
        const [ax, ay] = points[index] ?? [0, 0];
        const [bx, by] = points[index + 1] ?? [0, 0];
        path += `M${round(ax * cell)} ${round(ay * cell)}L${round(bx * cell)} ${round(by * cell)}`;
        if (!label && column === labelColumn) label = { x: round(ax * cell), y: round(ay * cell) };
      }
    }
  }
  return { hectopascal: level, path, label };
}

/** Where the line crosses the edges of a cell: none, two or four points. */
function crossings(
  field: readonly (readonly number[])[],
  row: number,
  column: number,
  level: number,
): [number, number][] {
  const at = (r: number, c: number): number => field[r]?.[c] ?? 0;
  const corners = [at(row, column), at(row, column + 1), at(row + 1, column + 1), at(row + 1, column)] as const;
  const places: [number, number][] = [
    [column, row],
    [column + 1, row],
    [column + 1, row + 1],
    [column, row + 1],
  ];
  const points: [number, number][] = [];
  for (let side = 0; side < 4; side += 1) {
    const next = (side + 1) % 4;
    const from = corners[side] ?? 0;
    const to = corners[next] ?? 0;
    if (from < level === to < level) continue;
    const part = (level - from) / (to - from);
    const [fx, fy] = places[side] ?? [0, 0];
    const [tx, ty] = places[next] ?? [0, 0];
    points.push([fx + (tx - fx) * part, fy + (ty - fy) * part]);
  }
  return points;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
