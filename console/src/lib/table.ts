import type { StoredValue } from '../api/client';
import { ExactNumber, isNumber } from './exact';

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
      if (column) column.isNumeric &&= isNumber(value);
      else if (columns.size < COLUMNS_MAX) columns.set(path, { path, isNumeric: isNumber(value) });
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

/**
 * What a payload is made of, by path: `door.open`. Lists, and what is deeper, stay whole. Each path is there once: a name that has a
 * point stands in quotes, so that `"a.b"` is another than `a.b`.
 */
export function leaves(payload: unknown): [string, unknown][] {
  return takenApart(payload, nameInPath);
}

/** A name as it stands in a path of `leaves`. */
export function nameInPath(name: string): string {
  return name === '' || /[."]/.test(name) ? JSON.stringify(name) : name;
}

/** A path beneath a payload or labels, as the interface writes it: `.door.open`, and in quotes what has other signs. */
export function pathOf(names: readonly string[]): string {
  return names.map((name) => (/^[^\s.,"'\\[\]&#%+]+$/.test(name) ? `.${name}` : `[${quoted(name)}]`)).join('');
}

/** A name in quotes, without what has a meaning in addresses. */
function quoted(name: string): string {
  const escape = (sign: string) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(name).replace(/[&#%+]/g, escape);
}

/** The paths of labels, as they stand behind `meta` or, if they begin with a name of plain signs, behind its point. */
export function labelPaths(meta: unknown): string[] {
  const paths = leaves(meta).map(([path]) => pathOf(namesIn(path)).replace(/^\./, ''));
  return [...new Set(paths)].filter((path) => path !== '');
}

function takenApart(payload: unknown, write: (name: string) => string, path = '', depth = 0): [string, unknown][] {
  const members = isMembers(payload) && depth < DEPTH_MAX ? Object.entries(payload) : [];
  if (members.length === 0) return [[path, payload]];
  return members.flatMap(([name, member]) =>
    takenApart(member, write, path === '' ? write(name) : `${path}.${write(name)}`, depth + 1),
  );
}

function isMembers(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);
}

const NAMES = /"(?:[^"\\]|\\.)*"|[^.]+/g;

/** The names that a path of `leaves` is made of. */
export function namesIn(path: string): string[] {
  return (path.match(NAMES) ?? []).map(unquoted);
}

/** What stands at a path as `leaves` writes it; undefined where nothing is. A name with points is found without quotes too. */
export function valueAt(value: unknown, path: string): unknown {
  const found = namesIn(path).reduce<unknown>(
    (inner, name) => (isMembers(inner) && Object.hasOwn(inner, name) ? inner[name] : undefined),
    value,
  );
  return found === undefined ? labelAt(value, path) : found;
}

function unquoted(name: string): string {
  if (!name.startsWith('"')) return name;
  try {
    return String(JSON.parse(name));
  } catch {
    return name;
  }
}

const STEP = /^(?:\[("(?:[^"\\]|\\.)*")\]|((?:(?!\[")[^.])+))\.?/;

/** What stands at the path of a label. A path that has a name of its own wins over one that leads deeper: labels may have points. */
export function labelAt(value: unknown, path: string): unknown {
  if (path === '') return value;
  if (!isMembers(value)) return undefined;
  if (Object.hasOwn(value, path)) return value[path];
  const [step = '', inQuotes, plain] = STEP.exec(path) ?? [];
  const name = inQuotes === undefined ? plain : unquoted(inQuotes);
  return name !== undefined && Object.hasOwn(value, name) ? labelAt(value[name], path.slice(step.length)) : undefined;
}

/** The path of a label as people read it: a name that stands alone has no quotes. */
export function labelWord(path: string): string {
  const [step, inQuotes] = STEP.exec(path) ?? [];
  return inQuotes !== undefined && step === path ? unquoted(inQuotes) : path;
}
