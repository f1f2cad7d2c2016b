/** JSON whose numbers stay as they were written: a browser makes …992 of …993, and 1 of 1.0. */

/** A number whose text a double does not give back. It calculates as a double, and is shown and sent as its text. */
export class ExactNumber extends Number {
  // Private, so that nobody who looks for members of objects finds it.
  readonly #text: string;

  constructor(text: string) {
    super(text);
    this.#text = text;
  }

  /** As it was written. */
  get text(): string {
    return this.#text;
  }

  override toString(): string {
    return this.#text;
  }

  [Symbol.toPrimitive](hint: string): number | string {
    return hint === 'number' ? this.valueOf() : this.#text;
  }
}

/** A number as JSON has it. */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
/** What may be one, where no text stands. */
const NUMBERS = /-?\d[\d.eE+-]*/g;
/** Stands before such a number in a text of JSON. Nobody else can know it, so no text that is sent is taken for a number. */
const MARK = `${[...crypto.getRandomValues(new Uint32Array(4))].join('-')}:`;
const MARKED = new RegExp(`"${MARK}([^"]*)"`, 'g');

/** The number that a text writes; undefined where it writes none. */
export function numberFrom(text: string): number | ExactNumber | undefined {
  if (!NUMBER.test(text)) return undefined;
  const double = Number(text);
  return String(double) === text ? double : new ExactNumber(text);
}

/** Whether something is a number, however it is kept. */
export function isNumber(value: unknown): value is number | ExactNumber {
  return typeof value === 'number' || value instanceof ExactNumber;
}

/** What to calculate with; undefined where it is no number. */
export function doubleOf(value: unknown): number | undefined {
  return isNumber(value) ? Number(value) : undefined;
}

/** Reads JSON. @throws SyntaxError */
export function readExact(text: string): unknown {
  const marked = marking(text);
  if (marked === text) return JSON.parse(text);
  return JSON.parse(marked, (_, value: unknown) =>
    typeof value === 'string' && value.startsWith(MARK) ? new ExactNumber(value.slice(MARK.length)) : value,
  );
}

/** Members of answers that hold JSON of devices and people. All others are the interface's own: their numbers are doubles. */
const FREE = new Set([
  ...['payload', 'values', 'value', 'defaultValue', 'meta', 'received', 'first'],
  ...['domainPublicConfiguration', 'domainHTTPFileOverrides', 'options', 'preferences'],
]);
/** Members that the console calculates with throughout: designs, which have a reader of their own, and dashboards. */
const CALCULATED = new Set(['planes', 'configuration']);

/** Reads an answer of the interface. @throws SyntaxError */
export function readAnswer(text: string): unknown {
  const answer = readExact(text);
  return answer instanceof ExactNumber ? Number(answer) : withDoubles(answer, false);
}

function withDoubles(value: unknown, isCalculated: boolean): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const members = value as Record<string, unknown>;
  for (const [name, member] of Object.entries(members)) {
    if (FREE.has(name) && !isCalculated) continue;
    if (member instanceof ExactNumber) members[name] = Number(member);
    else withDoubles(member, isCalculated || CALCULATED.has(name));
  }
  return value;
}

/** Writes JSON. */
export function writeExact(value: unknown, indent?: number): string {
  const text = JSON.stringify(value, mark, indent) as string | undefined;
  return text?.replace(MARKED, '$1') ?? 'null';
}

function mark(_: string, value: unknown): unknown {
  return value instanceof ExactNumber ? `${MARK}${value.text}` : value;
}

/** Puts numbers that a double does not give back into marked texts. */
function marking(text: string): string {
  let marked = '';
  let from = 0;
  while (from < text.length) {
    const quote = text.indexOf('"', from);
    const between = quote < 0 ? text.slice(from) : text.slice(from, quote);
    marked += between.replace(NUMBERS, (source) =>
      numberFrom(source) instanceof ExactNumber ? `"${MARK}${source}"` : source,
    );
    if (quote < 0) break;
    let end = text.indexOf('"', quote + 1);
    while (end > 0 && isEscaped(text, end)) end = text.indexOf('"', end + 1);
    from = end < 0 ? text.length : end + 1;
    marked += text.slice(quote, from);
  }
  return marked;
}

/** Whether an odd number of backslashes stands before a place. */
function isEscaped(text: string, at: number): boolean {
  let before = at;
  while (text[before - 1] === '\\') before -= 1;
  return (at - before) % 2 === 1;
}
