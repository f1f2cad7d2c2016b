import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { overwriteGetLocale } from '../../paraglide/runtime';
import { designFaultWords } from './faultWords';
import { runFaultWords } from './runFaultWords';

const COMPILER = join(import.meta.dirname, '../../../../crates/design/src');
const ROOMS = ['plan/compile', 'value/setting', 'expression/parse', 'expression/compile', 'expression/functions'];
const CODE = ['code/mod', 'code/engine', 'code/script'];
/** What is no message: JavaScript, the beginning of another's message that is taken away, and what a run says rather than a check. */
const NO_MESSAGE =
  /use strict|function \(|typeof |case \{|throw null|Syntax error|RangeError: |is not run for a while|^the bytes are /;
/** Around what the engine of JavaScript says itself. */
const OF_CODE = ['{} (line {line})', 'does not run: {message}'];

/** What is no test of a file of the compiler, without its comments and single signs. */
function source(file: string): string {
  const [text = ''] = readFileSync(join(COMPILER, file), 'utf8').split(/#\[cfg\(test\)\]\s*mod /);
  return text.replace(/^\s*\/\/.*$/gm, '').replace(/'(?:"|\\'|\\\\)'/g, '');
}

/** What would be left of a message without words here. What is quoted is code, names and examples. */
const ENGLISH = /\b(must|has|have|is|are|of|the|at|most|unknown|takes?|no|not|cannot|be|than|by|to|or)\b/;

/** The messages of a run, as they stand in the sources: what is made a `Problem`. */
function problems(): string[] {
  const files = readdirSync(COMPILER, { recursive: true, encoding: 'utf8' });
  const found = files
    .filter((file) => file.endsWith('.rs') && !/^tests\/|tests\.rs$|official\.rs$/.test(file))
    .flatMap((file) => [...source(file).matchAll(/Problem::new\(\s*(?:format!\(\s*)?"((?:[^"\\]|\\.)*)"/g)])
    .map(([, literal = '']) => literal);
  return [...new Set(found)];
}

/** The messages of the compiler, as they stand in its sources. What stands in braces is filled in by it. */
function messages(): string[] {
  const elements = readdirSync(join(COMPILER, 'elements')).map((file) => `elements/${file.replace(/\.rs$/, '')}`);
  const found = [...ROOMS, ...CODE, ...elements].flatMap((room) => {
    const failing = /(?:Problem::new|Failure::\w+)\(\s*(?:format!\(\s*)?"(?:[^"\\]|\\.)*"/g;
    return [
      ...source(`${room}.rs`)
        .replace(failing, '')
        .matchAll(/"((?:[^"\\]|\\.)*)"/g),
    ].map(([, literal = '']) => literal);
  });
  const sentences = found.filter((literal) => /[a-z]{2,} [a-z({'0-9]/i.test(literal) && !NO_MESSAGE.test(literal));
  return [...new Set(sentences)].filter((sentence) => !OF_CODE.includes(sentence));
}

/** As the server sends it. */
function filled(message: string): string {
  return message
    .replace('{whose}', 'event')
    .replace(/(?<=the value |the header '\{name\}' )\{\w+\}/, 'must be a number')
    .replace('{message}', "mismatched input '+' expecting {'[', '('}")
    .replace(/\{\}(?=, column|\))/g, '3')
    .replace(/\{[\w.]*\}/g, '7')
    .replaceAll('\\\\', '\\');
}

beforeEach(() => vi.stubGlobal('navigator', { languages: ['de', 'en'] }));
afterEach(() => {
  overwriteGetLocale(() => 'en');
  vi.unstubAllGlobals();
});

describe('what the server finds wrong with a design', () => {
  it('has words of the console for all that its compiler says', () => {
    const all = messages();
    expect(all.length).toBeGreaterThan(70);
    expect(all).toContain('unknown element');
    overwriteGetLocale(() => 'de');
    for (const message of all) {
      const words = designFaultWords({ field: 'planes.cloud.elements.a', message: filled(message) });
      expect(words, message).not.toMatch(/Server nimmt|läuft nicht/);
      expect(words.replace(/has\([^)]*\)/g, ''), message).not.toMatch(ENGLISH);
    }
  });

  it('has words for all that fails in a run, and hands on what code throws', () => {
    const all = problems();
    expect(all.length).toBeGreaterThan(50);
    expect(all).toContain('division by zero');
    overwriteGetLocale(() => 'de');
    for (const message of all) expect(runFaultWords(filled(message)), message).not.toMatch(ENGLISH);
    expect(runFaultWords('the value must be at most 40')).toBe('Der Wert: Höchstens 40.');
    expect(runFaultWords('ReferenceError: x is not defined (line 2)')).toBe(
      'ReferenceError: x is not defined (line 2)',
    );
  });

  it('names what it is about', () => {
    overwriteGetLocale(() => 'de');
    const said = (message: string, field = 'planes.cloud.elements.a') => designFaultWords({ field, message });
    expect(said("unknown variable 'paylod'")).toBe('Es gibt keine Variable paylod.');
    expect(said("closes a cycle back to 'in'")).toBe(
      'Die Verbindung führt zurück zu in: Werte liefen endlos im Kreis.',
    );
    expect(said('must be a whole number from 1 to 10000')).toBe('Eine ganze Zahl von 1 bis 10.000.');
    expect(said('must be one of http, lora')).toBe('Eines von http, lora.');
    expect(said("mismatched input '<EOF>' expecting {'[', '('} (line 1, column 14)")).toBe(
      'Der Ausdruck endet zu früh, in Zeile 1, Spalte 14.',
    );
    expect(said('reserved identifier: for (line 1, column 0)')).toBe(
      'for ist ein reserviertes Wort (Zeile 1, Spalte 0).',
    );
  });

  it('is the language’s own where code fails, and marked as the server’s where nothing else is known', () => {
    const code = 'planes.cloud.elements.a.properties.code';
    expect(designFaultWords({ field: code, message: 'does not run: SyntaxError: unexpected token (line 3)' })).toBe(
      'The code does not run: SyntaxError: unexpected token (line 3)',
    );
    expect(designFaultWords({ field: 'planes', message: 'is odd' })).toBe('The server does not accept this: “is odd”.');
  });
});
