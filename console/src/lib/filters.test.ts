import { describe, expect, it } from 'vitest';
import { type Condition, FIELDS, asQuery, nameOf, questionOf, questionsOf, readConditions, spanOf } from './filters';

const NOW = Date.parse('2026-11-20T10:20:30.400Z');

describe('conditions', () => {
  it('come out of the address as they went in', () => {
    const conditions: Condition[] = [
      { field: 'statusInt', operator: 'gte', value: '3' },
      { field: 'meta.site.floor', operator: 'in', value: '2,3' },
      { field: 'meta["site.name"]', operator: 'eq', value: 'x' },
      { field: 'lastActive', operator: 'lt', value: '-36h' },
      { field: 'lastActive', operator: 'gte', value: '2026-01-01T00:00:00.000Z' },
    ];
    const search = new URLSearchParams(conditions.map((condition) => [nameOf(condition), condition.value]));
    expect(readConditions(new URLSearchParams(String(search)))).toEqual(conditions);
  });

  it('that the server would refuse are left out', () => {
    const search = new URLSearchParams({
      'filter[password][eq]': 'x',
      'filter[name][like]': 'x',
      'filter[projectUuid][gt]': 'x',
      'filter[createdAt][eq]': 'null',
      q: 'x',
    });
    expect(readConditions(search)).toEqual([]);
  });

  it('ask the server with moments for spans, the same within a minute', () => {
    const conditions: Condition[] = [
      { field: 'lastActive', operator: 'lt', value: '-2d' },
      { field: 'lastActive', operator: 'ne', value: 'null' },
      { field: 'meta.age', operator: 'lt', value: '-2d' },
    ];
    const query = asQuery(conditions, NOW);
    expect(query).toEqual({
      'filter[lastActive]': { lt: '2026-11-18T10:20:00.000Z', ne: 'null' },
      'filter[meta.age]': { lt: '-2d' },
    });
    expect(asQuery(conditions, NOW + 20_000)).toEqual(query);
  });

  it('know which question they are', () => {
    expect(questionOf({ field: 'lastActive', operator: 'gte', value: '-1h' })?.name).toBe('within');
    expect(questionOf({ field: 'lastActive', operator: 'gte', value: '2026-01-01' })?.name).toBe('since');
    expect(questionOf({ field: 'lastActive', operator: 'eq', value: 'null' })?.name).toBe('never');
    expect(spanOf('-0')).toBeUndefined();
  });

  it('have questions of different names for each field', () => {
    for (const field of [...FIELDS, 'meta.floor']) {
      const names = questionsOf(field).map(({ name }) => name);
      expect(new Set(names).size, field).toBe(names.length);
    }
  });
});
