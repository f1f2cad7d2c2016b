import type { StoredEvent } from '../../api/client';

/** Both together, newest first, each event once. Identifiers grow with time. */
export function merge(one: readonly StoredEvent[], other: readonly StoredEvent[]): StoredEvent[] {
  const byId = new Map([...one, ...other].map((event) => [event.id, event]));
  return [...byId.values()].sort((a, b) => (a.id < b.id ? 1 : a.id > b.id ? -1 : 0));
}
