import { describe, expect, it } from 'vitest';
import {
  type Point,
  SPAN_MIN_MS,
  aligned,
  apart,
  bounded,
  csvOf,
  gapOf,
  keysFrom,
  keysText,
  merged,
  moved,
  pinched,
  pointAt,
  renewed,
  rowsOf,
  shifted,
  spanBefore,
  spanFrom,
  zoomed,
} from './series';

const T = Date.parse('2026-03-10T12:00:00Z');
const MINUTE = 60_000;
const point = (minute: number, mean = minute): Point => ({
  from: T + minute * MINUTE,
  to: T + (minute + 1) * MINUTE,
  count: 2,
  mean,
  min: mean - 1,
  max: mean + 1,
});
const span = { from: T, to: T + 60 * MINUTE };

describe('keys in an address', () => {
  it('come back as they were, whatever they hold', () => {
    const keys = [
      { elementName: 'climate', path: 'door.open' },
      { elementName: 'a/b, ü', path: 'x/y,%2C' },
      { elementName: 'plain', path: '' },
    ];
    expect(keysFrom(keysText(keys))).toEqual(keys);
    expect(keysText(keys.slice(0, 1))).toBe('climate/door.open');
    expect(keysFrom('nothing,%E0%A4/x,/x,a/b/c,good/one')).toEqual([{ elementName: 'good', path: 'one' }]);
    expect(keysFrom('')).toEqual([]);
  });
});

describe('ranges', () => {
  it('are two moments in order, or none', () => {
    expect(spanFrom('2026-03-10T12:00:00Z', '2026-03-10T13:00:00Z')).toEqual(span);
    expect(spanFrom('2026-03-10T13:00:00Z', '2026-03-10T12:00:00Z')).toBeNull();
    expect(spanFrom('yesterday', '2026-03-10T12:00:00Z')).toBeNull();
    expect(spanFrom(null, null)).toBeNull();
  });

  it('zoom around a moment that stays in its place, and no nearer than buckets can tell', () => {
    const near = zoomed(span, 0.5, T + 15 * MINUTE);
    expect(near).toEqual({ from: T + 7.5 * MINUTE, to: T + 37.5 * MINUTE });
    expect(zoomed(near, 2, T + 15 * MINUTE)).toEqual(span);
    const least = zoomed({ from: T, to: T + SPAN_MIN_MS }, 0.1);
    expect(least.to - least.from).toBe(SPAN_MIN_MS);
    expect(bounded({ from: 0, to: 60_000 }).from).toBe(Date.UTC(2000, 0, 1));
  });

  it('move without changing their width', () => {
    expect(moved(span, 0.5)).toEqual({ from: T + 30 * MINUTE, to: T + 90 * MINUTE });
    expect(moved(moved(span, -0.5), 0.5)).toEqual(span);
  });
});

describe('two fingers', () => {
  it('keep what they took hold of, nearer, farther and moved', () => {
    expect(pinched(span, [0.25, 0.75], [0, 1])).toEqual({ from: T + 15 * MINUTE, to: T + 45 * MINUTE });
    expect(pinched(span, [0, 1], [0.25, 0.75])).toEqual({ from: T - 30 * MINUTE, to: T + 90 * MINUTE });
    expect(pinched(span, [0.2, 0.4], [0.7, 0.9])).toEqual({ from: T - 30 * MINUTE, to: T + 30 * MINUTE });
    // Whichever finger came first.
    expect(pinched(span, [0.75, 0.25], [0, 1])).toEqual(pinched(span, [0.25, 0.75], [0, 1]));
  });

  it('one above the other only move', () => {
    expect(pinched(span, [0.5, 0.51], [0.25, 0.26])).toEqual({ from: T + 15 * MINUTE, to: T + 75 * MINUTE });
  });
});

