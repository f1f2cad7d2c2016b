import { describe, expect, it } from 'vitest';
import { Failure } from '../api/failure';
import { type Act, BulkRun } from './bulk.svelte';

const numbers = (count: number) => Array.from({ length: count }, (_, index) => index);

/** A run whose waits pass at once, and are written down. */
function runOf(act: Act<number>, handful = 1) {
  const waits: number[] = [];
  const run = new BulkRun<number>(act, handful, async (milliseconds) => {
    waits.push(milliseconds);
  });
  return { run, waits };
}

describe('work on many things', () => {
  it('does each once, in handfuls, and tells what was refused', async () => {
    const seen: number[] = [];
    const { run } = runOf(async (items) => {
      seen.push(...items);
      return items.filter((item) => item % 10 === 0).map((item) => ({ item, failure: new Failure(400, 'no') }));
    }, 7);
    await run.run(numbers(50));
    expect(seen.sort((one, other) => one - other)).toEqual(numbers(50));
    expect([run.state, run.done, run.succeeded]).toEqual(['finished', 50, 45]);
    expect(run.refusals.map(({ item }) => item).sort((one, other) => one - other)).toEqual([0, 10, 20, 30, 40]);
  });

  it('does what was refused once more, and nothing else', async () => {
    let isOpen = false;
    const seen: number[] = [];
    const { run } = runOf(async ([item = 0]) => {
      seen.push(item);
      if (item === 3 && !isOpen) throw new Failure(403, 'no');
      return [];
    });
    await run.run(numbers(5));
    expect([run.done, run.succeeded]).toEqual([5, 4]);
    isOpen = true;
    seen.length = 0;
    await run.retry();
    expect([seen, run.done, run.succeeded, run.refusals]).toEqual([[3], 5, 5, []]);
  });

  it('waits as long as the server says, all together, and loses nothing', async () => {
    let refused = 0;
    const { run, waits } = runOf(async () => {
      if (refused < 3) {
        refused += 1;
        throw new Failure(429, 'slow', [], new Headers({ 'retry-after': '41' }));
      }
      return [];
    });
    await run.run(numbers(20));
    expect(waits).toEqual([41_000]);
    expect([run.state, run.succeeded, run.waitsUntil]).toEqual(['finished', 20, null]);
  });

  it('tries again what may pass, and then tells it', async () => {
    const { run, waits } = runOf(async ([item]) => {
      if (item === 1) throw new Failure(503, 'busy');
      return [];
    });
    await run.run(numbers(3));
    expect(waits).toEqual([1_000, 2_000, 4_000]);
    expect(run.refusals.map(({ failure }) => failure.status)).toEqual([503]);
  });

  it('stops without a connection, and goes on where it was', async () => {
    let isThere = false;
    const seen: number[] = [];
    const { run } = runOf(async ([item = 0]) => {
      if (!isThere && item === 2) throw new Failure(0, 'no network');
      seen.push(item);
      return [];
    });
    await run.run(numbers(3));
    expect([run.state, run.failure?.status, seen]).toEqual(['stopped', 0, [0, 1]]);
    isThere = true;
    await run.resume();
    expect([run.state, run.done, seen]).toEqual(['finished', 3, [0, 1, 2]]);
  });
});
