import type { StoredEvent } from '../../api/client';
import { nameInPath } from '../table';
import { type Design, allLinks, elementOf } from './model';

/** Members of payloads, as paths with points: what there is to complete. */
export interface KnownKeys {
  /** By the element that the events came to. */
  events: ReadonlyMap<string, ReadonlySet<string>>;
  /** By storage element. */
  stored: ReadonlyMap<string, ReadonlySet<string>>;
}

export const NO_KEYS: KnownKeys = { events: new Map(), stored: new Map() };

const DEPTH_MAX = 4;
const KEYS_MAX = 300;

/** The paths of a payload's members, written as `leaves` does: a name that has a point stands in quotes. */
export function keysOf(payload: unknown, into = new Set<string>(), prefix = '', depth = 0): Set<string> {
  if (typeof payload !== 'object' || payload === null || Array.isArray(payload) || depth >= DEPTH_MAX) return into;
  for (const [key, value] of Object.entries(payload)) {
    if (into.size >= KEYS_MAX) return into;
    const path = prefix + nameInPath(key);
    into.add(path);
    keysOf(value, into, `${path}.`, depth + 1);
  }
  return into;
}

/** The keys of events, by element. */
export function keysOfEvents(events: readonly StoredEvent[]): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const { elementName, payload, type } of events) {
    if (type === 'deviceEvent') found.set(elementName, keysOf(payload, found.get(elementName)));
  }
  return found;
}

/** The keys that an incoming value of an element may have: those of the events whose values come there. */
export function incomingKeys(design: Design, name: string, { events }: KnownKeys): string[] {
  const sources = new Set<string>();
  const seen = new Set<string>();
  const open = [name];
  const links = allLinks(design);
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    if (seen.has(at)) continue;
    seen.add(at);
    if (elementOf(design, at)?.type === 'deviceEvent') sources.add(at);
    for (const { element, link } of links) if (link.element === at) open.push(element);
  }
  const reaching = [...events].filter(([source]) => sources.has(source));
  const wanted = reaching.length > 0 ? reaching : [...events];
  return [...new Set(wanted.flatMap(([, keys]) => [...keys]))].sort();
}
