import { type Design, type Element, elementsOf, equal, without } from './model';

export interface Line {
  kind: 'same' | 'added' | 'removed';
  text: string;
}

/** Beyond so many differences the rest is told as a whole: nobody reads that line by line. */
const DIFFERENCES_MAX = 1_500;

/** What makes one text of another, line by line (Myers 1986). */
export function lineDiff(before: string, after: string): Line[] {
  const [left, right] = [before.split('\n'), after.split('\n')];
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start += 1;
  let end = 0;
  const isSameAtEnd = (): boolean => left[left.length - 1 - end] === right[right.length - 1 - end];
  while (end < left.length - start && end < right.length - start && isSameAtEnd()) end += 1;
  const same = (text: string): Line => ({ kind: 'same', text });
  return [
    ...left.slice(0, start).map(same),
    ...middle(left.slice(start, left.length - end), right.slice(start, right.length - end)),
    ...left.slice(left.length - end).map(same),
  ];
}

function middle(left: readonly string[], right: readonly string[]): Line[] {
  const traces = furthest(left, right);
  if (!traces) {
    return [
      ...left.map((text): Line => ({ kind: 'removed', text })),
      ...right.map((text): Line => ({ kind: 'added', text })),
    ];
  }
  const lines: Line[] = [];
  let [x, y] = [left.length, right.length];
  for (let depth = traces.length - 1; depth >= 0; depth -= 1) {
    const reach = traces[depth] as Map<number, number>;
    const diagonal = x - y;
    const at = (k: number): number => reach.get(k) ?? -1;
    const isDown = diagonal === -depth || (diagonal !== depth && at(diagonal - 1) < at(diagonal + 1));
    const previous = isDown ? diagonal + 1 : diagonal - 1;
    const fromX = depth === 0 ? 0 : at(previous);
    const fromY = depth === 0 ? 0 : fromX - previous;
    while (x > fromX && y > fromY && x > 0 && y > 0 && left[x - 1] === right[y - 1]) {
      lines.push({ kind: 'same', text: left[x - 1] as string });
      x -= 1;
      y -= 1;
    }
    if (depth === 0) break;
    if (isDown) lines.push({ kind: 'added', text: right[y - 1] as string });
    else lines.push({ kind: 'removed', text: left[x - 1] as string });
    [x, y] = [fromX, fromY];
  }
  return lines.reverse();
}

/** For each number of differences, how far the texts are then the same, by diagonal; null beyond the bound. */
function furthest(left: readonly string[], right: readonly string[]): Map<number, number>[] | null {
  const most = Math.min(left.length + right.length, DIFFERENCES_MAX);
  const traces: Map<number, number>[] = [];
  let reach = new Map<number, number>([[1, 0]]);
  for (let depth = 0; depth <= most; depth += 1) {
    traces.push(reach);
    const next = new Map(reach);
    for (let k = -depth; k <= depth; k += 2) {
      const isDown = k === -depth || (k !== depth && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
      let x = isDown ? (reach.get(k + 1) ?? 0) : (reach.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < left.length && y < right.length && left[x] === right[y]) {
        x += 1;
        y += 1;
      }
      next.set(k, x);
      if (x >= left.length && y >= right.length) return traces;
    }
    reach = next;
  }
  return null;
}

export interface Change {
  /** The element; null for the design itself. */
  element: string | null;
  kind: 'added' | 'removed' | 'changed' | 'moved';
  /** What of it: `properties.expression`, `triggers.true`, `name`. */
  what: string[];
}

/** What two designs differ in, element by element. */
export function changesOf(before: Design, after: Design): Change[] {
  const changes: Change[] = [];
  const own = partsThatDiffer(designMembers(before), designMembers(after));
  if (own.length > 0) changes.push({ element: null, kind: 'changed', what: own });
  const [left, right] = [elementsOf(before), elementsOf(after)];
  for (const name of new Set([...Object.keys(left), ...Object.keys(right)])) {
    const [was, is] = [
      Object.hasOwn(left, name) ? left[name] : undefined,
      Object.hasOwn(right, name) ? right[name] : undefined,
    ];
    if (!was || !is) changes.push({ element: name, kind: was ? 'removed' : 'added', what: [] });
    else if (!equal(was, is)) {
      const what = elementDifferences(was, is);
      changes.push({ element: name, kind: what.length === 1 && what[0] === 'position' ? 'moved' : 'changed', what });
    }
  }
  return changes;
}

/** The design without its elements: what else of it can differ. */
export function designMembers({ planes, name, description, createVersion, meta }: Design): Record<string, unknown> {
  const { cloud, ...others } = planes;
  const rest = without((cloud ?? {}) as Record<string, unknown>, 'elements');
  return { name, description, createVersion, meta, planes: others, cloud: rest };
}

function partsThatDiffer(before: Record<string, unknown>, after: Record<string, unknown>): string[] {
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...keys].filter((key) => !equal(before[key], after[key]));
}

function elementDifferences(before: Element, after: Element): string[] {
  return partsThatDiffer({ ...before }, { ...after }).flatMap((part) => {
    if (part !== 'properties' && part !== 'triggers') return [part];
    return partsThatDiffer(before[part] ?? {}, after[part] ?? {}).map((member) => `${part}.${member}`);
  });
}
