import { describe, expect, it } from 'vitest';
import { readExact } from './exact';
import { moment, shown } from './format';

describe('a value', () => {
  it('is shown as people read it', () => {
    const time = '2026-11-25T10:00:00.123Z';
    expect([null, undefined, true, false].map((value) => shown(value))).toEqual(['–', '–', 'Yes', 'No']);
    expect(shown(time, 'en')).toBe(moment(time, 'en'));
    expect(shown('2026-11-25T1')).toBe('2026-11-25T1');
    expect(shown(readExact('9007199254740993'))).toBe('9007199254740993');
  });
});
