import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { overwriteGetLocale } from '../paraglide/runtime';
import { rangeOf, scaleOf } from '../parts/chart/lines';
import { numberFrom } from './exact';
import {
  NO_MEANING,
  beyond,
  beyondWords,
  glance,
  headed,
  headingAt,
  inFull,
  inTable,
  meaningAt,
  meaningsFrom,
  namesOfField,
  titleAt,
  toldIn,
  unitOf,
} from './meaning';

beforeEach(() => vi.stubGlobal('navigator', { languages: ['en', 'de'] }));
afterEach(() => {
  overwriteGetLocale(() => 'en');
  vi.unstubAllGlobals();
});

const said = meaningsFrom({
  'payload.temp': { title: { en: 'Temperature', de: 'Temperatur' }, unit: '°C', decimals: 1, low: 2, high: 8 },
  'payload["front door"].open': { title: 'Door', words: { true: 'open', false: 'closed' } },
  payload: { unit: 'V' },
  nonsense: { unit: 'x' },
  'payload.bad': { title: 5, unit: 7, decimals: 'x', words: { true: 1 } },
});
const temp = meaningAt(said, 'temp');
const door = meaningAt(said, 'front door.open');

describe('the meaning of keys', () => {
  it('is found by the paths of tables, however they are quoted', () => {
    expect(titleAt(said, 'temp')).toBe('Temperature');
    expect(titleAt(said, '"temp"')).toBe('Temperature');
    expect(titleAt(said, 'front door.open')).toBe('Door');
    expect(titleAt(said, '')).toBe('Value');
    expect([headingAt(said, 'temp'), headingAt(said, 'other')]).toEqual(['Temperature (°C)', 'other']);
    overwriteGetLocale(() => 'de');
    expect(
      meaningsFrom({ 'payload.t': { title: { en: 'Temperature', de: 'Temperatur' } } })
        .values()
        .next().value?.title,
    ).toBe('Temperatur');
  });

  it('leaves out what is not as it should be', () => {
    expect(meaningAt(said, 'bad')).toEqual(NO_MEANING);
    for (const odd of [null, 5, [], 'x', { 'payload.a': null }]) expect(meaningsFrom(odd).size).toBeLessThan(2);
  });

  it('reads paths as the interface does', () => {
    expect(namesOfField('payload')).toEqual([]);
    expect(namesOfField('payload.a b["c.d"].e')).toEqual(['a b', 'c.d', 'e']);
    for (const bad of ['temp', 'payload.', 'payload..a', 'payload["a', 'payload["\\x"]', 'payloads']) {
      expect(namesOfField(bad), bad).toBeNull();
    }
  });
});

describe('a value', () => {
  it('is told with the decimals and words that are said', () => {
    expect(glance(4.25, temp, 'en')).toBe('4.3');
    expect(glance(4, temp, 'de')).toBe('4,0');
    expect([glance(true, door, 'en'), glance(false, door, 'en')]).toEqual(['open', 'closed']);
    expect(glance(1, meaningsFrom({ payload: { words: { '1': 'on' } } }).get('[]') ?? NO_MEANING, 'en')).toBe('on');
    expect([unitOf(4, temp), unitOf('x', temp), unitOf(true, door)]).toEqual(['°C', '', '']);
  });

  it('is told in few digits where nothing is said, and never raw', () => {
    expect(glance(20.123456789, NO_MEANING, 'en')).toBe('20.1235');
    expect(glance(0.000123456, NO_MEANING, 'en')).toBe('0.0001235');
    expect(glance(0.00000012, NO_MEANING, 'en')).toBe('1.2E-7');
    expect(glance(numberFrom('9007199254740993'), NO_MEANING, 'en')).toBe('9007199254740993');
    expect(glance(numberFrom('9007199254740993.123456'), NO_MEANING, 'en')).toBe('9,007,199,254,740,993.1235');
    expect(glance(numberFrom('1.0'), NO_MEANING, 'en')).toBe('1.0');
    expect([glance(true, NO_MEANING), glance(null, NO_MEANING), glance(undefined, NO_MEANING)]).toEqual([
      'Yes',
      '–',
      '–',
    ]);
  });

  it('is told in full when asked, and in tables', () => {
    expect(inFull(20.123456789, temp, 'en')).toBe('20.123456789 °C');
    expect(inFull(true, door, 'en')).toBe('open (Yes)');
    expect(inTable(20.123456, NO_MEANING, 'en')).toBe('20.123456');
    expect(inTable(20.123456, temp, 'en')).toBe('20.1');
  });

  it('is marked beyond its limits, not at them', () => {
    expect([1.9, 2, 8, 8.1].map((value) => beyond(value, temp))).toEqual(['low', null, null, 'high']);
    expect([beyond('9', temp), beyond(9, NO_MEANING)]).toEqual([null, null]);
    expect(beyondWords(9, temp)).toBe('above 8 °C');
    expect(beyondWords(1, temp)).toBe('below 2 °C');
  });

  it('of a chart has its decimals and words', () => {
    expect(toldIn({ mean: 4.25, text: '4.2500' }, temp, 'en')).toBe('4.3');
    expect(toldIn({ mean: 4.25, text: '4.2500' }, NO_MEANING, 'en')).toBe('4.2500');
  });
});

describe('an export', () => {
  it('has titles and units for its columns', () => {
    expect(headed('createdAt,id,payload.temp,"payload[""front door""].open",payload.x', said)).toBe(
      'createdAt,id,Temperature (°C),Door,payload.x',
    );
    const odd = meaningsFrom({ 'payload.a': { title: '=1+1,"x"' } });
    expect(headed('payload.a', odd)).toBe(`"'=1+1,""x"""`);
  });
});

describe('the scale of a plot', () => {
  const line = (meaning: Partial<typeof NO_MEANING>, unit = '') => ({
    label: 'x',
    unit,
    meaning: { ...NO_MEANING, ...meaning },
  });

  it('has the unit, the range and the limits of its lines', () => {
    const lines = [line({ minimum: 0, maximum: 10, high: 8 }, '°C'), line({ minimum: -5 }, '°C')];
    expect(scaleOf(lines, [0])).toEqual({
      unit: '°C',
      minimum: 0,
      maximum: 10,
      limits: [{ place: 0, side: 'high', at: 8 }],
    });
    expect(scaleOf(lines, [0, 1])).toMatchObject({ unit: '°C', minimum: -5, maximum: undefined });
    expect(scaleOf([lines[0] ?? line({}), line({}, '%')], [0, 1])).toMatchObject({ unit: '', minimum: undefined });
  });

  it('holds limits, the range that is said, and what lies beyond', () => {
    const scale = { unit: '', minimum: 0, maximum: 10, limits: [] };
    expect(rangeOf(3, 5, scale)).toEqual([0, 10]);
    expect(rangeOf(-2, 5, scale)[0]).toBeLessThan(-2);
    const limited = { unit: '', limits: [{ place: 0, side: 'high' as const, at: 8 }] };
    expect(rangeOf(3, 5, limited)[1]).toBeGreaterThan(8);
    expect(rangeOf(null, null, { unit: '', limits: [] })).toEqual([0, 1]);
  });
});
