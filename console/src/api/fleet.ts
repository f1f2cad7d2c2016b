import { type Device, type StatusText, api, authorizedFetch, done } from './client';
import { failureOf } from './failure';

/** Statuses in rising priority: their place is `statusInt`. */
export const STATUSES: readonly StatusText[] = ['none', 'good', 'info', 'warning', 'critical', 'missing'];

/** A fleet at a glance: what `GET /v2/devices/summary` answers. */
export interface FleetSummary {
  total: number;
  byStatus: Record<StatusText, number>;
  byProject: { projectUuid: string; projectName: string; count: number }[];
  /** How many devices were active within the last hour, day and week (each includes the one before), and how many never. */
  active: { hour: number; day: number; week: number; never: number };
  located: number;
}

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

const HOUR_MS = 3_600_000;

/** The summary of these devices; `total` may be more than they are. */
export function count(devices: readonly Device[], total: number, now: number): FleetSummary {
  const byStatus: Record<StatusText, number> = { none: 0, good: 0, info: 0, warning: 0, critical: 0, missing: 0 };
  const active = { hour: 0, day: 0, week: 0, never: 0 };
  const projects = new Map<string, number>();
  let located = 0;
  for (const device of devices) {
    byStatus[device.statusText] += 1;
    projects.set(device.projectUuid, (projects.get(device.projectUuid) ?? 0) + 1);
    const { latitude, longitude } = device.meta as { latitude?: unknown; longitude?: unknown };
    if (typeof latitude === 'number' && typeof longitude === 'number') located += 1;
    if (!device.lastActive) {
      active.never += 1;
      continue;
    }
    const silent = now - Date.parse(device.lastActive);
    if (silent <= HOUR_MS) active.hour += 1;
    if (silent <= 24 * HOUR_MS) active.day += 1;
    if (silent <= 7 * 24 * HOUR_MS) active.week += 1;
  }
  const byProject = [...projects].map(([projectUuid, number]) => ({ projectUuid, projectName: '', count: number }));
  return { total, byStatus, byProject, active, located };
}
