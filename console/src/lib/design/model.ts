/** A design, and every way in which the canvas changes it. Nothing here is changed in place: each function gives the next design. */

import { mapMessage, renameMember } from './cel';
import { type Shape, shapeOf } from './elements';
import type { Path } from './json-text';

export interface Link {
  element: string;
  ability: string;
  arguments?: Record<string, unknown> | null;
}

export interface Point {
  x: number;
  y: number;
}

/** An element; members that the console does not know are kept. `position` and `note` are the console's own. */
export interface Element {
  type: string;
  properties?: Record<string, unknown> | null;
  triggers?: Record<string, Link[]> | null;
  position?: unknown;
  note?: unknown;
}

export interface Design {
  name: string;
  description: string;
  createVersion: string;
  meta: Record<string, unknown>;
  planes: Record<string, unknown>;
}

/** Where a link stands. */
export interface LinkPlace {
  element: string;
  trigger: string;
  index: number;
}

export type Entry = [string, Element];

export type ReadDesign =
  { isGood: true; design: Design } | { isGood: false; path: Path; needed: 'object' | 'list' | 'text' };

class Odd extends Error {
  constructor(
    readonly path: Path,
    readonly needed: 'object' | 'list' | 'text',
  ) {
    super();
  }
}

/** An object without one of its members. */
export function without<T extends object, K extends keyof T>(object: T, key: K): Omit<T, K> {
  const { [key]: gone, ...rest } = object;
  void gone;
  return rest;
}

