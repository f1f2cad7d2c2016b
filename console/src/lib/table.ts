import type { StoredValue } from '../api/client';

/** Columns that are made of payloads; members beyond stay in the tree and in exports. */
const COLUMNS_MAX = 40;

export interface ValueTable {
  /** Members of the payloads; empty for a payload that is no object. */
  columns: string[];
  rows: { id: string; createdAt: string; cells: unknown[] }[];
}

/** Stored values as a table: a column for each member that any payload has, in the order in which they first come. */
export function tableOf(values: readonly StoredValue[]): ValueTable {
  const columns = new Set<string>();
  for (const { payload } of values) {
    for (const [name] of members(payload)) if (columns.size < COLUMNS_MAX) columns.add(name);
  }
  const names = [...columns];
  const rows = values.map(({ id, createdAt, payload }) => {
    const byName = new Map(members(payload));
    return { id, createdAt, cells: names.map((name) => byName.get(name)) };
  });
  return { columns: names, rows };
}

function members(payload: unknown): [string, unknown][] {
  const isObject = typeof payload === 'object' && payload !== null && !Array.isArray(payload);
  return isObject ? Object.entries(payload) : [['', payload]];
}
