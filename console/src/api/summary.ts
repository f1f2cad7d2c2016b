import type { Device, StatusText } from './client';

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
