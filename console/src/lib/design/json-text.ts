/** JSON as somebody types it: its value, where each part of it stands, and what the server would refuse of it. */

export type Path = readonly (string | number)[];

export interface JsonNode {
  from: number;
  to: number;
  value: unknown;
  members?: { key: string; from: number; to: number; node: JsonNode }[];
  items?: JsonNode[];
}

export type JsonFaultCode = 'unexpected' | 'end' | 'duplicate' | 'number' | 'text' | 'deep';
export interface JsonFault {
  code: JsonFaultCode;
  from: number;
  to: number;
  /** What stands there. */
  found: string;
}

export type ParsedJson =
  | { isGood: true; root: JsonNode; /** Numbers of which a browser does not keep every digit. */ cut: string[] }
  | { isGood: false; fault: JsonFault };

/** As the server has it. */
const DEPTH_MAX = 64;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const TEXT = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;

class Refusal extends Error {
  constructor(readonly fault: JsonFault) {
    super(fault.code);
  }
}

/** Reads a text. */
export function parseJson(text: string): ParsedJson {
  const reader = new Reader(text);
  try {
    const root = reader.whole();
    return { isGood: true, root, cut: reader.cut };
  } catch (error) {
    if (error instanceof Refusal) return { isGood: false, fault: error.fault };
    throw error;
  }
}

class Reader {
  #at = 0;
  readonly cut: string[] = [];
  constructor(private readonly text: string) {}

  whole(): JsonNode {
    const node = this.#value(0);
    this.#space();
    if (this.#at < this.text.length) this.#refuse('unexpected');
    return node;
  }

  #space(): void {
    while (' \t\n\r'.includes(this.text[this.#at] ?? 'x')) this.#at += 1;
  }

  #refuse(code: JsonFaultCode, from = this.#at, to = from + 1): never {
    const isEnd = code === 'unexpected' && from >= this.text.length;
    const found = this.text.slice(from, Math.min(to, from + 60));
    throw new Refusal({ code: isEnd ? 'end' : code, from: Math.min(from, this.text.length), to, found });
  }

  #take(sign: string): boolean {
    this.#space();
    if (this.text[this.#at] !== sign) return false;
    this.#at += 1;
    return true;
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const hit = pattern.exec(this.text);
    if (hit) this.#at = pattern.lastIndex;
    return hit?.[0] ?? null;
  }

  #value(depth: number): JsonNode {
    this.#space();
    const from = this.#at;
    if (depth > DEPTH_MAX) this.#refuse('deep');
    if (this.#take('{')) return this.#object(from, depth);
    if (this.#take('[')) return this.#list(from, depth);
    for (const [word, value] of [
      ['true', true],
      ['false', false],
      ['null', null],
    ] as const) {
      if (this.text.startsWith(word, from)) {
        this.#at += word.length;
        return { from, to: this.#at, value };
      }
    }
    if (this.text[from] === '"') return { from, value: this.#string(), to: this.#at };
    return this.#number(from);
  }

  #number(from: number): JsonNode {
    const source = this.#match(NUMBER);
    if (source === null) this.#refuse('unexpected', from);
    const value = Number(source);
    if (!Number.isFinite(value)) this.#refuse('number', from, this.#at);
    if (!keepsDigits(source, value)) this.cut.push(source);
    return { from, to: this.#at, value };
  }

  #string(): string {
    const from = this.#at;
    const source = this.#match(TEXT);
    if (source === null) {
      const line = this.text.indexOf('\n', from);
      this.#refuse('text', from, line < 0 ? this.text.length : line);
    }
    return JSON.parse(source) as string;
  }

  #object(from: number, depth: number): JsonNode {
    const members: NonNullable<JsonNode['members']> = [];
    const keys = new Set<string>();
    if (!this.#take('}')) {
      do {
        this.#space();
        const start = this.#at;
        if (this.text[start] !== '"') this.#refuse('unexpected', start);
        const key = this.#string();
        const end = this.#at;
        if (keys.has(key)) this.#refuse('duplicate', start, end);
        keys.add(key);
        if (!this.#take(':')) this.#refuse('unexpected');
        members.push({ key, from: start, to: end, node: this.#value(depth + 1) });
      } while (this.#take(','));
      if (!this.#take('}')) this.#refuse('unexpected');
    }
    const value = Object.fromEntries(members.map(({ key, node }) => [key, node.value]));
    return { from, to: this.#at, value, members };
  }

  #list(from: number, depth: number): JsonNode {
    const items: JsonNode[] = [];
    if (!this.#take(']')) {
      do items.push(this.#value(depth + 1));
      while (this.#take(','));
      if (!this.#take(']')) this.#refuse('unexpected');
    }
    return { from, to: this.#at, value: items.map(({ value }) => value), items };
  }
}

/** Digits and power of ten of a number, written in one way only. */
function canonical(source: string): string {
  const [, mantissa = '', power = '0'] = /^-?([\d.]+)(?:[eE]([+-]?\d+))?$/.exec(source) ?? [];
  const [whole = '', fraction = ''] = mantissa.split('.');
  const digits = (whole + fraction).replace(/^0+/, '');
  const short = digits.replace(/0+$/, '');
  return short === '' ? '0' : `${short}e${Number(power) - fraction.length + digits.length - short.length}`;
}

function keepsDigits(source: string, value: number): boolean {
  return canonical(source) === canonical(String(value));
}

/** The part of the text that a path leads to: the longest beginning of the path that is there. */
export function nodeAt(root: JsonNode, path: Path): { from: number; to: number } {
  let place: { from: number; to: number } = root;
  let node: JsonNode | undefined = root;
  for (const step of path) {
    const member: NonNullable<JsonNode['members']>[number] | undefined =
      typeof step === 'string' ? node?.members?.find(({ key }) => key === step) : undefined;
    const next: JsonNode | undefined = member?.node ?? (typeof step === 'number' ? node?.items?.[step] : undefined);
    if (!next) return place;
    node = next;
    // A branch is named by its key: to underline all of it would tell nobody where to look.
    place = member && (next.members || next.items) ? member : next;
  }
  return place;
}

/** Line and column of a place, from one. */
export function lineOf(text: string, at: number): { line: number; column: number } {
  const before = text.slice(0, at).split('\n');
  return { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}
