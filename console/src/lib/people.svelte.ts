import { api, done } from '../api/client';
import { m } from '../paraglide/messages';
import { namesOf } from './names.svelte';

/** The name of a user: undefined until it is known, empty of those who are gone or out of reach. */
export const userName = namesOf(async (id) => {
  const { firstName, lastName, username } = await done(api.GET('/v2/users/{id}', { params: { path: { id } } }));
  return `${firstName} ${lastName}`.trim() || username;
});

/** Who has made something, in words: null where nobody is named. */
export function authorWords(id: string | null | undefined): string {
  if (!id) return m.conflict_somebody();
  const name = userName(id);
  return name === '' ? m.author_gone() : (name ?? '…');
}
