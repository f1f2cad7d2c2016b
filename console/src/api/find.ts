import { reaches } from '../lib/roles';
import { m } from '../paraglide/messages';
import { type User, api, done } from './client';
import { devicePage } from './devices';
import { above, organizationsFound } from './organizations';

/** Something that one can go to. */
export interface Hit {
  href: string;
  label: string;
  /** Where it is. */
  hint?: string;
  isOutside?: boolean | undefined;
}

/** What the server has found for a text. */
export interface Found {
  text: string;
  devices: Hit[];
  projects: Hit[];
  organizations: Hit[];
}

const DEVICES_MAX = 8;
const OTHERS_MAX = 5;

/** Finds what a user reaches and has use of. @throws Failure */
export async function find(text: string, user: User, signal: AbortSignal): Promise<Found> {
  const [devices, projects, organizations] = await Promise.all([
    devicesOf(text, user, signal),
    projectsOf(text, user, signal),
    reaches(user.role, 'manager') ? organizationsFound(text, 1, OTHERS_MAX, signal) : null,
  ]);
  return {
    text,
    devices: devices.data.map(({ id, name, organizationName }) => ({
      href: `/devices/${id}`,
      label: name,
      hint: organizationName,
    })),
    projects: projects.data.map(({ id, name, organizationName }) => ({
      href: `/projects/${id}/design`,
      label: name,
      hint: organizationName ?? m.projects_of_above(),
    })),
    organizations: (organizations?.data ?? []).map((organization) => ({
      href: `/organizations/${organization.id}`,
      label: organization.name,
      hint: above(organization),
    })),
  };
}

function devicesOf(searchText: string, { organizationId }: User, signal: AbortSignal) {
  const wanted = { organizationId, searchText, status: undefined, conditions: [], sortBy: 'name' };
  return devicePage({ ...wanted, page: 1, limit: DEVICES_MAX }, signal);
}

function projectsOf(searchText: string, { organizationId }: User, signal: AbortSignal) {
  const query = { organizationId, depth: 'all' as const, searchText, limit: OTHERS_MAX, sortBy: ['name'] };
  return done(api.GET('/v2/projects', { params: { query }, signal }));
}
