import { SvelteMap } from 'svelte/reactivity';
import { api, done } from '../api/client';

/** Names of users, asked for once each. */
const names = new SvelteMap<string, string>();
const asked = new Set<string>();

/** The name of a user; empty until it is known, and for one who is out of reach. */
export function userName(id: string): string {
  if (!asked.has(id)) {
    asked.add(id);
    void done(api.GET('/v2/users/{id}', { params: { path: { id } } })).then(
      ({ firstName, lastName, username }) => names.set(id, `${firstName} ${lastName}`.trim() || username),
      () => undefined,
    );
  }
  return names.get(id) ?? '';
}
