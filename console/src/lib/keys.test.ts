import { describe, expect, it } from 'vitest';
import { expiry, keyExample } from './keys';

describe('a key', () => {
  const now = Date.parse('2026-03-10T12:00:00Z');

  it('has ended from its end on, and ends soon for two weeks before', () => {
    expect(expiry(null, now)).toBe('later');
    expect(expiry('2026-03-10T12:00:00Z', now)).toBe('over');
    expect(expiry('2026-03-10T12:00:01Z', now)).toBe('soon');
    expect(expiry('2026-03-24T12:00:00Z', now)).toBe('soon');
    expect(expiry('2026-03-24T12:00:01Z', now)).toBe('later');
  });

  it('is tried with one line', () => {
    expect(keyExample('https://example.org', 'k-1')).toBe(
      "curl -H 'authorization: k-1' 'https://example.org/v2/devices?limit=5'",
    );
  });
});
