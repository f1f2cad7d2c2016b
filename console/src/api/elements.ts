import { storageElements } from '../lib/design';
import type { Storing } from '../lib/storing';
import { api, done } from './client';
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
