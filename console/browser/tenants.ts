import { Fleet } from './fleet';

/** What a test of organizations and users begins with: a company with sites, its people and their keys. */
export interface Tenants {
  company: string;
  site: string;
  users: Record<string, string>;
}

export const PASSWORD = 'cold-rooms-7';
export const ROLES = ['basicUser', 'technician', 'manager', 'administrator', 'developer'] as const;

/** Makes `Cold Chain` with two sites beneath, and a user of each role in it. */
export async function tenants(fleet: Fleet): Promise<Tenants> {
  const company = await organization(fleet, 'Cold Chain', fleet.organizationId, 'Cold rooms from dock to shop');
  const site = await organization(fleet, 'Hamburg', company);
  await organization(fleet, 'Rotterdam', company, 'Terminal 4');
  await organization(fleet, 'Hall 2', site);
  const users: Record<string, string> = {};
  for (const role of ROLES) users[role] = await person(fleet, role, role, company);
  return { company, site, users };
}

export async function organization(fleet: Fleet, name: string, parentId: string, description = ''): Promise<string> {
  const body = { name, parentId, ...(description ? { description } : {}) };
  return (await fleet.call<{ id: string }>('POST', '/organizations', body)).id;
}

export async function person(fleet: Fleet, username: string, role: string, organizationId: string): Promise<string> {
  const { id } = await fleet.call<{ id: string }>('POST', '/users', {
    username,
    password: PASSWORD,
    passwordConfirmation: PASSWORD,
    firstName: 'Kim',
    lastName: username,
    email: `${username}@example.com`,
    company: 'Cold Chain',
    role,
    organizationId,
  });
  return id;
}
