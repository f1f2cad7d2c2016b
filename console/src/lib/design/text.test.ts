import { describe, expect, it } from 'vitest';
import { celFault, mapMessage, messageParts, renameMember, tokens } from './cel';
import { celCompletions } from './complete';
import { changesOf, lineDiff } from './diff';
import { begin, commit, seal, undo } from './history';
import { lineOf, nodeAt, parseJson } from './json-text';
import { incomingKeys, keysOf } from './keys';
import { lineMarkOf, markOf } from './marks';
import * as model from './model';
import { emptyDesign } from './model';
import { dropDraft, keepDraft, readDraft } from './draft';
import { FRIDGE, chance } from './fixture';
import { fieldOf } from '../series';
import { namesIn } from '../table';

describe('steps of undo', () => {
  it('join what is typed in a row, and no more', () => {
    let history = begin('a');
    history = commit(history, 'ab', 'word');
    history = commit(history, 'abc', 'word');
    history = commit(seal(history), 'abcd', 'word');
    history = commit(history, 'x', 'other');
    expect(history.past).toEqual(['a', 'abc', 'abcd']);
    expect(undo(undo(undo(undo(history)))).now).toBe('a');
    expect(commit(undo(history), 'y').future).toEqual([]);
  });
});

describe('expressions', () => {
  it('are taken apart without losing a character', () => {
    const texts = ['payload[\'a b\'] + "x\\"y" // end', 'r"\\d" == 1.5e3', "'open", '#', '{{1}}', "'''a\nb'''"];
    for (const text of texts)
      expect(
        tokens(text)
          .map((token) => token.text)
          .join(''),
      ).toBe(text);
  });

  it('that are plainly wrong are told where', () => {
    const fault = (text: string) => celFault(text)?.code ?? null;
    expect(fault('payload.temp > (1 + 2)')).toBeNull();
    expect(fault('  ')).toBe('empty');
    expect(fault("'open")).toBe('unclosed-text');
    expect(celFault('(a[1)')).toEqual({ code: 'unopened', from: 4, to: 5 });
    expect(fault('f(x')).toBe('unclosed');
    expect(fault('a # b')).toBe('character');
  });

  it('have the fault where the server says it is, or at what it names', () => {
    const marked = (text: string, message: string): string => {
      const { from, to } = markOf(text, message);
      return text.slice(from, to);
    };
    expect(marked('1 +\n* 2', 'mismatched input (line 2, column 1)')).toBe('*');
    expect(marked('payload.temp >', 'no viable alternative (line 1, column 15)')).toBe('>');
    expect(marked("'warm' + warm", "unknown variable 'warm'")).toBe('warm');
    expect(marked('f(x', 'A bracket is not closed.')).toBe('(');
    expect(marked('1 + 2', 'is refused')).toBe('1 + 2');
    const code = 'a\nbc\nd';
    const { from, to } = lineMarkOf(code, 'SyntaxError: expecting (line 2)');
    expect(code.slice(from, to)).toBe('bc');
  });

  it('change names of members, and nothing that only looks like one', () => {
    const rename = (text: string) => renameMember(text, 'settings', 'limit', 'top');
    expect(rename('settings.limit > payload.settings.limit')).toBe('settings.top > payload.settings.limit');
    expect(rename("settings['limit'] + settings.limits")).toBe('settings.top + settings.limits');
    expect(rename("'settings.limit'")).toBe("'settings.limit'");
    expect(renameMember('last . a.b', 'last', 'a', "it's")).toBe("last ['it\\'s'].b");
    expect(renameMember('has(settings.in)', 'settings', 'in', 'x')).toBe('has(settings.x)');
  });

  it('in messages end at the braces that are theirs', () => {
    const text = "a {{ {'x': {'y': 1}} }} b {{ c }} {{ open";
    const inside = messageParts(text).filter(({ isExpression }) => isExpression);
    expect(inside.map(({ from, to }) => text.slice(from, to))).toEqual([" {'x': {'y': 1}} ", ' c ']);
    expect(mapMessage('x {{x}} x', (expression) => expression.replace('x', 'y'))).toBe('x {{y}} x');
  });

  it('are completed with what devices really send', () => {
    const known = {
      payload: [['temp'], ['door', 'open'], ['content-type']],
      settings: ['limit'],
      stored: new Map([['log', [['hum']]]]),
    };
    const labels = (before: string, isAsked = false) =>
      celCompletions(before, known, isAsked)?.options.map(({ label }) => label);
    expect(labels('payload.')).toEqual(expect.arrayContaining(['temp', 'door', 'content-type']));
    expect(labels('1 + payload.door.')?.[0]).toBe('open');
    expect(
      celCompletions('payload.co', known, false)?.options.find(({ label }) => label === 'content-type')?.apply,
    ).toBe("['content-type']");
    expect(labels('settings.')?.[0]).toBe('limit');
    expect(labels('last.log.')?.[0]).toBe('hum');
    expect(labels('')).toBeUndefined();
    expect(labels('', true)).toContain('payload');
    expect(labels("'payload.")).toBeUndefined();
  });
});

