import { describe, expect, it } from 'vitest';
import { readCsv, textOf, writeCsv } from './csv';
import { type ImportPlan, matchColumns, planRows } from './import';

const cells = (text: string): string[][] => readCsv(text).map((row) => row.cells);

describe('the text of a file', () => {
  it('is read in whatever encoding a spreadsheet has written it', () => {
    const text = 'Name;Projekt\r\nKühlraum;Frische Öfen';
    expect(textOf(new TextEncoder().encode(text))).toBe(text);
    expect(textOf(new Uint8Array([...text].map((sign) => sign.charCodeAt(0))))).toBe(text);
    const wide = [0xfeff, ...[...text].map((sign) => sign.charCodeAt(0))];
    expect(textOf(new Uint8Array(new Uint16Array(wide).buffer))).toBe(text);
    expect(textOf(new Uint8Array(wide.flatMap((code) => [code >> 8, code & 0xff])))).toBe(text);
    expect(textOf(new Uint8Array())).toBe('');
  });

  it('is none where bytes say something else', () => {
    expect(textOf(new Uint8Array([0x50, 0x4b, 3, 4, 0, 0, 8]))).toBeNull();
    expect(textOf(new Uint8Array([0xff, 0xfe, 0x00, 0xd8]))).toBeNull();
  });
});

describe('CSV', () => {
  it('tells of a quote that nothing closes', () => {
    expect(readCsv('name,note\r\na,"b\r\nc,d')).toEqual([
      { line: 1, cells: ['name', 'note'] },
      { line: 2, cells: ['a', 'b\r\nc,d'], isOpen: true },
    ]);
    expect(readCsv('name\r\n"a"').at(-1)).toEqual({ line: 2, cells: ['a'] });
  });

  it('is read as spreadsheets write it', () => {
    expect(cells('\ufeffname;note\r\n"a ""b""; c";1,5\r\n;\r\n\r\nlast;"two\nlines"')).toEqual([
      ['name', 'note'],
      ['a "b"; c', '1,5'],
      ['last', 'two\nlines'],
    ]);
    expect(cells('a,"b;c;d"\n1,2\n')).toEqual([
      ['a', 'b;c;d'],
      ['1', '2'],
    ]);
    expect(cells('')).toEqual([]);
    expect(cells('one\ttwo\n1\t2')).toEqual([
      ['one', 'two'],
      ['1', '2'],
    ]);
    expect(cells('a\r1\r')).toEqual([['a'], ['1']]);
  });

  it.each(['\n', '\r\n', '\r'])('tells at which line of the file a row begins (%j)', (end) => {
    const text = ['name,note', '', 'a,"two', 'lines"', ',', 'b,', ''].join(end);
    expect(readCsv(text).map(({ line, cells: [name] }) => [line, name])).toEqual([
      [1, 'name'],
      [3, 'a'],
      [6, 'b'],
    ]);
  });

  it('comes back as it was written, and runs nothing in a spreadsheet', () => {
    const rows = [
      ['name', 'to"ken'],
      ['a, b', 'x\ny'],
    ];
    expect(cells(writeCsv(rows))).toEqual(rows);
    expect(writeCsv([['=1+1', '-2']])).toBe("'=1+1,'-2\r\n");
  });
});

describe('an import', () => {
  const headings = ['Device name', 'Serial', 'Floor', 'Lat', 'Projekt', 'Name', ''];
  const plan: ImportPlan = {
    headings,
    lines: [1, 2, 5],
    targets: matchColumns(headings),
    projects: [{ id: 'p-1', name: 'Cold chain' }],
    organizations: [],
    projectId: 'p-0',
    organizationId: 'o-0',
  };

  it('knows columns by their names, each once; what it does not know becomes a label', () => {
    expect(plan.targets).toEqual(['name', 'label', 'label', 'latitude', 'project', 'label', 'skip']);
  });

  it('makes devices of rows', () => {
    const rows = [
      headings,
      ['Fridge', '0012', '3', '52,5', 'cold CHAIN', '', ''],
      ['Door', '9', '', '', 'p-1', '', ''],
    ];
    const [first, second] = planRows(rows, plan);
    expect(first).toEqual({
      line: 2,
      faults: [],
      input: {
        name: 'Fridge',
        projectUuid: 'p-1',
        organizationId: 'o-0',
        meta: { Serial: '0012', Floor: 3, latitude: 52.5 },
      },
    });
    expect(second).toMatchObject({ line: 5, input: { name: 'Door', projectUuid: 'p-1', meta: { Serial: '9' } } });
  });

  it('does not choose among customers of one name; an identifier does', () => {
    const twins = [
      { id: 'o-1', name: 'Frei' },
      { id: 'O-2', name: 'FREI' },
    ];
    const rows = [
      ['name', 'customer'],
      ['Fridge', 'frei'],
      ['Door', 'o-2'],
    ];
    const [fridge, door] = planRows(rows, { ...plan, targets: ['name', 'organization'], organizations: twins });
    expect(fridge?.faults).toEqual([{ kind: 'ambiguous', of: 'organization', value: 'frei' }]);
    expect(door).toMatchObject({ faults: [], input: { organizationId: 'O-2' } });
  });

  it('tells what is wrong with a row, all of it', () => {
    const [row] = planRows([headings, ['', 'x', '1', 'north', 'Warm chain', '', '']], plan);
    expect(row?.faults).toEqual([
      { kind: 'number', heading: 'Lat', value: 'north' },
      { kind: 'project', value: 'Warm chain' },
      { kind: 'name' },
    ]);
    // A comma that was meant to be part of a text.
    const [, wide] = planRows([headings, [], ['a', '', '', '', '', '', '', '', ' and more ']], plan);
    expect(wide?.faults).toEqual([{ kind: 'cells', value: 'and more' }]);
  });
});
