import { labelColumn } from '../lib/columns';
import { joinCsv, readCsv, withColumnAfter } from '../lib/csv';
import { readExact } from '../lib/exact';
import { type Condition, asQuery } from '../lib/filters';
import { BY_URGENCY, STATUSES } from '../lib/statuses';
import { labelPaths } from '../lib/table';
import { type Device, type Page, type StatusText, api, authorizedFetch, done } from './client';
import { arrived, failureOf } from './failure';
import { fleetSummary } from './fleet';

/** Which devices, and in which order. */
export interface DeviceQuery {
  organizationId: string;
  searchText: string;
  status: StatusText | undefined;
  conditions: readonly Condition[];
  sortBy: string;
}

/** Which part of them, and with which last values. */
interface Part {
  page: number;
  limit: number;
  lastValues?: string | undefined;
}

function queryOf({ organizationId, searchText, status, conditions, sortBy }: DeviceQuery) {
  const filters = asQuery(conditions, Date.now());
  // Objects go as `filter[statusInt][eq]=4`: the client writes one level of brackets, the name brings the other.
  if (status) filters['filter[statusInt]'] = { ...filters['filter[statusInt]'], eq: String(STATUSES.indexOf(status)) };
  return {
    organizationId,
    depth: 'all' as const,
    sortBy: [sortBy],
    ...(searchText ? { searchText } : {}),
    ...filters,
  };
}

/** A page of the devices of an organization and all beneath it. @throws Failure */
export function devicePage(wanted: DeviceQuery & Part, signal: AbortSignal): Promise<Page<Device>> {
  const { page, limit, lastValues } = wanted;
  const query = { ...queryOf(wanted), page, limit, ...(lastValues ? { lastValues } : {}) };
  return done(api.GET('/v2/devices', { params: { query }, signal }));
}

/** Statuses that are asked for one by one; all others are below each of these. */
const ALARMING = BY_URGENCY.slice(0, 3);
const UNALARMING_BELOW = STATUSES.indexOf('warning');

/** What else is asked about devices whose most urgent are wanted. */
export interface UrgentQuery {
  organizationId: string;
  limit: number;
  lastValues?: string;
  projects?: readonly string[];
}

/** The most urgent devices of an organization and all beneath it, those that were heard last first; and how many there are. @throws Failure */
export async function urgentDevices(
  { organizationId, limit, lastValues, projects }: UrgentQuery,
  signal: AbortSignal,
): Promise<{ data: Device[]; total: number }> {
  const read = (status: Record<string, string>) => {
    const query = {
      organizationId,
      depth: 'all' as const,
      limit,
      sortBy: ['-statusInt', '-lastActive'],
      'filter[statusInt]': status,
      ...(projects ? { 'filter[projectUuid]': { in: projects.join(',') } } : {}),
      ...(lastValues ? { lastValues } : {}),
    };
    return done(api.GET('/v2/devices', { params: { query }, signal }));
  };
  const pages = await Promise.all([
    ...ALARMING.map((status) => read({ eq: String(STATUSES.indexOf(status)) })),
    read({ lt: String(UNALARMING_BELOW) }),
  ]);
  return {
    data: pages.flatMap((page) => page.data).slice(0, limit),
    total: pages.reduce((sum, { meta }) => sum + meta.totalDocs, 0),
  };
}

/** Devices that are read at once where all of them are wanted. */
const READ_AT_ONCE = 1_000;

/** All devices of a question, each once. `read` is told how many there are so far. @throws Failure */
export async function allDevices(
  wanted: DeviceQuery,
  signal: AbortSignal,
  read: (count: number) => void,
): Promise<Device[]> {
  const devices = new Map<string, Device>();
  for (let page = 1; ; page += 1) {
    const { data, meta } = await devicePage({ ...wanted, page, limit: READ_AT_ONCE }, signal);
    for (const device of data) devices.set(device.id, device);
    read(devices.size);
    if (!meta.hasNextPage) return [...devices.values()];
  }
}

/** Identifiers that fit into one address. */
const IDS_AT_ONCE = 300;

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

/** Which of these devices are still there. @throws Failure */
export async function devicesThere(organizationId: string, ids: readonly string[]): Promise<Set<string>> {
  const there = new Set<string>();
  for (let first = 0; first < ids.length; first += IDS_AT_ONCE) {
    const entityList = ids.slice(first, first + IDS_AT_ONCE);
    const query = { organizationId, depth: 'all' as const, entityList, limit: IDS_AT_ONCE };
    const { data } = await done(api.GET('/v2/devices', { params: { query } }));
    for (const { id } of data) there.add(id);
  }
  return there;
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
