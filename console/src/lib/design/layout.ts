import { graphlib, layout as arrange } from '@dagrejs/dagre';
import { shapeOf } from './elements';
import { type Design, type Element, type Point, allLinks, elementOf, elementsOf, positionOf } from './model';

/** As the nodes are drawn. */
export const NODE_WIDTH = 208;
const HEAD_HEIGHT = 46;
const ROW_HEIGHT = 24;
const ROWS_PADDING = 10;
const GAP = 36;
const RANK_GAP = 84;

/** How large an element is on the canvas. */
export function sizeOf(element: Element): { width: number; height: number } {
  const shape = shapeOf(element.type);
  const rows = Math.max(shape?.abilities.length ?? 0, shape?.triggers.length ?? 0, 1);
  return { width: NODE_WIDTH, height: HEAD_HEIGHT + rows * ROW_HEIGHT + ROWS_PADDING };
}

/** Puts the elements side by side from where events come in to where they end, without crossings where that can be. */
export function arranged(design: Design): Map<string, Point> {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: 'LR', nodesep: GAP, ranksep: RANK_GAP, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  const entries = Object.entries(elementsOf(design));
  // Elements are known to the graph by their number: a name may be anything.
  const numbers = new Map(entries.map(([name], index) => [name, String(index)]));
  for (const [name, element] of entries) graph.setNode(numbers.get(name) as string, { ...sizeOf(element) });
  for (const { element, link } of allLinks(design)) {
    const [from, to] = [numbers.get(element), numbers.get(link.element)];
    if (from !== undefined && to !== undefined && from !== to) graph.setEdge(from, to);
  }
  arrange(graph);
  return new Map(
    entries.map(([name, element]) => {
      const { x, y } = graph.node(numbers.get(name) as string) as Point;
      const { width, height } = sizeOf(element);
      return [name, { x: Math.round(x - width / 2), y: Math.round(y - height / 2) }];
    }),
  );
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
  if (placed.size === 0) return arranged(design);
  const left = Math.min(...[...placed.values()].map(({ x }) => x));
  const below = Math.max(...[...placed].map(([name, { y }]) => y + sizeOf(elementOf(design, name) as Element).height));
  let x = left;
  for (const [name] of entries) {
    if (placed.has(name)) continue;
    placed.set(name, { x, y: below + GAP });
    x += NODE_WIDTH + GAP;
  }
  return placed;
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