describe('series', () => {
  it('have a gap where nothing came for three of their steps', () => {
    const points = [0, 1, 2, 3, 10, 11].map((minute) => point(minute));
    expect(gapOf(points)).toBe(3 * MINUTE);
    const { times, columns } = aligned([points], span);
    expect(times).toHaveLength(7);
    expect(columns[0]).toEqual([0, 1, 2, 3, null, 10, 11]);
    expect(columns[1]?.[4]).toBeNull();
    // One that reports every ten minutes has none, however narrow the buckets are.
    const slow = [0, 10, 20, 30].map((minute) => point(minute));
    expect(aligned([slow], span).columns[0]).toEqual([0, 10, 20, 30]);
  });

  it('lie over each other, and say nothing where the other alone has a point', () => {
    const { times, columns } = aligned(
      [
        [point(0), point(2)],
        [point(1), point(2)],
      ],
      span,
    );
    expect(times).toEqual([0.5, 1.5, 2.5].map((minute) => T + minute * MINUTE));
    expect(columns[0]).toEqual([0, undefined, 2]);
    expect(columns[3]).toEqual([undefined, 1, 2]);
    expect(columns[4]).toEqual([undefined, 2, 3]);
    expect(columns[5]).toEqual([undefined, 0, 1]);
  });

  it('are drawn within the range, where a bucket reaches over its end', () => {
    const wide = { ...point(0), from: T - 60 * MINUTE, to: T + 10 * MINUTE };
    expect(aligned([[wide]], span).times).toEqual([T]);
  });

  it('tell the nearest point of a moment, but nothing within a gap', () => {
    const points = [0, 1, 2, 3, 20, 21].map((minute) => point(minute));
    const at = (minute: number) => pointAt(points, T + minute * MINUTE, span)?.mean;
    expect([at(0), at(1.6), at(3.4), at(21.5), at(12)]).toEqual([0, 1, 3, 21, undefined]);
    expect(pointAt([], T, span)).toBeUndefined();
    expect(pointAt([point(5)], T, span)?.mean).toBe(5);
  });

  it('are renewed at their end, and lose what has left the range', () => {
    const later = { from: T + 1 * MINUTE, to: T + 61 * MINUTE };
    const now = renewed([point(0), point(1), point(2, 5)], [point(2, 6), point(3)], T + 2 * MINUTE, later);
    expect(now.map(({ mean }) => mean)).toEqual([1, 6, 3]);
  });

  it('of the range before stand where they would be in this one', () => {
    expect(spanBefore({ from: 100, to: 160 })).toEqual({ from: 40, to: 100 });
    const later = shifted([point(0)], MINUTE)[0];
    expect(later).toEqual({ ...point(0), from: T + MINUTE, to: T + 2 * MINUTE });
    expect(merged([point(0), point(1)], [point(1, 9), point(2)]).map(({ mean }) => mean)).toEqual([0, 1, 2]);
    expect(merged([], [point(2)])).toEqual([point(2)]);
  });

  it('have two scales where their sizes are far apart, the first of them at the left', () => {
    const sized = (...sizes: number[]) =>
      sizes.map((size) => (size === 0 ? [] : [{ ...point(0), min: -size, max: 1 }]));
    expect(apart(sized(20, 1_000))).toEqual([false, true]);
    expect(apart(sized(1_000, 20, 900))).toEqual([false, true, false]);
    expect(apart(sized(20, 100, 390))).toEqual([false, false, false]);
    expect(apart(sized(20, 0, 10_000))).toEqual([false, false, true]);
    expect(apart([])).toEqual([]);
    expect(apart(sized(5))).toEqual([false]);
  });

  it('become rows, newest first, and a file, oldest first', () => {
    const series = [[point(0), point(1)], [point(1, 7)]];
    expect(rowsOf(series).map(({ points }) => points.map((one) => one?.mean))).toEqual([[1, 7], [0]]);
    expect(csvOf(['temp', '=SUM(A1)'], series).split('\r\n')).toEqual([
      "from,to,temp mean,temp min,temp max,temp count,'=SUM(A1) mean,'=SUM(A1) min,'=SUM(A1) max,'=SUM(A1) count",
      '2026-03-10T12:00:00.000Z,2026-03-10T12:01:00.000Z,0,-1,1,2,,,,',
      '2026-03-10T12:01:00.000Z,2026-03-10T12:02:00.000Z,1,0,2,2,7,6,8,2',
      '',
    ]);
    expect(csvOf(['a "b", c'], [[point(0)]])).toContain('"a ""b"", c mean"');
  });
});
