/** CSV as RFC 4180 has it, and as spreadsheets write it: with semicolons where the comma is a decimal point. */

const SEPARATORS = [',', ';', '\t'];

/** A row, and the line of the text at which it begins: lines without anything count, and cells may go over several. */
export interface CsvRow {
  line: number;
  cells: string[];
  /** Its last cell begins with a quote that nothing closes, and has taken in all that follows. */
  isOpen?: true;
}

/** What no text has: control signs other than ends of lines, tabs and pages. */
const NO_TEXT = /(?![\t\n\v\f\r\u0085])\p{Cc}/u;

/** The text of a file as spreadsheets write it: UTF-8, UTF-16 with its mark, or else Windows-1252. Null: it is none. */
export function textOf(bytes: Uint8Array): string | null {
  const mark = [bytes[0], bytes[1]].join();
  const encoding = mark === '255,254' ? 'utf-16le' : mark === '254,255' ? 'utf-16be' : 'utf-8';
  const text = decoded(bytes, encoding) ?? (encoding === 'utf-8' ? decoded(bytes, 'windows-1252') : null);
  return text === null || NO_TEXT.test(text) ? null : text;
}

function decoded(bytes: Uint8Array, encoding: string): string | null {
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** The rows of a text; lines without anything are left out. */
export function readCsv(text: string): CsvRow[] {
  const body = text.startsWith('\ufeff') ? text.slice(1) : text;
  const separator = separatorOf(body);
  const rows: CsvRow[] = [];
  let row: string[] = [];
  let line = 1;
  let begunAt = 1;
  let cell = '';
  let isQuoted = false;
  function endRow(): void {
    row.push(cell);
    if (row.some((value) => value.trim() !== '')) rows.push({ line: begunAt, cells: row });
    row = [];
    cell = '';
    begunAt = line;
  }
  for (let at = 0; at < body.length; at += 1) {
    const sign = body[at];
    const isBreak = sign === '\n' || (sign === '\r' && body[at + 1] !== '\n');
    if (isBreak) line += 1;
    if (isQuoted) {
      if (sign !== '"') cell += sign;
      else if (body[at + 1] === '"') {
        cell += '"';
        at += 1;
      } else isQuoted = false;
    } else if (sign === '"' && cell.trim() === '') {
      cell = '';
      isQuoted = true;
    } else if (sign === separator) {
      row.push(cell);
      cell = '';
    } else if (isBreak) {
      endRow();
    } else if (sign !== '\r') cell += sign;
  }
  if (cell !== '' || row.length > 0) endRow();
  const last = rows.at(-1);
  if (isQuoted && last) last.isOpen = true;
  return rows;
}

/** What separates most in the first line, outside of quotes. */
function separatorOf(text: string): string {
  const first = text.slice(0, text.search(/[\r\n]|$/)).replace(/"[^"]*"/g, '');
  const counts = SEPARATORS.map((separator) => first.split(separator).length);
  return SEPARATORS[counts.indexOf(Math.max(...counts))] ?? ',';
}

/** Rows as CSV. A text that a spreadsheet would run gets an apostrophe before it. */
export function writeCsv(rows: readonly (readonly string[])[]): string {
  return joinCsv(rows.map((row) => row.map(guarded)));
}

/** Cells that were read of a CSV, as CSV again: whoever wrote them has seen to it that none is run. */
export function joinCsv(rows: readonly (readonly string[])[]): string {
  return rows.map((row) => row.map(quoted).join(',')).join('\r\n') + '\r\n';
}

function guarded(value: string): string {
  return /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : value;
}

function quoted(value: string): string {
  return /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
}

/** A column beside another, made of its cells. Without that column nothing is added. */
export function withColumnAfter(
  rows: readonly (readonly string[])[],
  column: string,
  name: string,
  cell: (value: string) => string,
): string[][] {
  const at = rows[0]?.indexOf(column) ?? -1;
  if (at < 0) return rows.map((row) => [...row]);
  return rows.map((row, index) => row.toSpliced(at + 1, 0, index === 0 ? name : cell(row[at] ?? '')));
}
