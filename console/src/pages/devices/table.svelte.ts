import { type Organization, api, done } from '../../api/client';
import { DEFAULT_COLUMNS, columnsOf } from '../../lib/columns';
import { type Resource, resource } from '../../lib/resource.svelte';

/** The columns that an organization shows its devices in, and whose they are. */
export interface TableColumns {
  columns: readonly string[];
  /** `own`: set here. `inherited`: of an organization above, whose name it is. `default`: nobody has set any. */
  from: 'own' | 'inherited' | 'default';
  organizationName: string;
}

/** Reads the columns: the organization's own, or else those of the nearest organization above that has some. */
export function tableColumns(organizationId: () => string): Resource<TableColumns> {
  return resource(async (signal) => {
    const id = organizationId();
    const organization = await done(api.GET('/v2/organizations/{id}', { params: { path: { id } }, signal }));
    const own = columnsOf(organization.deviceTable);
    if (own.length > 0) return { columns: withName(own), from: 'own', organizationName: organization.name };
    const above = await ancestors(organization, signal);
    const nearest = above.find((one) => columnsOf(one.deviceTable).length > 0);
    if (!nearest) return { columns: DEFAULT_COLUMNS, from: 'default', organizationName: organization.name };
    return { columns: withName(columnsOf(nearest.deviceTable)), from: 'inherited', organizationName: nearest.name };
  });
}

/** The organizations above, as far as they are in reach, the nearest first. */
async function ancestors(organization: Organization, signal: AbortSignal): Promise<Organization[]> {
  const ids = organization.path.slice(0, -1).map(({ id }) => id);
  if (ids.length === 0) return [];
  const query = { depth: 'all' as const, entityList: ids, limit: ids.length };
  const { data } = await done(api.GET('/v2/organizations', { params: { query }, signal }));
  return data.sort((one, other) => ids.indexOf(other.id) - ids.indexOf(one.id));
}

/** The name leads to the device: it always stands, and first. */
export function withName(columns: readonly string[]): string[] {
  return [...new Set(['name', ...columns])];
}

/** Sets the columns of an organization; null gives back those from above. @throws Failure */
export async function setColumns(organizationId: string, columns: readonly string[] | null): Promise<void> {
  const params = { path: { id: organizationId } };
  if (!columns) await done(api.DELETE('/v2/organizations/{id}/deviceTable', { params }));
  else {
    const body = { organizationId, columns: columns.map((path) => ({ path })) };
    await done(api.PUT('/v2/organizations/{id}/deviceTable', { params, body }));
  }
}
