import { type Edge, type Node, Position } from '@xyflow/svelte';
import { type Family, shapeOf } from '../../lib/design/elements';
import { type Line, labelShifts } from '../../lib/design/labels';
import { dotOf, sizeWith } from '../../lib/design/layout';
import { type Element, type LinkPlace, allLinks, elementsOf, equal, linkAt } from '../../lib/design/model';
import { keyOf } from '../../lib/design/trace';
import { brief } from '../../lib/format';
import { m } from '../../paraglide/messages';
import type { Editor } from './editor.svelte';
import { typeWord } from './words';

/** What a trial has shown of an element or a link. */
export type Shown = 'passed' | 'failed' | undefined;

export interface ElementData extends Record<string, unknown> {
  name: string;
  type: string;
  family: Family | 'unknown';
  /** The type, and what is most worth knowing of its properties. */
  summary: string;
  abilities: readonly string[];
  triggers: readonly string[];
  faults: readonly string[];
  shown: Shown;
  isNow: boolean;
}

export interface LinkData extends Record<string, unknown> {
  place: LinkPlace;
  label: string;
  /** How far the label stands from the middle of its line, lest labels of links between the same two elements lie on each other. */
  labelShift: number;
  isFaulty: boolean;
  shown: Shown;
  isNow: boolean;
}

export type ElementNode = Node<ElementData, 'element'>;
export type LinkEdge = Edge<LinkData, 'link'>;

/** Names may be anything; identifiers on the canvas stand in selectors. */
export const idOf = (name: string): string => encodeURIComponent(name);
export const nameOf = (id: string): string => decodeURIComponent(id);

const LABEL_CHARS = 18;

