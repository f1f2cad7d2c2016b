import { labelColumn } from '../lib/columns';
import { joinCsv, readCsv, withColumnAfter } from '../lib/csv';
import { readExact } from '../lib/exact';
import { labelPaths } from '../lib/table';
import { authorizedFetch } from './client';
import { type DeviceQuery, IDS_AT_ONCE, queryOf } from './devices';
import { arrived, failureOf } from './failure';
import { fleetSummary } from './fleet';

/** Marks a text as UTF-8 for spreadsheets, which take it for another encoding otherwise. */
const BYTE_ORDER_MARK = '\ufeff';
/** Labels that get a column of their own in a CSV. */
const LABELS_MAX = 100;

/**
 * Devices as a table for spreadsheets, all that a question finds or these of them: the server's columns, the names of projects
 * beside their identifiers, and a column for each label. @throws Failure
 */
export async function devicesCsv(
  wanted: DeviceQuery,
  columns: readonly string[],
  ids: readonly string[] | null,
): Promise<Blob> {
  const [labels, { byProject }] = await Promise.all([
    csvRows(wanted, ['meta'], ids),
    fleetSummary(wanted.organizationId, new AbortController().signal),
  ]);
  const paths = new Set(labels.slice(1).flatMap(([cell = '']) => labelPaths(labelsOf(cell)).map(labelColumn)));
  const all = new Set([...columns, ...[...paths].sort().slice(0, LABELS_MAX)]);
  const names = new Map(byProject.map(({ projectUuid, projectName }) => [projectUuid, projectName ?? '']));
  const rows = await csvRows(wanted, [...all], ids);
  const named = withColumnAfter(rows, 'projectUuid', 'projectName', (id) => names.get(id) ?? '');
  return new Blob([BYTE_ORDER_MARK, joinCsv(named)], { type: 'text/csv;charset=utf-8' });
}

function labelsOf(cell: string): unknown {
  return cell === '' ? {} : readExact(cell);
}

/** The rows of the server's CSV, of which the first has the columns' names. */
async function csvRows(
  wanted: DeviceQuery,
  columns: readonly string[],
  ids: readonly string[] | null,
): Promise<string[][]> {
  const rows: string[][] = [];
  for (let first = 0; first === 0 || first < (ids?.length ?? 0); first += IDS_AT_ONCE) {
    const part = readCsv(await csvPart(wanted, columns, ids?.slice(first, first + IDS_AT_ONCE)));
    // Each part begins with the line of the columns' names.
    rows.push(...part.slice(first === 0 ? 0 : 1).map(({ cells }) => cells));
  }
  return rows;
}

async function csvPart(wanted: DeviceQuery, columns: readonly string[], ids?: readonly string[]): Promise<string> {
  const { sortBy, organizationId, depth, ...rest } = queryOf(wanted);
  const filters: Record<string, string | Record<string, string>> = rest;
  const search = new URLSearchParams({ organizationId, depth, sortBy: sortBy.join(','), columns: columns.join(',') });
  // Those that were picked are meant whatever was filtered meanwhile.
  if (ids) search.set('entityList', ids.join(','));
  else
    for (const [name, value] of Object.entries(filters)) {
      if (typeof value === 'string') search.set(name, value);
      else for (const [operator, operand] of Object.entries(value)) search.set(`${name}[${operator}]`, operand);
    }
  const response = await authorizedFetch(`/v2/devices?${search}`, { headers: { accept: 'text/csv' } });
  if (!response.ok) throw await failureOf(response);
  return arrived(response.text());
}
