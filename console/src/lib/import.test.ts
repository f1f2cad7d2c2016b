import { describe, expect, it } from 'vitest';
import { readCsv, writeCsv } from './csv';
import { type ImportPlan, matchColumns, planRows } from './import';

describe('CSV', () => {
  it('is read as spreadsheets write it', () => {
    expect(readCsv('\ufeffname;note\r\n"a ""b""; c";1,5\r\n;\r\n\r\nlast;"two\nlines"')).toEqual([
      ['name', 'note'],
      ['a "b"; c', '1,5'],
      ['last', 'two\nlines'],
    ]);
    expect(readCsv('a,"b;c;d"\n1,2\n')).toEqual([
      ['a', 'b;c;d'],
      ['1', '2'],
    ]);
    expect(readCsv('')).toEqual([]);
    expect(readCsv('one\ttwo\n1\t2')).toEqual([
      ['one', 'two'],
      ['1', '2'],
    ]);
  });

  it('comes back as it was written, and runs nothing in a spreadsheet', () => {
    const rows = [
      ['name', 'to"ken'],
      ['a, b', 'x\ny'],
    ];
    expect(readCsv(writeCsv(rows))).toEqual(rows);
    expect(writeCsv([['=1+1', '-2']])).toBe("'=1+1,'-2\r\n");
  });
});

describe('an import', () => {
  const headings = ['Device name', 'Serial', 'Floor', 'Lat', 'Projekt', 'Name', ''];
  const plan: ImportPlan = {
    headings,
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
    expect(second?.input).toMatchObject({ name: 'Door', projectUuid: 'p-1', meta: { Serial: '9' } });
  });

  it('tells what is wrong with a row, all of it', () => {
    const [row] = planRows([headings, ['', 'x', '1', 'north', 'Warm chain', '', '']], plan);
    expect(row?.faults).toEqual([
      { kind: 'number', heading: 'Lat', value: 'north' },
      { kind: 'project', value: 'Warm chain' },
      { kind: 'name' },
    ]);
  });
});
