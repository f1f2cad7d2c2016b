import { meaningsFrom } from '../meaning';

/** What a device may send first: the keys that its design reads, so that the first event goes through all of it. */

type Members = Record<string, unknown>;

interface Link {
  element: string;
  arguments: Members;
}

/** What is sent where a design reads nothing. */
const USUAL = { temperature: 21.5 };
const FIGURE = 21.5;
const KEYS_MAX = 20;
const STEPS_MAX = 1_000;
/** What passes on what comes. */
const PASSING = new Set(['condition', 'changed', 'throttle', 'storage']);

const PATH = /(!\s*)?\bpayload((?:\.[A-Za-z_]\w*(?!\w*\s*\()|\[(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\])+)/g;
const STEP = /\.(\w+)|\[(["'])((?:\\.|[^\\])*?)\2\]/g;
const COMPARED = /^\s*==\s*(?:"([^"\\]*)"|'([^'\\]*)'|(true|false)\b)/;
const IN_BRACES = /\{\{(.*?)\}\}/gs;

/** An example of what the design reads of events of an element. */
export function samplePayload(specification: unknown, elementName: string): Members {
  const elements = membersOf(membersOf(membersOf(membersOf(specification).planes).cloud).elements);
  const found = new Map<string, { names: string[]; value: unknown }>();
  const add = (names: string[], value: unknown): void => {
    const name = JSON.stringify(names);
    const known = found.get(name);
    if (names.length > 0 && (known ? known.value === FIGURE : found.size < KEYS_MAX)) found.set(name, { names, value });
  };
  const seen = new Set<string>();
  const open = [elementName];
  for (let steps = 0; steps < STEPS_MAX; steps += 1) {
    const at = open.pop();
    if (at === undefined) break;
    if (seen.has(at)) continue;
    seen.add(at);
    for (const link of linksOf(membersOf(elements[at]))) {
      const target = membersOf(elements[link.element]);
      const properties = membersOf(target.properties);
      for (const text of Object.values(link.arguments)) readText(text, add);
      readText(properties.expression, add);
      for (const [, inside] of String(properties.message ?? '').matchAll(IN_BRACES)) readText(inside, add);
      // What is stored otherwise, or made on the way, is not what the device sends.
      if (link.arguments.value !== undefined) continue;
      if (target.type === 'storage') readFields(properties.fields, add);
      if (PASSING.has(String(target.type))) open.push(link.element);
    }
  }
  const payload: Members = {};
  for (const { names, value } of found.values()) put(payload, names, value);
  return Object.keys(payload).length > 0 ? payload : USUAL;
}

type Add = (names: string[], value: unknown) => void;

function readText(text: unknown, add: Add): void {
  if (typeof text !== 'string') return;
  for (const match of text.matchAll(PATH)) {
    const [whole, negated, path = ''] = match;
    const names = [...path.matchAll(STEP)].map(([, plain, , quoted]) => plain ?? quoted ?? '');
    const [, inDouble, inSingle, truth] = COMPARED.exec(text.slice(match.index + whole.length)) ?? [];
    if (negated !== undefined) add(names, true);
    else if (truth !== undefined) add(names, truth === 'true');
    else add(names, inDouble ?? inSingle ?? FIGURE);
  }
}

/** What a storage element says of its keys tells what stands there. */
function readFields(fields: unknown, add: Add): void {
  for (const [name, { words, low, high, minimum, maximum, decimals }] of meaningsFrom(fields)) {
    const names = JSON.parse(name) as string[];
    const [from, to] = [low ?? minimum, high ?? maximum];
    const middle = from !== undefined && to !== undefined ? (from + to) / 2 : (from ?? to ?? FIGURE);
    const [word] = words.keys();
    add(names, word === undefined ? Number(middle.toFixed(decimals ?? 1)) : valueOf(word));
  }
}

function valueOf(word: string): unknown {
  if (word === 'true' || word === 'false') return word === 'true';
  return /^-?\d+(?:\.\d+)?$/.test(word) ? Number(word) : word;
}

function put(into: Members, names: readonly string[], value: unknown): void {
  const [name = '', ...rest] = names;
  const there = Object.hasOwn(into, name) ? into[name] : undefined;
  if (rest.length === 0) {
    if (there === undefined) define(into, name, value);
    return;
  }
  const inner = typeof there === 'object' && there !== null ? (there as Members) : {};
  put(inner, rest, value);
  define(into, name, inner);
}

/** A name may be one that objects have already. */
function define(into: Members, name: string, value: unknown): void {
  Object.defineProperty(into, name, { value, enumerable: true, configurable: true, writable: true });
}

function membersOf(value: unknown): Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Members) : {};
}

function linksOf(element: Members): Link[] {
  return Object.values(membersOf(element.triggers)).flatMap((links) =>
    (Array.isArray(links) ? (links as unknown[]) : []).flatMap((link) => {
      const { element: target, arguments: given } = membersOf(link);
      return typeof target === 'string' ? [{ element: target, arguments: membersOf(given) }] : [];
    }),
  );
}
