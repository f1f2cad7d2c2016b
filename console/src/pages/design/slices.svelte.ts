import type { Point } from '../../lib/design/model';
import { afterPaint } from '../../lib/painted';

/** So many elements are added to the canvas before the browser may paint and listen. */
export const SLICE = 24;

/** Draws a design of any size slice by slice, from where it begins: what somebody looks at first is there at once, and nothing waits for the rest. */
export class Slices {
  #drawn = new Set<string>();
  #isWaiting = $state(false);
  #round = $state(0);
  /** The round whose slice is drawn, and how many elements wait for the next ones. */
  #served = -1;
  #left = 0;

  /** The elements that are to be drawn now: those that are drawn, and once in each round a slice more. */
  due(places: ReadonlyMap<string, Point>): ReadonlySet<string> {
    const round = this.#round;
    const drawn = new Set([...this.#drawn].filter((name) => places.has(name)));
    if (round !== this.#served || this.#left === 0) {
      const waiting = [...places].filter(([name]) => !drawn.has(name));
      for (const [name] of fromTheStart(waiting).slice(0, SLICE)) drawn.add(name);
    }
    this.#served = round;
    this.#drawn = drawn;
    this.#left = places.size - drawn.size;
    this.#isWaiting = this.#left > 0;
    return drawn;
  }

  /** Whether the first slice has been painted. */
  get hasBegun(): boolean {
    return this.#round > 0;
  }

  /** Has the next slice drawn, as long as one waits: the second once the first is seen, each other with the next painting. */
  goOn(): (() => void) | undefined {
    const next = (): void => void (this.#round += 1);
    if (!this.hasBegun) return afterPaint(next);
    if (!this.#isWaiting) return undefined;
    const frame = requestAnimationFrame(next);
    return () => cancelAnimationFrame(frame);
  }
}

/** What stands next to the upper left corner comes first. */
export function fromTheStart(entries: readonly [string, Point][]): [string, Point][] {
  const left = Math.min(...entries.map(([, { x }]) => x));
  const top = Math.min(...entries.map(([, { y }]) => y));
  const distance = ({ x, y }: Point): number => Math.max(x - left, y - top);
  return [...entries].sort(([, one], [, other]) => distance(one) - distance(other));
}
