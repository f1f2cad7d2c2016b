/** CSV as RFC 4180 has it, and as spreadsheets write it: with semicolons where the comma is a decimal point. */

const SEPARATORS = [',', ';', '\t'];

/** The rows of a text; lines without anything are left out. */
export function readCsv(text: string): string[][] {
  const body = text.startsWith('\ufeff') ? text.slice(1) : text;
  const separator = separatorOf(body);
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = '';
  let isQuoted = false;
  function endRow(): void {
    row.push(cell);
    if (row.some((value) => value.trim() !== '')) rows.push(row);
    row = [];
    cell = '';
  }
  for (let at = 0; at < body.length; at += 1) {
    const sign = body[at];
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
    } else if (sign === '\n' || sign === '\r') {
      if (sign === '\r' && body[at + 1] === '\n') at += 1;
      endRow();
    } else cell += sign;
  }
  if (cell !== '' || row.length > 0) endRow();
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
  return rows.map((row) => row.map(written).join(',')).join('\r\n') + '\r\n';
}

function written(value: string): string {
  const safe = /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
