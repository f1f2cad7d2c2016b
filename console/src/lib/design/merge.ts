import { designMembers } from './diff';
import { type Design, type Element, elementsOf, equal, withElements, without } from './model';

/** Whose version of something is taken. */
export type Side = 'mine' | 'theirs';

/** What both have changed. `element` is null for the design itself: its name, description and what else it has beside elements. */
export interface Conflict {
  element: string | null;
  mine: unknown;
  theirs: unknown;
}

export interface Merge {
  design: Design;
  conflicts: Conflict[];
  /** Elements that came from them, and elements that are mine: both without a choice. */
  taken: string[];
  kept: string[];
}

/**
 * Brings two designs together that were made of one. What only one side has changed is taken from that side; where both have, `choose`
 * says whose holds. Without `base` everything that differs is a conflict.
 */
export function merge(
  base: Design | null,
  mine: Design,
  theirs: Design,
  choose: (element: string | null) => Side,
): Merge {
  const conflicts: Conflict[] = [];
  const taken: string[] = [];
  const kept: string[] = [];
  const [left, right] = [elementsOf(mine), elementsOf(theirs)];
  const origin = base ? elementsOf(base) : null;
  const at = (elements: Record<string, Element>, name: string): Element | undefined =>
    Object.hasOwn(elements, name) ? elements[name] : undefined;
  const entries: [string, Element][] = [];
  for (const name of new Set([...Object.keys(right), ...Object.keys(left)])) {
    const [own, other, before] = [at(left, name), at(right, name), origin ? at(origin, name) : undefined];
    const verdict = judge(own, other, origin ? { before } : null);
    if (verdict === 'conflict') conflicts.push({ element: name, mine: own, theirs: other });
    if (verdict === 'theirs') taken.push(name);
    if (verdict === 'mine') kept.push(name);
    const side = verdict === 'conflict' ? choose(name) : verdict;
    const chosen = side === 'theirs' ? other : own;
    if (chosen) entries.push([name, chosen]);
  }
  const [ownRest, otherRest] = [designMembers(mine), designMembers(theirs)];
  const rest = judge(ownRest, otherRest, base ? { before: designMembers(base) } : null);
  if (rest === 'conflict') conflicts.push({ element: null, mine: ownRest, theirs: otherRest });
  const frame = (rest === 'conflict' ? choose(null) : rest) === 'theirs' ? theirs : mine;
  return { design: withElements(frame, entries), conflicts, taken, kept };
}

/** Whose holds, by itself. That something was only moved about on the canvas is no reason to ask anybody. */
function judge(mine: unknown, theirs: unknown, base: { before: unknown } | null): Side | 'same' | 'conflict' {
  if (equal(mine, theirs)) return 'same';
  if (base && equal(mine, base.before)) return 'theirs';
  if (base && equal(theirs, base.before)) return 'mine';
  if (equal(still(mine), still(theirs))) return 'mine';
  if (base && equal(still(mine), still(base.before))) return 'theirs';
  if (base && equal(still(theirs), still(base.before))) return 'mine';
  return 'conflict';
}

/** Without its place on the canvas. */
function still(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || !('type' in value)) return value;
  return without(value as Element, 'position');
}
