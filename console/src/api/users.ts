import { type Page, type Schemas, type User, api, done, open } from './client';

/** Which users, and in which order. */
export interface UserQuery {
  organizationId: string;
  /** Those of organizations beneath too. */
  isDeep: boolean;
  searchText: string;
  sortBy: string;
  page: number;
  limit: number;
}

/** @throws Failure */
export function userPage(wanted: UserQuery, signal: AbortSignal): Promise<Page<User>> {
  const { organizationId, isDeep, searchText, sortBy, page, limit } = wanted;
  const depth = isDeep ? ('all' as const) : 1;
  const query = { organizationId, depth, sortBy: [sortBy], page, limit, ...(searchText ? { searchText } : {}) };
  return done(api.GET('/v2/users', { params: { query }, signal }));
}

/** Changes a user. What the interface wants with every change is sent as it is. @throws Failure */
export function changeUser(user: User, change: Partial<Schemas['UserInput']>): Promise<User> {
  const body = { role: user.role, company: user.company, ...change };
  return done(api.PUT('/v2/users/{id}', { params: { path: { id: user.id } }, body }));
}

/** Sends an e-mail with a link to a new password. @throws Failure */
export async function sendPasswordLink(email: string): Promise<void> {
  await done(open.POST('/v2/auth/forgot', { body: { emailOrUsername: email } }));
}
