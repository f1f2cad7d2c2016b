import { describe, expect, it } from 'vitest';
import { arrived, isUnfetched, want, wantedPlace } from './wanted.svelte';

describe('a page that is to be opened', () => {
  it('is remembered with what stands in its address, until one was opened', () => {
    want('/users', { q: 'Ada Keller', page: 2 });
    expect(wantedPlace()).toBe('/users?q=Ada+Keller&page=2');
    want('/devices', {});
    expect(wantedPlace()).toBe('/devices');
    arrived();
    expect(wantedPlace()).toBe('');
  });

  it('and cannot be fetched is told from other faults', () => {
    expect(isUnfetched(new TypeError('Failed to fetch dynamically imported module: /assets/Users.js'))).toBe(true);
    expect(isUnfetched(new TypeError('Failed to fetch'))).toBe(false);
  });
});
