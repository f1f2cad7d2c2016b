import { untrack } from 'svelte';
import { type Answer, buckets } from '../../api/buckets';
import { type Resource, resource } from '../../lib/resource.svelte';
import { type Key, type Point, type Preset, SPANS_MS, type Span, merged, renewed, spanBefore } from '../../lib/series';

/** What a chart is to show. */
export interface Wanted {
  keys: readonly Key[];
  /** The range that ends now; `own` goes before it. */
  preset: Preset;
  own: Span | null;
  /** Buckets that its pixels can show. */
  points: number;
  timePath?: string | undefined;
  /** Whether the range of the same width before it is shown too. */
  isCompared?: boolean;
}

/** What a chart shows: the answer, and the range that it is of. */
export interface Drawn extends Answer {
  span: Span;
  wanted: Wanted;
  /** By key, what was in the range before, at its own time; null where nobody wants it. */
  before: Point[][] | null;
}

const TICK_MIN_MS = 2_000;
const TICK_MAX_MS = 60_000;

/** Reads what is wanted whenever that changes, and gives up what was asked before; the former picture stays meanwhile. */
export function chartData(wanted: () => Wanted | null): Resource<Drawn | null> {
  // Compared as text: what says the same is not asked again.
  const asked = $derived(JSON.stringify(wanted()));
  return resource(async (signal) => {
    const want = JSON.parse(asked) as Wanted | null;
    if (!want || want.keys.length === 0) return null;
    const span = spanNow(want);
    const { keys, points, timePath, isCompared } = want;
    const question = { keys, width: { points }, timePath };
    const [answer, earlier] = await Promise.all([
      buckets({ ...question, span }, signal),
      isCompared ? buckets({ ...question, span: spanBefore(span) }, signal) : null,
    ]);
    return { ...answer, span, wanted: want, before: earlier?.series ?? null };
  });
}

function spanNow({ own, preset }: Wanted): Span {
  const now = Date.now();
  return own ?? { from: now - SPANS_MS[preset], to: now };
}

/**
 * Keeps a chart at the present while `isLive` says so: the newest bucket and what came behind it are asked for, not the whole range.
 * Call it while a component is made.
 */
export function followed(data: Resource<Drawn | null>, isLive: () => boolean): void {
  $effect(() => {
    if (!isLive()) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const next = (): void => {
      timer = setTimeout(
        () => void tick(),
        untrack(() => tickAfter(data.value)),
      );
    };
    const tick = async (): Promise<void> => {
      const drawn = data.value;
      // A question that is under way, or that failed, is not overtaken.
      if (drawn && !drawn.wanted.own && !document.hidden && !data.loading && !data.failure) {
        const newer = await tail(drawn, stop.signal).catch(() => null);
        if (stop.signal.aborted) return;
        if (newer && data.value === drawn && !data.loading) data.set(newer);
      }
      next();
    };
    next();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  });
}

/** As often as a bucket is wide, within bounds. */
function tickAfter(drawn: Drawn | null | undefined): number {
  const width = drawn ? (drawn.span.to - drawn.span.from) / drawn.wanted.points : 0;
  return Math.min(Math.max(width, TICK_MIN_MS), TICK_MAX_MS);
}

async function tail(drawn: Drawn, signal: AbortSignal): Promise<Drawn> {
  const { wanted, failures } = drawn;
  const { keys, points, timePath } = wanted;
  const span = spanNow(wanted);
  const newest = Math.max(...drawn.series.map((series) => series.at(-1)?.from ?? 0));
  // Values whose time is told by their payload may come late, into any bucket; and where nothing was, there is no width yet.
  if (timePath || drawn.every === null || newest <= span.from) {
    const answer = await buckets({ keys, span, width: { points }, timePath, failures }, signal);
    return { ...answer, span, wanted, before: beforeOf(drawn, span) };
  }
  const from = newest;
  const width = { every: drawn.every };
  const answer = await buckets({ keys, span: { from, to: span.to }, width, failures }, signal);
  const series = drawn.series.map((old, index) =>
    answer.failures[index] ? old : renewed(old, answer.series[index] ?? [], from, span),
  );
  return { every: drawn.every, failures: answer.failures, series, span, wanted, before: beforeOf(drawn, span) };
}

/** The range before `span`, as far as it is known: what has left the range itself is in it now. */
function beforeOf({ before, series }: Drawn, span: Span): Point[][] | null {
  const { from } = spanBefore(span);
  const isThere = (point: Point): boolean => point.to > from && point.from < span.from;
  return before && before.map((points, index) => merged(points, series[index] ?? []).filter(isThere));
}
