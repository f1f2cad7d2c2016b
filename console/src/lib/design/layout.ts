import { graphlib, layout as arrange } from '@dagrejs/dagre';
import { shapeOf } from './elements';
import { type Design, type Element, type Point, allLinks, elementOf, elementsOf, positionOf } from './model';

/** As the nodes are drawn. */
export const NODE_WIDTH = 208;
export const NODE_HEAD = 46;
export const ROW_HEIGHT = 24;
const ROWS_PADDING = 5;
const BORDER = 1;
/** The dots at which links begin and end, in the middle of a row, on the border. */
const DOT = 13;
const GAP = 36;
const RANK_GAP = 150;
/** Elements that nothing leads to or from stand in rows of so many. */
const IN_A_ROW = 4;
/** With more elements than these, avoiding crossings would hold the page up: its work grows with their square. */
const CROSSINGS_AVOIDED_MAX = 100;

/** How large an element is on the canvas. */
export function sizeOf(element: Element): { width: number; height: number } {
  const shape = shapeOf(element.type);
  return sizeWith(shape?.abilities.length ?? 0, shape?.triggers.length ?? 0);
}

/** How large an element with so many abilities and triggers is. */
export function sizeWith(abilities: number, triggers: number): { width: number; height: number } {
  const rows = Math.max(abilities, triggers, 1);
  return { width: NODE_WIDTH, height: NODE_HEAD + rows * ROW_HEIGHT + 2 * (ROWS_PADDING + BORDER) };
}

/** Where the dot of a row is within its element. */
export function dotOf(row: number, side: 'left' | 'right'): { x: number; y: number; width: number; height: number } {
  const middle = side === 'left' ? BORDER : NODE_WIDTH - BORDER;
  const y = BORDER + NODE_HEAD + ROWS_PADDING + (row + 0.5) * ROW_HEIGHT;
  return { x: middle - DOT / 2, y: y - DOT / 2, width: DOT, height: DOT };
}

/** The last arrangement, by what it depends on: what is typed into an element moves nothing. */
let last: { key: string; places: ReadonlyMap<string, Point> } | undefined;

/** The same arrangement again costs nothing. */
function arrangedOnce(design: Design): Map<string, Point> {
  const elements = Object.entries(elementsOf(design)).map(([name, { type }]) => [name, type]);
  const links = allLinks(design).map(({ element, trigger, link }) => [element, trigger, link.element, link.ability]);
  const key = JSON.stringify([elements, links]);
  if (last?.key !== key) last = { key, places: arranged(design) };
  return new Map(last.places);
}

/** From one element to another. */
type Way = readonly [from: string, to: string];

/** Puts the elements side by side from where events come in to where they end, without crossings where that can be; those without links below. */
export function arranged(design: Design): Map<string, Point> {
  const entries = Object.entries(elementsOf(design));
  const elements = new Map(entries);
  const ways = allLinks(design)
    .map(({ element, link }): Way => [element, link.element])
    .filter(([from, to]) => elements.has(to) && from !== to);
  const linked = new Set(ways.flat());
  const inWays = entries.filter(([name]) => linked.has(name));
  const placed = inWays.length > CROSSINGS_AVOIDED_MAX ? inLines(inWays, ways) : withoutCrossings(inWays, ways);
  const below = Math.max(
    0,
    ...inWays.map(([name, element]) => (placed.get(name)?.y ?? 0) + sizeOf(element).height + GAP),
  );
  return addRows(
    placed,
    entries.filter(([name]) => !linked.has(name)),
    { x: 0, y: Math.round(below) },
  );
}

function withoutCrossings(entries: readonly [string, Element][], ways: readonly Way[]): Map<string, Point> {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: 'LR', nodesep: GAP, ranksep: RANK_GAP, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  // Elements are known to the graph by their number: a name may be anything.
  const numbers = new Map(entries.map(([name], index) => [name, String(index)]));
  for (const [name, element] of entries) graph.setNode(numbers.get(name) as string, { ...sizeOf(element) });
  for (const [from, to] of ways) graph.setEdge(numbers.get(from) as string, numbers.get(to) as string);
  arrange(graph);
  return new Map(
    entries.map(([name, element]) => {
      const { x, y } = graph.node(numbers.get(name) as string) as Point;
      const { width, height } = sizeOf(element);
      return [name, { x: Math.round(x - width / 2), y: Math.round(y - height / 2) }];
    }),
  );
}

