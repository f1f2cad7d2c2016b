import { SvelteMap } from 'svelte/reactivity';
import { api, done } from '../api/client';

/** Names of projects, asked for once each. */
const names = new SvelteMap<string, string>();
const asked = new Set<string>();

/** The name of a project; empty until it is known. */
export function projectName(id: string): string {
  if (!asked.has(id)) {
    asked.add(id);
    void done(api.GET('/v2/projects/{id}', { params: { path: { id } } })).then(
      (project) => names.set(id, project.name),
      () => asked.delete(id),
    );
  }
  return names.get(id) ?? '';
}
