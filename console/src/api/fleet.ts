import { api, authorizedFetch, done } from './client';
import { failureOf } from './failure';
import { type FleetSummary, count } from './summary';

/** Devices that are counted here where the server does not count them. */
const COUNTED_MAX = 10_000;

/** @throws Failure */
export async function fleetSummary(organizationId: string, signal: AbortSignal): Promise<FleetSummary> {
  const query = new URLSearchParams({ organizationId, depth: 'all' });
  const response = await authorizedFetch(`/v2/devices/summary?${query}`, { signal });
  if (response.ok) return (await response.json()) as FleetSummary;
  // A server that does not count knows no such path.
  if (response.status !== 404) throw await failureOf(response);
  const page = await done(
    api.GET('/v2/devices', { params: { query: { organizationId, depth: 'all', limit: COUNTED_MAX } }, signal }),
  );
  return count(page.data, page.meta.totalDocs, Date.now());
}
