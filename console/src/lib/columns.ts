import type { Device, Schemas } from '../api/client';
import { labelAt, valueAt } from './table';

/** The columns of the device table: paths into a device, as the organization's `deviceTable` keeps them. */

export type ColumnKind = 'name' | 'status' | 'time' | 'project' | 'text' | 'value';

export const DEFAULT_COLUMNS: readonly string[] = [
  'name',
  'statusText',
  'lastActive',
  'projectUuid',
  'organizationName',
  'createdAt',
];

/** Members of a device that make a column; labels (`meta.…`, `meta["…"]`) and last values come besides. */
export const MEMBERS: readonly string[] = [
  ...DEFAULT_COLUMNS,
  'updatedAt',
  'description',
  'protocol',
  'streetAddress',
  'id',
];

const LABELS = 'meta';
const VALUE = 'lastValues.';
const TIMES: readonly string[] = ['lastActive', 'createdAt', 'updatedAt'];

/** The fields by which the server sorts, by column. */
const SORTED: Record<string, string> = {
  name: 'name',
  statusText: 'statusInt',
  lastActive: 'lastActive',
  createdAt: 'createdAt',
  updatedAt: 'updatedAt',
  description: 'description',
};

export function columnKind(path: string): ColumnKind {
  if (path === 'name') return 'name';
  if (path === 'statusText' || path === 'statusInt') return 'status';
  if (path === 'projectUuid') return 'project';
  if (TIMES.includes(path)) return 'time';
  return path.startsWith(VALUE) ? 'value' : 'text';
}

export function sortField(path: string): string | undefined {
  return SORTED[path];
}

/** The column of a last value: `lastValues.<element>.<path>`, where a point within the element's name is written `%2E`. */
export function valueColumn(element: string, path: string): string {
  const name = encodeURIComponent(element).replaceAll('.', '%2E');
  return path === '' ? `${VALUE}${name}` : `${VALUE}${name}.${path}`;
}

/** The element and the path within it, of a column of last values. */
export function valueParts(column: string): { element: string; path: string } | undefined {
  if (!column.startsWith(VALUE)) return undefined;
  const [name = '', ...path] = column.slice(VALUE.length).split('.');
  try {
    return { element: decodeURIComponent(name), path: path.join('.') };
  } catch {
    return { element: name, path: path.join('.') };
  }
}

/** The column of a label, and the field of conditions on it. */
export function labelColumn(label: string): string {
  return label.startsWith('[') ? `${LABELS}${label}` : `${LABELS}.${label}`;
}

/** The path of the label that a column shows. */
export function labelOf(column: string): string | undefined {
  if (column.startsWith(`${LABELS}.`)) return column.slice(LABELS.length + 1);
  return column.startsWith(`${LABELS}[`) ? column.slice(LABELS.length) : undefined;
}

/** What stands in a device's cell; undefined where it has nothing. */
export function cell(device: Device, column: string): unknown {
  const value = valueParts(column);
  if (value) {
    const last = device.lastValues.find(({ elementName }) => elementName === value.element);
    return (last && valueAt(last.values, value.path)) ?? undefined;
  }
  const label = labelOf(column);
  if (label !== undefined) return labelAt(device.meta, label) ?? undefined;
  const member = (device as unknown as Record<string, unknown>)[column];
  if (column === 'streetAddress') return addressOf(device.streetAddress) || undefined;
  return member === null || member === '' ? undefined : member;
}

/** An address on one line. */
export function addressOf(place: Schemas['StreetAddress'] | null | undefined): string {
  if (!place) return '';
  const town = [place.postalCode, place.city].filter(Boolean).join(' ');
  return [place.address, town, place.region, place.country].filter(Boolean).join(', ');
}

/** The elements whose last values these columns want, as the list of devices is asked for them. */
export function elementsWanted(columns: readonly string[]): string | undefined {
  const names = columns.flatMap((column) => valueParts(column)?.element ?? []);
  return names.length > 0 ? [...new Set(names)].join(',') : undefined;
}

/** The columns that the server's CSV has of these: last values are not among them. */
export function csvColumns(columns: readonly string[]): string[] {
  return [...new Set(['id', ...columns.filter((column) => !column.startsWith(VALUE))])];
}

/** The columns of a `deviceTable`, of which nothing is promised; none when it has none. */
export function columnsOf(table: unknown): string[] {
  const columns = (table as { columns?: unknown } | null)?.columns;
  if (!Array.isArray(columns)) return [];
  return columns.flatMap((column) => {
    const path = (column as { path?: unknown } | null)?.path;
    return typeof path === 'string' && path !== '' ? [path] : [];
  });
}
