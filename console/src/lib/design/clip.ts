import { renameMember } from './cel';
import {
  type Design,
  type Element,
  type Entry,
  type Point,
  elementsOf,
  freeName,
  isObject,
  mapElements,
  mapExpressions,
  mapLinks,
  namesOf,
  positionOf,
  readDesign,
  removeElements,
  withElements,
} from './model';

/** Elements that were copied, with the links between them. */
export interface Clip {
  elements: Entry[];
}

export function copy(design: Design, names: readonly string[]): Clip {
  const taken = new Set(names);
  const { planes } = removeElements(
    design,
    namesOf(design).filter((name) => !taken.has(name)),
  );
  return { elements: Object.entries(elementsOf({ ...design, planes })) };
}

/** Puts copied elements into a design, under names that are free, moved aside. */
export function paste(design: Design, clip: Clip, by: Point): { design: Design; names: string[] } {
  const names = new Map<string, string>();
  let next = design;
  for (const [name, element] of clip.elements) {
    const free = freeName(next, name);
    names.set(name, free);
    const at = positionOf(element) ?? { x: 0, y: 0 };
    const moved: Element = { ...element, position: { x: at.x + by.x, y: at.y + by.y } };
    next = withElements(next, [...Object.entries(elementsOf(next)), [free, moved]]);
  }
  const pasted = new Set(names.values());
  next = mapElements(next, (element, name) => {
    if (!pasted.has(name)) return element;
    const linked = mapLinks(element, (link) => ({ ...link, element: names.get(link.element) ?? link.element }));
    return mapExpressions(linked, (text) => renamedAll(text, clip, names));
  });
  return { design: next, names: [...pasted] };
}

function renamedAll(text: string, clip: Clip, names: ReadonlyMap<string, string>): string {
  let next = text;
  for (const [name, element] of clip.elements) {
    const to = names.get(name);
    if (to === undefined || to === name) continue;
    if (element.type === 'deviceSetting') next = renameMember(next, 'settings', name, to);
    if (element.type === 'storage') next = renameMember(next, 'last', name, to);
  }
  return next;
}

/** What was put on the clipboard, if it is a clip. */
export function readClip(text: string): Clip | null {
  try {
    const { elements } = JSON.parse(text) as { elements?: unknown };
    const read = readDesign({ name: '', planes: { cloud: { elements } } });
    if (!read.isGood || !isObject(elements)) return null;
    const entries = Object.entries(elementsOf(read.design));
    return entries.length > 0 ? { elements: entries } : null;
  } catch {
    return null;
  }
}

/** A clip as a text that can be pasted anywhere. */
export function writeClip(clip: Clip): string {
  return JSON.stringify({ elements: Object.fromEntries(clip.elements) }, null, 2);
}