/** One line below the other for what comes of each start, in the order of the design. */
function inLines(entries: readonly [string, Element][], ways: readonly Way[]): Map<string, Point> {
  const ranks = ranksOf(
    entries.map(([name]) => name),
    ways,
  );
  const elements = new Map(entries);
  const placed = new Map<string, Point>();
  /** Where each rank is free, from top to bottom. */
  const free: number[] = [];
  const after = afterEach(ways);
  const reached = new Set(ways.map(([, to]) => to));
  // Those in a circle are reached from nowhere else.
  const starts = [...entries.filter(([name]) => !reached.has(name)), ...entries];
  for (const [start] of starts) {
    const line = free.reduce((lowest, y) => Math.max(lowest, y), 0);
    const open: [name: string, top: number][] = [[start, line]];
    for (let next = open.pop(); next; next = open.pop()) {
      const [name, top] = next;
      const element = elements.get(name);
      if (placed.has(name) || !element) continue;
      const rank = ranks.get(name) ?? 0;
      const y = Math.max(top, free[rank] ?? 0);
      placed.set(name, { x: rank * (NODE_WIDTH + RANK_GAP), y });
      free[rank] = y + sizeOf(element).height + GAP;
      open.push(...(after.get(name) ?? []).map((to): [string, number] => [to, y]).reverse());
    }
  }
  return placed;
}

/** What follows on each element. */
function afterEach(ways: readonly Way[]): Map<string, string[]> {
  const after = new Map<string, string[]>();
  for (const [from, to] of ways) {
    const known = after.get(from);
    if (known) known.push(to);
    else after.set(from, [to]);
  }
  return after;
}

/** Through how many others the longest way to each element leads. */
function ranksOf(names: readonly string[], ways: readonly Way[]): Map<string, number> {
  const ranks = new Map(names.map((name) => [name, 0]));
  const after = afterEach(ways);
  const waiting = new Map<string, number>();
  for (const [, to] of ways) waiting.set(to, (waiting.get(to) ?? 0) + 1);
  const open = names.filter((name) => !waiting.has(name));
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    for (const to of after.get(name) ?? []) {
      ranks.set(to, Math.max(ranks.get(to) ?? 0, (ranks.get(name) ?? 0) + 1));
      const left = (waiting.get(to) ?? 0) - 1;
      waiting.set(to, left);
      if (left === 0) open.push(to);
    }
  }
  return ranks;
}

/** Puts elements into rows, from a point on. */
function addRows(placed: Map<string, Point>, entries: readonly [string, Element][], from: Point): Map<string, Point> {
  let y = from.y;
  for (let start = 0; start < entries.length; start += IN_A_ROW) {
    const row = entries.slice(start, start + IN_A_ROW);
    row.forEach(([name], index) => placed.set(name, { x: from.x + index * (NODE_WIDTH + GAP), y }));
    y += Math.max(...row.map(([, element]) => sizeOf(element).height)) + GAP;
  }
  return placed;
}

/** Where each element stands: at its own place, or where the arrangement puts it; what came without a place to others that have one stands below them. */
export function positions(design: Design): Map<string, Point> {
  const entries = Object.entries(elementsOf(design));
  const placed = new Map<string, Point>();
  for (const [name, element] of entries) {
    const at = positionOf(element);
    if (at) placed.set(name, at);
  }
  if (placed.size === entries.length) return placed;
  if (placed.size === 0) return arrangedOnce(design);
  const left = Math.min(...[...placed.values()].map(({ x }) => x));
  const below = Math.max(...[...placed].map(([name, { y }]) => y + sizeOf(elementOf(design, name) as Element).height));
  return addRows(
    placed,
    entries.filter(([name]) => !placed.has(name)),
    { x: left, y: below + GAP },
  );
}

/** What all elements take up together. */
export function boundsOf(
  design: Design,
  places: ReadonlyMap<string, Point>,
): { x: number; y: number; width: number; height: number } {
  const all = [...places];
  const x = Math.min(...all.map(([, at]) => at.x));
  const y = Math.min(...all.map(([, at]) => at.y));
  const right = Math.max(...all.map(([, at]) => at.x + NODE_WIDTH));
  const bottom = Math.max(...all.map(([name, at]) => at.y + sizeOf(elementOf(design, name) as Element).height));
  return { x, y, width: right - x, height: bottom - y };
}

/** A free place beside an element, or below all of them. */
export function placeBeside(design: Design, name: string | undefined): Point {
  const all = positions(design);
  const beside = name === undefined ? undefined : all.get(name);
  if (!beside) {
    if (all.size === 0) return { x: 0, y: 0 };
    const left = Math.min(...[...all.values()].map(({ x }) => x));
    const below = Math.max(...[...all].map(([other, { y }]) => y + sizeOf(elementOf(design, other) as Element).height));
    return { x: left, y: below + GAP };
  }
  const at = { x: beside.x + NODE_WIDTH + RANK_GAP, y: beside.y };
  const isTaken = (): boolean =>
    [...all].some(([other, { x, y }]) => {
      const height = sizeOf(elementOf(design, other) as Element).height;
      return Math.abs(x - at.x) < NODE_WIDTH && at.y < y + height + GAP / 2 && at.y + height + GAP / 2 > y;
    });
  while (isTaken()) at.y += GAP;
  return at;
}
