import { describe, expect, it } from 'vitest';
import { boardFile, boardFileName, boardIn } from './boardFile';
import { writeExact } from './exact';

describe('a dashboard as a file', () => {
  it('comes back as it was, to the digit', () => {
    const text = '{"name":"Cold","options":{"a":1.50},"configuration":{"widgets":[12345678901234567890]}}';
    const read = boardIn(text);
    expect(read && writeExact(read)).toBe(text);
    expect(read && boardFile({ name: null, options: {}, ...read })).toBe(`${text}\n`);
  });

  it('is none without a configuration', () => {
    for (const text of ['', '5', '[]', 'null', '{}', '{"configuration":[]}', '{"configuration":']) {
      expect(boardIn(text)).toBeNull();
    }
    expect(boardIn('{"configuration":{},"name":5,"options":[]}')).toEqual({
      name: null,
      options: {},
      configuration: {},
    });
  });

  it('has a name that file systems take', () => {
    expect(boardFileName('Cold: rooms / 1')).toBe('Cold rooms 1.json');
    expect(boardFileName(' ')).toBe('dashboard.json');
  });
});
