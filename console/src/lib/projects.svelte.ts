import { api, done } from '../api/client';
import { namesOf } from './names.svelte';

/** The name of a project: undefined until it is known, empty of one that is gone or out of reach. */
export const projectName = namesOf(
  async (id) => (await done(api.GET('/v2/projects/{id}', { params: { path: { id } } }))).name,
);
