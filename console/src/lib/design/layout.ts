import { graphlib, layout as arrange } from '@dagrejs/dagre';
import { shapeOf } from './elements';
import { type Design, type Element, type Point, allLinks, elementOf, elementsOf, positionOf } from './model';

/** As the nodes are drawn. */
export const NODE_WIDTH = 208;
export const NODE_HEAD = 46;
export const ROW_HEIGHT = 24;
const ROWS_PADDING = 10;
const GAP = 36;
const RANK_GAP = 150;
/** Elements that nothing leads to or from stand in rows of so many. */
const IN_A_ROW = 4;

/** How large an element is on the canvas. */
export function sizeOf(element: Element): { width: number; height: number } {
  const shape = shapeOf(element.type);
  const rows = Math.max(shape?.abilities.length ?? 0, shape?.triggers.length ?? 0, 1);
  return { width: NODE_WIDTH, height: NODE_HEAD + rows * ROW_HEIGHT + ROWS_PADDING };
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

/** Puts the elements side by side from where events come in to where they end, without crossings where that can be; those without links below. */
export function arranged(design: Design): Map<string, Point> {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: 'LR', nodesep: GAP, ranksep: RANK_GAP, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  const entries = Object.entries(elementsOf(design));
  // Elements are known to the graph by their number: a name may be anything.
  const numbers = new Map(entries.map(([name], index) => [name, String(index)]));
  const links = allLinks(design).filter(({ element, link }) => numbers.has(link.element) && link.element !== element);
  const linked = new Set(links.flatMap(({ element, link }) => [element, link.element]));
  for (const [name, element] of entries) {
    if (linked.has(name)) graph.setNode(numbers.get(name) as string, { ...sizeOf(element) });
  }
  for (const { element, link } of links)
    graph.setEdge(numbers.get(element) as string, numbers.get(link.element) as string);
  arrange(graph);
  const placed = new Map<string, Point>();
  let below = 0;
  for (const [name, element] of entries) {
    if (!linked.has(name)) continue;
    const { x, y } = graph.node(numbers.get(name) as string) as Point;
    const { width, height } = sizeOf(element);
    placed.set(name, { x: Math.round(x - width / 2), y: Math.round(y - height / 2) });
    below = Math.max(below, y + height / 2 + GAP);
  }
  return addRows(
    placed,
    entries.filter(([name]) => !linked.has(name)),
    { x: 0, y: Math.round(below) },
  );
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
