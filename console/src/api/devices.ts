import { type Condition, asQuery } from '../lib/filters';
import { STATUSES } from '../lib/statuses';
import { type Device, type Page, type StatusText, api, done } from './client';

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

/** The question as the interface is asked it. */
export function queryOf({ organizationId, searchText, status, conditions, sortBy }: DeviceQuery) {
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
export const IDS_AT_ONCE = 300;

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