function isAbsent(value: unknown): value is null | undefined {
  return value === null || value === undefined;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function objectAt(value: unknown, path: Path): Record<string, unknown> {
  if (!isObject(value)) throw new Odd(path, 'object');
  return value;
}

function textAt(value: unknown, path: Path): string {
  if (typeof value !== 'string') throw new Odd(path, 'text');
  return value;
}

/** Whether a value can be shown as a design; whatever else is wrong with it can be shown on the canvas. */
export function readDesign(value: unknown): ReadDesign {
  try {
    const whole = objectAt(value, []);
    const planes = objectAt(whole.planes ?? {}, ['planes']);
    if (planes.cloud !== undefined) checkCloud(planes.cloud);
    return {
      isGood: true,
      design: {
        name: textAt(whole.name, ['name']),
        description: textAt(whole.description ?? '', ['description']),
        createVersion: textAt(whole.createVersion ?? '2', ['createVersion']),
        meta: objectAt(whole.meta ?? {}, ['meta']),
        planes,
      },
    };
  } catch (error) {
    if (error instanceof Odd) return { isGood: false, path: error.path, needed: error.needed };
    throw error;
  }
}

function checkCloud(value: unknown): void {
  const cloud = objectAt(value, ['planes', 'cloud']);
  if (cloud.elements === undefined) return;
  const path = ['planes', 'cloud', 'elements'];
  for (const [name, element] of Object.entries(objectAt(cloud.elements, path))) checkElement(element, [...path, name]);
}

function checkElement(value: unknown, path: Path): void {
  const element = objectAt(value, path);
  textAt(element.type, [...path, 'type']);
  if (!isAbsent(element.properties)) objectAt(element.properties, [...path, 'properties']);
  if (isAbsent(element.triggers)) return;
  for (const [trigger, links] of Object.entries(objectAt(element.triggers, [...path, 'triggers']))) {
    const place = [...path, 'triggers', trigger];
    if (!Array.isArray(links)) throw new Odd(place, 'list');
    links.forEach((item: unknown, index) => {
      const link = objectAt(item, [...place, index]);
      textAt(link.element, [...place, index, 'element']);
      textAt(link.ability, [...place, index, 'ability']);
      if (!isAbsent(link.arguments)) objectAt(link.arguments, [...place, index, 'arguments']);
    });
  }
}

export function emptyDesign(name: string): Design {
  return { name, description: '', createVersion: '2', meta: {}, planes: { cloud: { elements: {} } } };
}

/** The elements by name. */
export function elementsOf(design: Design): Record<string, Element> {
  const cloud = design.planes.cloud as { elements?: Record<string, Element> } | undefined;
  return cloud?.elements ?? {};
}

export function namesOf(design: Design): string[] {
  return Object.keys(elementsOf(design));
}

export function elementOf(design: Design, name: string): Element | undefined {
  const elements = elementsOf(design);
  return Object.hasOwn(elements, name) ? elements[name] : undefined;
}

/** A member of an object that somebody else has written. */
export function own<T>(object: Record<string, T> | null | undefined, key: string): T | undefined {
  return object && Object.hasOwn(object, key) ? object[key] : undefined;
}

/** An object with a member more, or another, or (undefined) without it. */
function withMember<T>(
  object: Record<string, T> | null | undefined,
  key: string,
  value: T | undefined,
): Record<string, T> {
  const entries = Object.entries(object ?? {});
  const at = entries.findIndex(([name]) => name === key);
  if (value === undefined) return Object.fromEntries(entries.filter(([name]) => name !== key));
  if (at < 0) return Object.fromEntries([...entries, [key, value]]);
  return Object.fromEntries(entries.map(([name, before]) => [name, name === key ? value : before]));
}

/** The design with these elements in place of its own. */
export function withElements(design: Design, entries: readonly Entry[]): Design {
  const cloud = (design.planes.cloud ?? {}) as Record<string, unknown>;
  const next = withMember(cloud, 'elements', Object.fromEntries(entries) as unknown);
  return { ...design, planes: withMember(design.planes, 'cloud', next as unknown) };
}

/** Changes each element. */
export function mapElements(design: Design, change: (element: Element, name: string) => Element): Design {
  return withElements(
    design,
    Object.entries(elementsOf(design)).map(([name, element]) => [name, change(element, name)]),
  );
}

function changeElement(design: Design, name: string, change: (element: Element) => Element): Design {
  if (!elementOf(design, name)) return design;
  return mapElements(design, (element, other) => (other === name ? change(element) : element));
}

/** Links of a trigger. */
export function linksOf(design: Design, name: string, trigger: string): readonly Link[] {
  return own(elementOf(design, name)?.triggers, trigger) ?? [];
}

export function linkAt(design: Design, { element, trigger, index }: LinkPlace): Link | undefined {
  return linksOf(design, element, trigger)[index];
}

/** Every link, with its place. */
export function allLinks(design: Design): (LinkPlace & { link: Link })[] {
  return Object.entries(elementsOf(design)).flatMap(([element, { triggers }]) =>
    Object.entries(triggers ?? {}).flatMap(([trigger, links]) =>
      links.map((link, index) => ({ element, trigger, index, link })),
    ),
  );
}

function withLinks(element: Element, trigger: string, links: Link[]): Element {
  const triggers = withMember(element.triggers, trigger, links.length > 0 ? links : undefined);
  return Object.keys(triggers).length > 0 ? { ...element, triggers } : without(element, 'triggers');
}

/** A name that no element has yet: `reading`, `reading2`, … */
export function freeName(design: Design, wanted: string): string {
  const elements = elementsOf(design);
  const stem = wanted.replace(/\d+$/, '') || wanted;
  if (!Object.hasOwn(elements, wanted)) return wanted;
  let number = 2;
  while (Object.hasOwn(elements, stem + number)) number += 1;
  return stem + number;
}

/** What a new element of a type is called, and what it begins with: as little as the server accepts where that can be. */
const BEGINNINGS: Readonly<Record<string, { name: string; properties?: Record<string, unknown> }>> = {
  deviceEvent: { name: 'reading' },
  interval: { name: 'every', properties: { minutes: 60 } },
  condition: { name: 'check', properties: { expression: 'true' } },
  transform: { name: 'compute', properties: { expression: 'payload' } },
  changed: { name: 'changes' },
  function: {
    name: 'decode',
    properties: {
      code: 'function decodeUplink(input) {\n  var bytes = input.bytes;\n  return { data: { first: bytes[0] } };\n}\n',
    },
  },
  window: { name: 'window', properties: { size: 10, aggregate: 'mean' } },
  throttle: { name: 'throttle', properties: { minutes: 10 } },
  deviceSetting: { name: 'setting' },
  deviceMeta: { name: 'device' },
  storage: { name: 'values' },
  cloudEvent: { name: 'command' },
  notification: { name: 'tell', properties: { message: '{{ device.name }}' } },
  alarm: { name: 'alarm', properties: { title: '{{ device.name }}' } },
  http: { name: 'call', properties: { url: 'https://example.org/' } },
};

export function addElement(design: Design, type: string, position: Point): { design: Design; name: string } {
  const { name: wanted, properties } = BEGINNINGS[type] ?? { name: type };
  const name = freeName(design, wanted);
  const element: Element = { type, ...(properties ? { properties } : {}), position };
  return { design: withElements(design, [...Object.entries(elementsOf(design)), [name, element]]), name };
}

/** The design without these elements, and without links to them. */
export function removeElements(design: Design, names: readonly string[]): Design {
  const gone = new Set(names);
  const entries = Object.entries(elementsOf(design))
    .filter(([name]) => !gone.has(name))
    .map(([name, element]): Entry => {
      let left = element;
      for (const [trigger, links] of Object.entries(element.triggers ?? {})) {
        const kept = links.filter((link) => !gone.has(link.element));
        if (kept.length < links.length) left = withLinks(left, trigger, kept);
      }
      return [name, left];
    });
  return withElements(design, entries);
}

/** Gives an element another name, in links to it and in expressions that read it. */
export function renameElement(design: Design, from: string, to: string): Design {
  const renamed = elementOf(design, from);
  if (!renamed || from === to || elementOf(design, to)) return design;
  const root = renamed.type === 'deviceSetting' ? 'settings' : renamed.type === 'storage' ? 'last' : null;
  const inExpression = (text: string): string => (root ? renameMember(text, root, from, to) : text);
  const entries = Object.entries(elementsOf(design)).map(([name, element]): Entry => [
    name === from ? to : name,
    mapLinks(root ? mapExpressions(element, inExpression) : element, (link) =>
      link.element === from ? { ...link, element: to } : link,
    ),
  ]);
  return withElements(design, entries);
}

/** Changes each link of an element. */
export function mapLinks(element: Element, change: (link: Link) => Link): Element {
  if (!element.triggers) return element;
  let changed = false;
  const triggers = Object.entries(element.triggers).map(([trigger, links]) => {
    const next = links.map(change);
    changed ||= next.some((link, index) => link !== links[index]);
    return [trigger, next] as const;
  });
  return changed ? { ...element, triggers: Object.fromEntries(triggers) } : element;
}

/** Changes each expression of an element: those of its properties, and the arguments of its links. */
export function mapExpressions(element: Element, change: (expression: string) => string): Element {
  const shape = shapeOf(element.type);
  let next = mapLinks(element, (link) => {
    if (!link.arguments) return link;
    const given = mapTexts(link.arguments, change);
    return given === link.arguments ? link : { ...link, arguments: given };
  });
  for (const { name, kind } of shape?.properties ?? []) {
    const value = own(next.properties, name);
    let mapped = value;
    if (kind === 'message' && typeof value === 'string') mapped = mapMessage(value, change);
    else if (kind === 'headers' && isObject(value)) mapped = mapTexts(value, change);
    else if (['expression', 'address', 'method', 'body'].includes(kind) && typeof value === 'string')
      mapped = change(value);
    if (mapped !== value) next = { ...next, properties: withMember(next.properties, name, mapped) };
  }
  return next;
}

function mapTexts(object: Record<string, unknown>, change: (text: string) => string): Record<string, unknown> {
  const entries = Object.entries(object).map(([key, value]) => [
    key,
    typeof value === 'string' ? change(value) : value,
  ]);
  const isSame = entries.every(([key, value]) => object[key as string] === value);
  return isSame ? object : (Object.fromEntries(entries) as Record<string, unknown>);
}

/** Sets a property; undefined takes it away. */
export function setProperty(design: Design, name: string, property: string, value: unknown): Design {
  return changeElement(design, name, (element) => {
    const properties = withMember(element.properties, property, value);
    return Object.keys(properties).length > 0 ? { ...element, properties } : without(element, 'properties');
  });
}

/** Sets the note of an element; an empty one is none. */
export function setNote(design: Design, name: string, note: string): Design {
  return changeElement(design, name, (element) => (note === '' ? without(element, 'note') : { ...element, note }));
}

/** Whether values can come from one element to another. */
export function leadsTo(design: Design, from: string, to: string): boolean {
  const seen = new Set<string>();
  const open = [from];
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    if (name === to) return true;
    if (seen.has(name)) continue;
    seen.add(name);
    for (const links of Object.values(elementOf(design, name)?.triggers ?? {})) {
      for (const { element } of links) open.push(element);
    }
  }
  return false;
}

