import { STATUSES } from '../lib/statuses';
import { type Device, type Page, type StatusText, api, done } from './client';

/** Which devices, and in which order. */
export interface DeviceQuery {
  organizationId: string;
  searchText: string;
  status: StatusText | undefined;
  sortBy: string;
  page: number;
  limit: number;
}

/** A page of the devices of an organization and all beneath it. @throws Failure */
export function devicePage(wanted: DeviceQuery, signal: AbortSignal): Promise<Page<Device>> {
  const { organizationId, searchText, status, sortBy, page, limit } = wanted;
  const query = {
    organizationId,
    depth: 'all' as const,
    sortBy: [sortBy],
    page,
    limit,
    ...(searchText ? { searchText } : {}),
    // Objects go as `filter[statusInt][eq]=4`: the client writes one level of brackets, the name brings the other.
    ...(status ? { 'filter[statusInt]': { eq: STATUSES.indexOf(status) } } : {}),
  };
  return done(api.GET('/v2/devices', { params: { query }, signal }));
}
