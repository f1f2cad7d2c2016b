import { describe, expect, it } from 'vitest';
import type { Device } from '../api/client';
import { cell, columnsOf, csvColumns, elementsWanted, labelColumn, labelOf, valueColumn, valueParts } from './columns';

const device = {
  name: 'Fridge',
  description: '',
  meta: { floor: 3, 'site.name': 'Nord', site: { name: 'hidden', hall: 'B' } },
  lastValues: [
    { elementName: 'climate.v2', values: { door: { open: true }, temp: 0 } },
    { elementName: 'count', values: 7 },
  ],
  streetAddress: { address: '1 Mill Lane', city: 'Ghent', postalCode: 9000, country: null, region: null },
} as unknown as Device;

describe('columns', () => {
  it('show members, labels and last values, deep ones too', () => {
    const cells = [
      'name',
      'description',
      'meta.floor',
      'meta.site.name',
      'meta.site.hall',
      'meta.none',
      'streetAddress',
    ];
    expect(cells.map((column) => cell(device, column))).toEqual([
      'Fridge',
      undefined,
      3,
      'Nord',
      'B',
      undefined,
      '1 Mill Lane, 9000 Ghent',
    ]);
    expect(cell(device, valueColumn('climate.v2', 'door.open'))).toBe(true);
    expect(cell(device, valueColumn('climate.v2', 'temp'))).toBe(0);
    expect(cell(device, valueColumn('count', ''))).toBe(7);
    expect(cell(device, valueColumn('gone', 'temp'))).toBeUndefined();
  });

  it('of labels are the paths that the interface takes', () => {
    for (const [label, column] of [
      ['floor', 'meta.floor'],
      ['["site.name"]', 'meta["site.name"]'],
    ] as const) {
      expect(labelColumn(label)).toBe(column);
      expect(labelOf(column)).toBe(label);
    }
    expect(cell(device, 'meta["site.name"]')).toBe('Nord');
    expect(labelOf('metadata')).toBeUndefined();
  });

  it('of last values keep the names of their elements', () => {
    for (const element of ['climate', 'a.b', '50%', 'ä/ö']) {
      expect(valueParts(valueColumn(element, 'x.y'))).toEqual({ element, path: 'x.y' });
    }
    expect(elementsWanted(['name', valueColumn('a.b', 'x'), valueColumn('a.b', 'y')])).toBe('a.b');
    expect(elementsWanted(['name'])).toBeUndefined();
  });

  it('of a table that somebody else wrote are taken as far as they are columns', () => {
    expect(columnsOf({ columns: [{ path: 'name', type: null }, { path: 5 }, null, 'x', { path: '' }] })).toEqual([
      'name',
    ]);
    expect(columnsOf({})).toEqual([]);
    expect(columnsOf(null)).toEqual([]);
  });

  it('go to the server’s CSV with the identifier, once, and without last values', () => {
    expect(csvColumns(['name', 'id', valueColumn('a', 'b'), 'meta.floor'])).toEqual(['id', 'name', 'meta.floor']);
  });
});