function cut(text: string, most = LABEL_CHARS): string {
  const line = text.replace(/\s+/g, ' ');
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/** What is most worth knowing of an element's properties. */
function gist({ type, properties }: Element): string {
  const { expression, minutes, size, aggregate, message, url, inputType, integration, retentionDays } =
    properties ?? {};
  if (type === 'window')
    return `${String(aggregate ?? '?')} · ${size === undefined ? `${String(minutes ?? '?')} min` : String(size)}`;
  if (type === 'deviceSetting') return String(inputType ?? 'text');
  if (type === 'deviceEvent') return String(integration ?? 'http');
  if (type === 'storage') return typeof retentionDays === 'number' ? `${retentionDays} d` : '';
  if (typeof minutes === 'number') return `${String(minutes)} min`;
  const text = [expression, message, url].find((value) => typeof value === 'string');
  return typeof text === 'string' ? cut(text, 2 * LABEL_CHARS) : '';
}

/** The nodes of a design, of the elements in `due` alone. `before` are those that are shown: what the canvas knows of them is kept. */
export function nodesOf(editor: Editor, due: ReadonlySet<string>, before: readonly ElementNode[]): ElementNode[] {
  const known = new Map(before.map((node) => [node.id, node]));
  const linked = new Map<string, Set<string>>();
  for (const { link } of allLinks(editor.design)) {
    linked.set(link.element, (linked.get(link.element) ?? new Set()).add(link.ability));
  }
  const faults = new Map<string, string[]>();
  for (const { element, link, message } of editor.faults) {
    if (element !== undefined && !link) faults.set(element, [...(faults.get(element) ?? []), message]);
  }
  const shown = shownOf(editor);
  const selected = new Set(editor.selection.names);
  const entries = Object.entries(elementsOf(editor.design)).filter(([name]) => due.has(name));
  return entries.map(([name, element]) => {
    const shape = shapeOf(element.type);
    const summary = [typeWord(element.type), gist(element)].filter((part) => part !== '').join(' · ');
    const data: ElementData = {
      name,
      type: element.type,
      family: shape?.family ?? 'unknown',
      summary,
      abilities: union(
        shape?.abilities.map((ability) => ability.name),
        linked.get(name),
      ),
      triggers: union(shape?.triggers, Object.keys(element.triggers ?? {})),
      faults: faults.get(name) ?? [],
      shown: shown.get(name),
      isNow: editor.step !== null && editor.trial?.walks[editor.step]?.step.element === name,
    };
    const id = idOf(name);
    const position = editor.places.get(name) ?? { x: 0, y: 0 };
    const told = data.faults.length > 0 ? [m.design_faults({ count: data.faults.length })] : [];
    const ariaLabel = [name, summary, ...told].join(', ');
    return kept(known.get(id), {
      id,
      type: 'element',
      position,
      data,
      selected: selected.has(name),
      ariaLabel,
      domAttributes: { 'aria-roledescription': m.element() },
      ...measures(data),
    });
  });
}

/** How large an element is and where its links begin and end: told to the canvas, which would have to draw each to measure it. */
function measures({ abilities, triggers }: ElementData): Pick<ElementNode, 'measured' | 'handles'> {
  const left = abilities.map((name, row) => ({
    id: idOf(name),
    type: 'target' as const,
    position: Position.Left,
    ...dotOf(row, 'left'),
  }));
  const right = triggers.map((name, row) => ({
    id: idOf(name),
    type: 'source' as const,
    position: Position.Right,
    ...dotOf(row, 'right'),
  }));
  return { measured: sizeWith(abilities.length, triggers.length), handles: [...left, ...right] };
}

/** What is shown already, with what is new of it; the very same where nothing is, so that nothing of it is drawn again. */
function kept<T extends ElementNode | LinkEdge>(before: T | undefined, now: T): T {
  if (!before) return now;
  const isSame = Object.entries(now).every(([key, value]) => equal(before[key as keyof T], value));
  return isSame ? before : { ...before, ...now };
}

function union(...lists: (Iterable<string> | undefined)[]): string[] {
  return [...new Set(lists.flatMap((list) => [...(list ?? [])]))];
}

function shownOf({ trial }: Editor): Map<string, Shown> {
  const shown = new Map<string, Shown>();
  for (const { step } of trial?.walks ?? []) {
    if (shown.get(step.element) !== 'failed') shown.set(step.element, step.error === undefined ? 'passed' : 'failed');
  }
  for (const { element } of trial?.errors ?? []) shown.set(element, 'failed');
  return shown;
}

type PlacedLink = ReturnType<typeof allLinks>[number];

/** Which elements a link joins, and how far down in both its ends are. */
function lineOf(elements: Record<string, Element>, { element, trigger, link }: PlacedLink): Line {
  const triggers = shapeOf(elements[element]?.type ?? '')?.triggers ?? [];
  const abilities = shapeOf(elements[link.element]?.type ?? '')?.abilities ?? [];
  const ability = abilities.findIndex(({ name }) => name === link.ability);
  return { between: JSON.stringify([element, link.element]), rows: triggers.indexOf(trigger) + ability };
}

/** The links of a design. */
export function edgesOf(editor: Editor, before: readonly LinkEdge[]): LinkEdge[] {
  const { design, trial } = editor;
  const known = new Map(before.map((edge) => [edge.id, edge]));
  const faulty = new Set(editor.faults.flatMap(({ link }) => (link ? [keyOf(link)] : [])));
  const flowed = new Map(
    trial?.walks.flatMap((walk, index) => (walk.link ? [[keyOf(walk.link), { walk, index }]] : [])),
  );
  const selected = new Set(editor.selection.links.map(keyOf));
  const chosen = new Set(editor.selection.names);
  const elements = elementsOf(design);
  const links = allLinks(design).filter(({ link }) => Object.hasOwn(elements, link.element));
  const shifts = labelShifts(links.map((place) => lineOf(elements, place)));
  return links.map((place, index) => {
    const key = keyOf(place);
    const flow = flowed.get(key);
    const link = linkAt(design, place);
    const given = Object.entries(link?.arguments ?? {});
    const texts = given.map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`);
    const label = flow ? cut(brief(flow.walk.step.received)) : cut(texts.join(', '));
    const id = encodeURIComponent(key);
    return kept(known.get(id), {
      id,
      type: 'link',
      source: idOf(place.element),
      sourceHandle: idOf(place.trigger),
      target: idOf(place.link.element),
      targetHandle: idOf(place.link.ability),
      data: {
        place: { element: place.element, trigger: place.trigger, index: place.index },
        label,
        labelShift: shifts[index] ?? 0,
        isFaulty: faulty.has(key),
        shown: flow ? (flow.walk.step.error === undefined ? 'passed' : 'failed') : undefined,
        isNow: flow !== undefined && flow.index === editor.step,
      },
      selected: selected.has(key),
      domAttributes: { 'aria-roledescription': m.design_link() },
      // With each link in its way the keyboard would come to the elements late: those of a chosen element are, and its panel has them too.
      focusable: selected.has(key) || chosen.has(place.element) || chosen.has(place.link.element),
      ariaLabel: m.design_link_label({
        from: place.element,
        trigger: place.trigger,
        to: place.link.element,
        ability: place.link.ability,
      }),
    });
  });
}
