import { storageElements } from '../lib/design';
import type { Storing } from '../lib/storing';
import { type LastValues, api, done } from './client';
import { fleetSummary } from './fleet';

/** Projects whose designs are read: those with most devices. */
const PROJECTS_MAX = 50;

/** What the designs of an organization's devices store, the project with most devices first. @throws Failure */
export async function storingProjects(organizationId: string, signal: AbortSignal): Promise<Storing[]> {
  const { byProject } = await fleetSummary(organizationId, signal);
  return Promise.all(
    byProject.slice(0, PROJECTS_MAX).map(async ({ projectUuid }) => {
      const params = { path: { id: projectUuid } };
      const design = await done(api.GET('/v2/projects/{id}/specification', { params, signal }));
      return { projectUuid, elements: storageElements(design) };
    }),
  );
}

/** Devices of each project whose last values are looked at: those that were heard last. */
const LOOKED_AT = 20;

/** Last values of devices of every project, from which one sees what there is. @throws Failure */
export async function fleetValues(organizationId: string, signal: AbortSignal): Promise<LastValues[]> {
  const { byProject } = await fleetSummary(organizationId, signal);
  const pages = await Promise.all(
    byProject.slice(0, PROJECTS_MAX).map(({ projectUuid }) => {
      const query = {
        organizationId,
        depth: 'all' as const,
        limit: LOOKED_AT,
        sortBy: ['-lastActive'],
        'filter[projectUuid]': { eq: projectUuid },
        lastValues: 'all',
      };
      return done(api.GET('/v2/devices', { params: { query }, signal }));
    }),
  );
  return pages.flatMap(({ data }) => data.flatMap(({ lastValues }) => lastValues));
}
