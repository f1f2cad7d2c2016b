import { type CountedProject, type NamedProject, notAmong } from '../lib/usable';
import { api, done } from './client';

/** Projects that are offered to choose from. */
const OFFERED_MAX = 1_000;
/** Projects of organizations above that are looked for. */
const ABOVE_MAX = 100;

/**
 * The projects that devices may be made with: those beneath the caller's organization, and those of organizations above.
 * @throws Failure
 */
export async function usableProjects(signal: AbortSignal): Promise<NamedProject[]> {
  const query = { depth: 'all' as const, usable: true, limit: OFFERED_MAX, sortBy: ['name'] };
  const { data } = await done(api.GET('/v2/projects', { params: { query }, signal }));
  return data;
}

/** Of these projects the ones that belong neither to an organization nor to one beneath it. @throws Failure */
export async function projectsAbove(
  organizationId: string,
  counted: readonly CountedProject[],
  signal: AbortSignal,
): Promise<CountedProject[]> {
  const candidates = notAmong([], counted).slice(0, ABOVE_MAX);
  if (candidates.length === 0) return [];
  const entityList = candidates.map(({ projectUuid }) => projectUuid);
  const query = { organizationId, depth: 'all' as const, entityList, limit: ABOVE_MAX };
  const { data } = await done(api.GET('/v2/projects', { params: { query }, signal }));
  return notAmong(data, candidates);
}
