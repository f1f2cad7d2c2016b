import { SvelteMap } from 'svelte/reactivity';
import { api, done } from '../api/client';

/** Names of users, asked for once each. */
const names = new SvelteMap<string, string>();
const asked = new Set<string>();

/** The name of a user: undefined until it is known, empty of those who are gone or out of reach. */
export function userName(id: string): string | undefined {
  if (!asked.has(id)) {
    asked.add(id);
    void done(api.GET('/v2/users/{id}', { params: { path: { id } } })).then(
      (user) => names.set(id, user.username),
      () => names.set(id, ''),
    );
  }
  return names.get(id);
}
