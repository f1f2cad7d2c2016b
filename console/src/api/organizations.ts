import { type Organization, type Page, api, done } from './client';

/** What hangs on an organization, counted over it and all beneath it. */
export interface Contents {
  organizations: number;
  users: number;
  projects: number;
  devices: number;
}

/** Those first where one would look first, then by name. */
export const MOST_URGENT = ['-urgency', 'name'];

/** Its direct children, the most urgent first. @throws Failure */
export function childrenOf(id: string, limit: number, signal: AbortSignal): Promise<Page<Organization>> {
  const query = { parentId: id, limit, sortBy: MOST_URGENT };
  return done(api.GET('/v2/organizations', { params: { query }, signal }));
}

/** All within reach whose name or description has this text. @throws Failure */
export function organizationsFound(
  searchText: string,
  page: number,
  limit: number,
  signal: AbortSignal,
  sortBy = ['name'],
): Promise<Page<Organization>> {
  const query = { depth: 'all' as const, sortBy, page, limit, ...(searchText ? { searchText } : {}) };
  return done(api.GET('/v2/organizations', { params: { query }, signal }));
}

/** @throws Failure */
export async function contentsOf(id: string, signal: AbortSignal): Promise<Contents> {
  const depth = 'all' as const;
  const query = { organizationId: id, depth, limit: 1 };
  const [organizations, users, projects, devices] = await Promise.all([
    done(api.GET('/v2/organizations', { params: { query: { parentId: id, depth, limit: 1 } }, signal })),
    done(api.GET('/v2/users', { params: { query }, signal })),
    done(api.GET('/v2/projects', { params: { query }, signal })),
    done(api.GET('/v2/devices', { params: { query }, signal })),
  ]);
  return {
    organizations: organizations.meta.totalDocs,
    users: users.meta.totalDocs,
    projects: projects.meta.totalDocs,
    devices: devices.meta.totalDocs,
  };
}

/** Where it is in the tree, without itself. */
export function above(organization: Organization): string {
  return organization.path
    .slice(0, -1)
    .map((step) => step.name)
    .join(' / ');
}
