import { SvelteMap } from 'svelte/reactivity';
import { api, done } from '../api/client';
import { m } from '../paraglide/messages';

/** Names of users, asked for once each. */
const names = new SvelteMap<string, string>();
const asked = new Set<string>();

/** The name of a user: undefined until it is known, empty of those who are gone or out of reach. */
export function userName(id: string): string | undefined {
  if (!asked.has(id)) {
    asked.add(id);
    void done(api.GET('/v2/users/{id}', { params: { path: { id } } })).then(
      ({ firstName, lastName, username }) => names.set(id, `${firstName} ${lastName}`.trim() || username),
      () => names.set(id, ''),
    );
  }
  return names.get(id);
}

/** Who has made something, in words: null where nobody is named. */
export function authorWords(id: string | null | undefined): string {
  if (!id) return m.conflict_somebody();
  const name = userName(id);
  return name === '' ? m.author_gone() : (name ?? '…');
}
