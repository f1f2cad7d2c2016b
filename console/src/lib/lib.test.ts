import { describe, expect, it } from 'vitest';
import { readFileSync, readdirSync } from 'node:fs';
import type { LastValues } from '../api/client';
import { isobars, pressure } from './contours';
import { cloudEventElements, deviceEventElements } from './design';
import { numberFrom } from './exact';
import { ago, bytes, clock, duration, number } from './format';
import { readJson } from './json';
import { reaches } from './roles';
import { readable } from './links';
import { LANGUAGES, snippet } from './snippets';
import { fieldOf } from './series';
import { numericKeys, timeKeys } from './stored';
import { labelAt, labelPaths, labelWord, leaves, tableOf, valueAt } from './table';

describe('an address', () => {
  it('can be read in each of its parts', () => {
    for (const good of ['/', '/devices/a%20b/charts', '/devices/%C3%A4']) expect(readable(good)).toBe(good);
    expect(readable('/devices/%E0%A4%A')).toBe('/devices/%25E0%25A4%25A');
    expect(readable('/devices/50%/charts')).toBe('/devices/50%25/charts');
  });
});

describe('languages', () => {
  const folder = new URL('../../messages/', import.meta.url);
  const files = readdirSync(new URL('en/', folder));
  const read = (language: string, file: string) =>
    JSON.parse(readFileSync(new URL(`${language}/${file}`, folder), 'utf8')) as Record<string, unknown>;
  const places = (text: unknown) => [...JSON.stringify(text).matchAll(/\{\w+\}/g)].map(([name]) => name).sort();

  it('have the same files, and the console reads them all', () => {
    expect(readdirSync(new URL('de/', folder))).toEqual(files);
    const settings = readFileSync(new URL('../project.inlang/settings.json', folder), 'utf8');
    for (const file of files) expect(settings).toContain(`./messages/{locale}/${file}`);
  });

  it.each(files)('say the same, each in full: %s', (file) => {
    const [english, german] = [read('en', file), read('de', file)];
    expect(Object.keys(german).sort()).toEqual(Object.keys(english).sort());
    for (const [key, text] of Object.entries(english)) expect(places(german[key]), key).toEqual(places(text));
  });

  it('name no message twice', () => {
    const names = files.flatMap((file) => Object.keys(read('en', file))).filter((name) => name !== '$schema');
    expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
  });
});

describe('numbers and times', () => {
  const now = Date.parse('2026-03-10T12:00:00Z');

  it('look as at home', () => {
    expect(number(1234.5, 'de')).toBe('1.234,5');
    expect(number(0.1 + 0.2, 'en')).toBe('0.3');
    expect(number(1e-300, 'en')).toBe('1E-300');
    expect(number(-2.5e-7, 'de')).toBe('-2,5E-7');
    expect(number(0, 'en')).toBe('0');
    expect(number(9007199254740991, 'en')).toBe('9,007,199,254,740,991');
    expect(number(numberFrom('9007199254740993') ?? 0, 'en')).toBe('9007199254740993');
    expect(number(1e300, 'en')).toBe('1E300');
    expect(bytes(0, 'en')).toBe('0 bytes');
    expect(bytes(2_500_000, 'en')).toBe('2.5 MB');
    expect(clock('2026-03-10T12:00:00.042Z', 'en')).toMatch(/00:00\.042$/);
  });

  it('of some length are told in two units', () => {
    expect(duration(0, 'en')).toBe('0 seconds');
    expect(duration(59_999, 'en')).toBe('59 seconds');
    expect(duration(3 * 86_400_000 + 4 * 3_600_000 + 59_000, 'en')).toBe('3 days, 4 hours');
    expect(duration(86_400_000 + 60_000, 'en')).toBe('1 day');
  });

  it('of long ago are dates, those of just now are words', () => {
    expect(ago('2026-03-10T11:59:50Z', now, 'en')).toBe('10 seconds ago');
    expect(ago('2026-03-10T11:00:00Z', now, 'en')).toBe('1 hour ago');
    expect(ago('2026-03-09T11:00:00Z', now, 'en')).toBe('yesterday');
    expect(ago('2025-01-02T12:00:00Z', now, 'en')).toBe('Jan 2, 2025');
    // Of a server whose clock is ahead.
    expect(ago('2026-03-10T12:00:20Z', now, 'en')).toBe('now');
  });
});

describe('roles', () => {
  it('reach those beneath', () => {
    expect(reaches('manager', 'technician')).toBe(true);
    expect(reaches('technician', 'manager')).toBe(false);
    expect(reaches(undefined, 'basicUser')).toBe(false);
  });
});

describe('snippets', () => {
  it('carry token, address and element, whatever these are', () => {
    const target = {
      origin: 'https://example.org',
      token: 'a"b\\c',
      elementName: "it's ü/&",
      payload: { "it's": true },
    };
    for (const language of LANGUAGES) {
      const program = snippet(language, target);
      expect(program, language).toContain('https://example.org/v2/events/device?elementName=it');
      expect(program, language).toContain('%C3%BC%2F%26');
      expect(program, language).toMatch(language === 'curl' ? 'a"b\\c' : 'a\\"b\\\\c');
    }
    expect(snippet('curl', target)).toContain(`-d '{"it'\\''s": true}'`);
    expect(snippet('Python', target)).toContain(`json.dumps({"it's": True})`);
  });
});