export interface Connection {
  from: string;
  trigger: string;
  to: string;
  ability: string;
}

/** Whether a trigger may be linked to an ability: both are there, the link is not, and no value would go round for ever. */
export function fits(design: Design, { from, trigger, to, ability }: Connection): boolean {
  const [source, target] = [shapeOf(elementOf(design, from)?.type), shapeOf(elementOf(design, to)?.type)];
  if (!source?.triggers.includes(trigger)) return false;
  if (!target?.abilities.some(({ name }) => name === ability)) return false;
  if (linksOf(design, from, trigger).some((link) => link.element === to && link.ability === ability)) return false;
  return !leadsTo(design, to, from);
}

/** Links a trigger to an ability, behind the links that are there; null where that does not fit. */
export function connect(design: Design, connection: Connection): { design: Design; place: LinkPlace } | null {
  if (!fits(design, connection)) return null;
  const { from, trigger, to, ability } = connection;
  const links = linksOf(design, from, trigger);
  const next = changeElement(design, from, (element) =>
    withLinks(element, trigger, [...links, { element: to, ability }]),
  );
  return { design: next, place: { element: from, trigger, index: links.length } };
}

function changeLinks(design: Design, place: LinkPlace, change: (links: Link[]) => Link[]): Design {
  const links = linksOf(design, place.element, place.trigger);
  if (!links[place.index]) return design;
  return changeElement(design, place.element, (element) => withLinks(element, place.trigger, change([...links])));
}

