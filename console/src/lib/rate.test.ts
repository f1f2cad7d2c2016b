import { describe, expect, it } from 'vitest';
import { bars, counted } from './rate';

describe('the rate of events', () => {
  it('is what was counted, and says whether that is all of the time', () => {
    expect(counted([1, 0, 4], 60)).toEqual({ seconds: [1, 0, 4], total: 5, isFull: false });
    expect(counted([1, 2], 2).isFull).toBe(true);
  });

  it('is drawn with the newest second at the right', () => {
    expect(bars(counted([1, 0, 4], 60), 5)).toEqual([0, 0, 0.25, 0, 1]);
    expect(bars(counted([0, 0], 60), 2)).toEqual([0, 0]);
  });
});