describe('stored values', () => {
  it('become a table', () => {
    const value = (id: string, payload: unknown) => ({ id, createdAt: id, deviceId: 'd', elementName: 'e', payload });
    const table = tableOf([
      value('1', { temp: 4, door: { open: true } }),
      value('2', { temp: 5, note: 'x' }),
      value('3', 7),
      value('4', { temp: [1, 2] }),
    ]);
    expect(table.columns).toEqual([
      { path: 'temp', isNumeric: false },
      { path: 'door.open', isNumeric: false },
      { path: 'note', isNumeric: false },
      { path: '', isNumeric: true },
    ]);
    expect(table.rows[1]?.cells).toEqual([5, undefined, 'x', undefined]);
    expect(table.rows[2]?.cells[3]).toBe(7);
  });

  it('are taken apart to a depth', () => {
    expect(leaves({ a: { b: { c: { d: 1 } } } })).toEqual([['a.b.c', { d: 1 }]]);
    expect(leaves({})).toEqual([['', {}]]);
    expect(leaves(null)).toEqual([['', null]]);
  });

  it('have one path each, whatever names they have', () => {
    const odd = { 'a.b': 1, a: { b: 2, '': 3 }, '': 4, '"a.b"': 5, '"': { '\\': 6, 'x.y': 7 } };
    const found = leaves(odd);
    expect(new Set(found.map(([path]) => path)).size).toBe(7);
    for (const [path, value] of found) expect(valueAt(odd, path), path).toBe(value);
    expect(
      tableOf([{ id: '1', createdAt: '1', deviceId: 'd', elementName: 'e', payload: odd }]).rows[0]?.cells,
    ).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  it('are found at paths that others wrote without quotes', () => {
    expect(valueAt({ 'a.b': 1 }, 'a.b')).toBe(1);
    expect(valueAt({ 'a.b': 1, a: { b: 2 } }, 'a.b')).toBe(2);
    expect(valueAt({ '"x': 1 }, '"x')).toBe(1);
    expect(valueAt({}, 'toString')).toBeUndefined();
    expect(valueAt({ a: null }, 'a')).toBeNull();
  });

  it('are asked for by paths in quotes where names have other signs', () => {
    const last = {
      elementName: 'e',
      values: { temp: 1, 'key.with.dot': 2, 'a,b': 3, at: 4, 'was.at': 5, door: { open: 6 } },
    };
    const fields = numericKeys([last as unknown as LastValues]).map(({ path }) => fieldOf(path));
    expect(fields).toEqual([
      'payload.temp',
      'payload["key.with.dot"]',
      'payload["a,b"]',
      'payload.at',
      'payload["was.at"]',
      'payload.door.open',
    ]);
    expect(timeKeys([last as unknown as LastValues]).map(fieldOf)).toEqual(['payload.at', 'payload["was.at"]']);
    const odd = { '': { ']': 1 }, 'say "x"': 2, 'a&b#%+': 3, ü: 4, 'a b': 5 };
    expect(leaves(odd).map(([path]) => fieldOf(path))).toEqual([
      'payload[""]["]"]',
      'payload["say \\"x\\""]',
      'payload["a\\u0026b\\u0023\\u0025\\u002b"]',
      'payload.ü',
      'payload["a b"]',
    ]);
    expect(fieldOf('')).toBe('payload');
  });

  it('of labels have paths as the interface takes them, each once', () => {
    const labels = { 'site.name': 'x', site: { name: 'y', 'no. 1': 'z' }, floor: 3 };
    expect(labelPaths(labels)).toEqual(['["site.name"]', 'site.name', 'site["no. 1"]', 'floor']);
    expect(labelPaths({})).toEqual([]);
    expect(['["site.name"]', 'site["no. 1"]', 'floor'].map((path) => labelAt(labels, path))).toEqual(['x', 'z', 3]);
    expect(['["site.name"]', 'site["no. 1"]', 'floor'].map(labelWord)).toEqual(['site.name', 'site["no. 1"]', 'floor']);
  });
});

describe('a design', () => {
  it('tells what devices may send and hear', () => {
    const elements = {
      reading: { type: 'deviceEvent' },
      lora: { type: 'deviceEvent', properties: { integration: 'lora' } },
      cool: { type: 'cloudEvent' },
    };
    const specification = { planes: { cloud: { elements } } };
    expect(deviceEventElements(specification)).toEqual(['reading']);
    expect(cloudEventElements(specification)).toEqual(['cool']);
    for (const odd of [null, {}, { planes: { cloud: null } }, { planes: { cloud: { elements: 3 } } }]) {
      expect(deviceEventElements(odd)).toEqual([]);
    }
  });
});

describe('typed JSON', () => {
  it('is a payload or says why not', () => {
    expect(readJson('{"a":1}')).toEqual({ isGood: true, value: { a: 1 } });
    expect(readJson('null')).toMatchObject({ isGood: false });
    expect(readJson('{')).toMatchObject({ isGood: false });
  });
});

describe('isobars', () => {
  it('lie where the pressure is', () => {
    const centres = [{ x: 0.5, y: 0.5, strength: 20, spread: 0.2 }];
    const lines = isobars(centres, 200, 100, 2, 4);
    expect(lines.length).toBeGreaterThan(4);
    for (const { hectopascal, path } of lines) {
      const points = [...path.matchAll(/[ML]([\d.]+) ([\d.]+)/g)];
      for (const [, x, y] of points) {
        expect(Math.abs(pressure(centres, Number(x) / 200, Number(y) / 100) - hectopascal)).toBeLessThan(0.5);
      }
    }
  });
});
