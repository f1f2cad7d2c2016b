import { buckets } from '../../api/buckets';
import { type Point, type Span, SPANS_MS } from '../../lib/series';

const POINTS = 48;
/** What is older is asked again when it is looked at. */
const FRESH_MS = 60_000;
/** Fields that one question takes. */
const AT_ONCE = 10;

export interface Sparks {
  span: Span;
  byPath: ReadonlyMap<string, Point[]>;
}

/**
 * The courses of an element's values over the last day, or since the device is there: one question for ten of them, asked once they
 * come into view. Call it while a component is made.
 */
export function sparks(
  of: () => { deviceId: string; elementName: string; paths: readonly string[]; since: number },
  isInView: () => boolean,
): { readonly now: Sparks | null } {
  let now = $state.raw<Sparks | null>(null);
  let asked = '';
  let askedAt = 0;
  const stop = new AbortController();
  $effect(() => () => stop.abort());
  $effect(() => {
    const { deviceId, elementName, paths, since } = of();
    const wanted = JSON.stringify([deviceId, elementName, paths]);
    if (!isInView() || paths.length === 0) return;
    if (wanted === asked && Date.now() - askedAt < FRESH_MS) return;
    [asked, askedAt] = [wanted, Date.now()];
    const to = askedAt;
    const span = { from: Math.max(to - SPANS_MS.day, Math.min(since, to - 1_000)), to };
    const keys = paths.slice(0, AT_ONCE).map((path) => ({ deviceId, elementName, path }));
    // They are an addition to the values, which say themselves when they cannot be read.
    buckets({ keys, span, width: { points: POINTS } }, stop.signal).then(
      ({ series }) => {
        now = { span, byPath: new Map(keys.map(({ path }, index) => [path, series[index] ?? []])) };
      },
      () => (asked = ''),
    );
  });
  return {
    get now() {
      return now;
    },
  };
}
