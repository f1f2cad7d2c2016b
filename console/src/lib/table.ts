import type { StoredValue } from '../api/client';

/** Columns that are made of payloads; what is beyond stays in events and in exports. */
const COLUMNS_MAX = 40;
/** Objects are taken apart so deep. */
const DEPTH_MAX = 3;

export interface Column {
  /** The path in the payload; empty for a payload that is no object. */
  path: string;
  /** Whether all that stands in it are numbers. */
  isNumeric: boolean;
}

export interface ValueTable {
  columns: Column[];
  rows: { id: string; createdAt: string; cells: unknown[] }[];
}

/** Stored values as a table: a column for each path that any payload has, in the order in which they first come. */
export function tableOf(values: readonly StoredValue[]): ValueTable {
  const columns = new Map<string, Column>();
  const flat = values.map(({ id, createdAt, payload }) => ({ id, createdAt, leaves: new Map(leaves(payload)) }));
  for (const row of flat) {
    for (const [path, value] of row.leaves) {
      const column = columns.get(path);
      if (column) column.isNumeric &&= typeof value === 'number';
      else if (columns.size < COLUMNS_MAX) columns.set(path, { path, isNumeric: typeof value === 'number' });
    }
  }
  const paths = [...columns.keys()];
  const rows = flat.map(({ id, createdAt, leaves }) => ({
    id,
    createdAt,
    cells: paths.map((path) => leaves.get(path)),
  }));
  return { columns: [...columns.values()], rows };
}

/** What a payload is made of, by path: `door.open`. Lists, and what is deeper, stay whole. */
export function leaves(payload: unknown, path = '', depth = 0): [string, unknown][] {
  const isObject = typeof payload === 'object' && payload !== null && !Array.isArray(payload);
  const members = isObject && depth < DEPTH_MAX ? Object.entries(payload) : [];
  if (members.length === 0) return [[path, payload]];
  return members.flatMap(([name, member]) => leaves(member, path === '' ? name : `${path}.${name}`, depth + 1));
}
