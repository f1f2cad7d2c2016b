/** Views that were saved in this browser alone, before the server had them: they are carried over once. */

import type { View, ViewInput } from '../api/views';

export interface LocalView {
  name: string;
  /** What stands in the address behind the question mark. */
  search: string;
}

const NAME_MAX = 80;
const QUERY_MAX = 8_000;

/** Reads what this browser still has of a user. */
export function localViews(userId: string, storage: Storage = localStorage): LocalView[] {
  try {
    const list = JSON.parse(storage.getItem(keyOf(userId)) ?? '[]') as Partial<LocalView>[];
    return list.flatMap(({ name, search }) => {
      if (typeof name !== 'string' || typeof search !== 'string' || name.trim() === '') return [];
      const query = new URLSearchParams(search).toString();
      return query.length > QUERY_MAX ? [] : [{ name: cut(name.trim(), NAME_MAX), search: query }];
    });
  } catch {
    return [];
  }
}

/**
 * Gives the server what this browser has, as far as there is room, and forgets it here. What cannot be given stays for the next
 * time. Returns all views that there are then.
 */
export async function carryOver(
  userId: string,
  present: readonly View[],
  most: number,
  create: (view: ViewInput) => Promise<View>,
  storage: Storage = localStorage,
): Promise<View[]> {
  const views = [...present];
  const local = localViews(userId, storage);
  while (local.length > 0) {
    const [{ name, search }] = local as [LocalView];
    const isThere = views.some((view) => view.name === name && view.query === search);
    if (!isThere) {
      if (views.length >= most) break;
      try {
        views.push(await create({ name: freeName(name, views), query: search }));
      } catch {
        break;
      }
    }
    local.shift();
    keep(userId, local, storage);
  }
  return views.sort((one, other) => one.name.localeCompare(other.name));
}

function keep(userId: string, local: readonly LocalView[], storage: Storage): void {
  if (local.length > 0) storage.setItem(keyOf(userId), JSON.stringify(local));
  else storage.removeItem(keyOf(userId));
}

/** The name, with a number behind it where another view has it. */
function freeName(name: string, views: readonly View[]): string {
  const taken = new Set(views.map((view) => view.name));
  let free = name;
  for (let number = 2; taken.has(free); number += 1) {
    const mark = ` (${number})`;
    free = cut(name, NAME_MAX - mark.length) + mark;
  }
  return free;
}

/** So many characters of a text at most, none of them cut in two. */
function cut(text: string, most: number): string {
  return [...text].slice(0, most).join('');
}

function keyOf(userId: string): string {
  return `filters:${userId}`;
}