describe('keys', () => {
  it('are those of the events that come to an element', () => {
    const events = new Map([
      ['reading', keysOf({ temp: 1, deep: { a: { b: 1 } }, list: [{ no: 1 }] })],
      ['other', keysOf({ strange: 1 })],
    ]);
    const known = { events, stored: new Map() };
    expect(incomingKeys(FRIDGE, 'warm', known)).toEqual(['deep', 'deep.a', 'deep.a.b', 'list', 'temp']);
    expect(incomingKeys(FRIDGE, 'tell', known)).toContain('strange');
  });

  it('whose names have points are told apart from paths, and completed in brackets', () => {
    const paths = [...keysOf({ 'a.b': 1, a: { b: 2, 'c"d': { 'e.f': 3 } } })];
    expect(paths.map(fieldOf)).toEqual([
      'payload["a.b"]',
      'payload.a',
      'payload.a.b',
      'payload.a["c\\"d"]',
      'payload.a["c\\"d"]["e.f"]',
    ]);
    const names = paths.map(namesIn);
    const known = { payload: names, settings: [], stored: new Map([['log', names]]) };
    const applied = (before: string) =>
      celCompletions(before, known, false)
        ?.options.filter(({ kind }) => kind === 'property')
        .map(({ label, apply }) => apply ?? label);
    expect(applied('payload.')).toEqual(["['a.b']", 'a']);
    expect(applied('last.log.a.')).toEqual(['b', "['c\"d']"]);
  });
});

describe('JSON that is typed', () => {
  it('has the value that the browser reads, and every part has its place', () => {
    const text = model.writeDesign(FRIDGE);
    const parsed = parseJson(text);
    if (!parsed.isGood) throw new Error('it is good');
    expect(parsed.root.value).toEqual(JSON.parse(text));
    const place = nodeAt(parsed.root, ['planes', 'cloud', 'elements', 'warm', 'properties', 'expression']);
    expect(JSON.parse(text.slice(place.from, place.to))).toContain('payload.temp');
    const beyond = nodeAt(parsed.root, ['planes', 'cloud', 'elements', 'warm', 'nothing', 'there']);
    expect(text.slice(beyond.from, beyond.to)).toBe('"warm"');
  });

  it.each([
    ['{"a": 1,}', 'unexpected', 8],
    ['{"a": 1', 'end', 7],
    ['{"a": 1, "a": 2}', 'duplicate', 9],
    ['[1e400]', 'number', 1],
    ['["open]', 'text', 1],
    ['{"a": 1} x', 'unexpected', 9],
    ['[01]', 'unexpected', 2],
    ['["\u0001"]', 'text', 1],
    ['['.repeat(70), 'deep', 65],
    ['', 'end', 0],
  ])('%s is refused where it is wrong', (text, code, from) => {
    const parsed = parseJson(text);
    expect(parsed.isGood ? null : [parsed.fault.code, parsed.fault.from]).toEqual([code, from]);
  });

  it('tells of numbers that lose digits, and of no others', () => {
    const cut = (text: string) => {
      const parsed = parseJson(text);
      return parsed.isGood ? parsed.cut : null;
    };
    expect(cut('[1, 1.0, -0.5, 1e3, 1E+2, 0.1, 0, 0.0, 100, 123456789.125]')).toEqual([]);
    expect(cut('[9007199254740993, 0.1234567890123456789]')).toEqual(['9007199254740993', '0.1234567890123456789']);
  });

  it('is found again by line and column', () => {
    expect(lineOf('a\nbc\nd', 4)).toEqual({ line: 2, column: 3 });
  });
});

