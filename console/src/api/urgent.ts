import { BY_URGENCY, STATUSES } from '../lib/statuses';
import { type Device, api, done } from './client';

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
