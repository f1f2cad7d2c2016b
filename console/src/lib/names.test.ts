import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Failure } from '../api/failure';
import { namesOf } from './names.svelte';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Names that come of these answers, one after the other. */
function answered(...answers: (string | Failure)[]) {
  const read = vi.fn(() => {
    const answer = answers.shift() ?? 'none';
    return answer instanceof Failure ? Promise.reject(answer) : Promise.resolve(answer);
  });
  return { read, name: namesOf(read) };
}

describe('a name', () => {
  it('is asked for once', async () => {
    const { read, name } = answered('Ada');
    expect([name('1'), name('1')]).toEqual([undefined, undefined]);
    await vi.advanceTimersByTimeAsync(0);
    expect([name('1'), name('1')]).toEqual(['Ada', 'Ada']);
    expect(read).toHaveBeenCalledTimes(1);
  });

  it('of what is gone or out of reach is empty', async () => {
    const { name } = answered(new Failure(404, 'no such user'));
    name('1');
    await vi.advanceTimersByTimeAsync(60_000);
    expect(name('1')).toBe('');
  });

  it('that could not be had for a while comes by itself later', async () => {
    const busy = new Failure(503, 'busy', [], new Headers({ 'retry-after': '3' }));
    const { read, name } = answered(new Failure(0, 'no answer'), busy, 'Ada');
    name('1');
    await vi.advanceTimersByTimeAsync(10_000);
    expect([read.mock.calls.length, name('1')]).toEqual([2, undefined]);
    await vi.advanceTimersByTimeAsync(3_000);
    expect(name('1')).toBe('Ada');
  });
});