/** Takes links away. */
export function disconnect(design: Design, places: readonly LinkPlace[]): Design {
  // From the last to the first, so that the places of the others hold.
  const ordered = [...places].sort((left, right) => right.index - left.index);
  return ordered.reduce(
    (now, place) => changeLinks(now, place, (links) => links.filter((_, index) => index !== place.index)),
    design,
  );
}

/** Sets an argument of a link; undefined gives it the incoming value back. */
export function setArgument(design: Design, place: LinkPlace, argument: string, value: unknown): Design {
  return changeLinks(design, place, (links) =>
    links.map((link, index) => {
      if (index !== place.index) return link;
      const given = withMember(link.arguments, argument, value);
      return Object.keys(given).length > 0 ? { ...link, arguments: given } : without(link, 'arguments');
    }),
  );
}

/** Has a link followed sooner or later. */
export function moveLink(design: Design, place: LinkPlace, by: number): Design {
  const to = place.index + by;
  return changeLinks(design, place, (links) => {
    const [moved] = links.splice(place.index, 1);
    if (moved) links.splice(Math.max(to, 0), 0, moved);
    return links;
  });
}

/** Farther from the origin nothing is found again, and at some point nothing is drawn. */
export const POSITION_MAX = 50_000;

/** The place that an element has of its own. One beyond all bounds is none. */
export function positionOf(element: Element): Point | undefined {
  const { x, y } = isObject(element.position) ? element.position : {};
  return isCoordinate(x) && isCoordinate(y) ? { x, y } : undefined;
}

function isCoordinate(value: unknown): value is number {
  return typeof value === 'number' && Math.abs(value) <= POSITION_MAX;
}

export function setPositions(design: Design, positions: ReadonlyMap<string, Point>): Design {
  return mapElements(design, (element, name) => {
    const to = positions.get(name);
    const from = positionOf(element);
    if (!to || (from?.x === to.x && from.y === to.y)) return element;
    return { ...element, position: { x: Math.round(to.x), y: Math.round(to.y) } };
  });
}

/** What a design says: as JSON, for people. */
export function writeDesign({ name, description, createVersion, meta, planes }: Design): string {
  return JSON.stringify({ name, description, createVersion, meta, planes }, null, 2);
}

/** Equal as JSON, whatever the order of members. */
export function equal(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (Array.isArray(left) || Array.isArray(right)) {
    if (!Array.isArray(left) || !Array.isArray(right) || left.length !== right.length) return false;
    return left.every((item, index) => equal(item, right[index]));
  }
  if (!isObject(left) || !isObject(right)) return false;
  const keys = Object.keys(left);
  if (keys.length !== Object.keys(right).length) return false;
  return keys.every((key) => Object.hasOwn(right, key) && equal(left[key], right[key]));
}

/** The shape of an element of a design. */
export function shapeIn(design: Design, name: string): Shape | undefined {
  return shapeOf(elementOf(design, name)?.type);
}