describe('differences', () => {
  it('of texts make the one of the other, in as few lines as can be', () => {
    const next = chance(7);
    for (let round = 0; round < 60; round += 1) {
      const line = (): string => 'abcde'[next(5)] ?? '';
      const [before, after] = [Array.from({ length: next(14) }, line), Array.from({ length: next(14) }, line)];
      const lines = lineDiff(before.join('\n'), after.join('\n'));
      const side = (kind: 'removed' | 'added') =>
        lines.filter((one) => one.kind === 'same' || one.kind === kind).map(({ text }) => text);
      expect(side('removed').join('\n')).toBe(before.join('\n'));
      expect(side('added').join('\n')).toBe(after.join('\n'));
    }
    expect(lineDiff('a\nb\nc', 'a\nc').filter(({ kind }) => kind !== 'same')).toEqual([{ kind: 'removed', text: 'b' }]);
  });

  it('of designs are told by element, and what of it', () => {
    let next = model.setProperty(FRIDGE, 'warm', 'expression', 'true');
    next = model.removeElements(next, ['tell']);
    next = model.setPositions(next, new Map([['values', { x: 1, y: 2 }]]));
    next = { ...model.addElement(next, 'http', { x: 0, y: 0 }).design, description: 'x' };
    expect(changesOf(FRIDGE, next)).toEqual([
      { element: null, kind: 'changed', what: ['description'] },
      { element: 'values', kind: 'moved', what: ['position'] },
      { element: 'warm', kind: 'changed', what: ['properties.expression'] },
      { element: 'tell', kind: 'removed', what: [] },
      { element: 'call', kind: 'added', what: [] },
    ]);
    expect(changesOf(FRIDGE, FRIDGE)).toEqual([]);
  });
});

describe('work that is not saved', () => {
  /** Storage with so much room. */
  function storage(room: number): Storage {
    const kept = new Map<string, string>();
    return {
      getItem: (key: string) => kept.get(key) ?? null,
      setItem: (key: string, value: string) => {
        if (value.length > room) throw new Error('full');
        kept.set(key, value);
      },
      removeItem: (key: string) => void kept.delete(key),
    } as unknown as Storage;
  }
  const draft = {
    design: FRIDGE,
    base: emptyDesign('x'),
    etag: '"1"',
    note: 'why',
    text: '{',
    at: '2026-01-01T00:00:00Z',
  };

  it('is kept for its user and project', () => {
    const room = storage(100_000);
    expect(keepDraft('ana', 'p', draft, room)).toBe(true);
    expect(readDraft('ana', 'p', room)).toEqual(draft);
    expect(readDraft('bob', 'p', room)).toBeNull();
    dropDraft('ana', 'p', room);
    expect(readDraft('ana', 'p', room)).toBeNull();
  });

  it('is kept without what it was made of where there is little room, and says so where there is none', () => {
    const whole = JSON.stringify(draft).length;
    const little = storage(whole - 20);
    expect(keepDraft('ana', 'p', draft, little)).toBe(true);
    expect(readDraft('ana', 'p', little)).toEqual({ ...draft, base: null });
    expect(keepDraft('ana', 'p', draft, storage(10))).toBe(false);
  });
});
