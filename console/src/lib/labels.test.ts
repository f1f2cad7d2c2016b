import { describe, expect, it } from 'vitest';
import { readExact, writeExact } from './exact';
import { labelText, labelValue, offeredValues, patchOf } from './labels';

describe('a label', () => {
  it.each(['Nord', '2', '1.0', '9007199254740993', 'true', '"2"', '007', 'null', '{"a":1.0}', '[1,2]', '-', '"'])(
    'is shown as it was typed: %s',
    (typed) => expect(labelText(labelValue(typed))).toBe(typed),
  );

  it('is no text without quotes where it is a number', () => {
    expect([labelValue(' 7 '), labelValue('"7"'), labelValue('7 m')]).toEqual([7, '7', '7 m']);
  });
});

describe('a change of labels', () => {
  it('sends what is new and null for what is gone', () => {
    const [before, after] = [{ a: 1, b: { c: 1, d: 2 } }, { b: { c: 1, e: 3 } }];
    expect(patchOf(before, after)).toEqual({ a: null, b: { d: null, e: 3 } });
    expect(patchOf('Nord', { a: 1 })).toEqual({ a: 1 });
  });

  it('keeps numbers as they were written', () => {
    expect(writeExact(patchOf(readExact('{"a":1}'), readExact('{"a":1.0}')))).toBe('{"a":1.0}');
  });
});

describe('values on offer', () => {
  it('are the most frequent first, and no objects', () => {
    expect(offeredValues(['Nord', 'Süd', 'Nord', 3, {}, null, [1]], 3)).toEqual(['Nord', '3', 'Süd']);
  });
});
