import { describe, expect, it } from 'vitest';
import type { Device } from '../api/client';
import { alarmFilters, conditionsOf, figureOf } from './selection';

const device = (name: string, values: unknown): Device =>
  ({ name, lastValues: [{ elementName: 'climate', values }] }) as unknown as Device;
const fridges = [device('a', { t: 4 }), device('b', { t: 9 }), device('c', { t: 'cold' }), device('d', {})];

describe('a figure over a selection', () => {
  it('is of those that have such a number', () => {
    expect(figureOf(fridges, 'mean', 'climate', 't')).toEqual({ value: 6.5, of: 2, device: null });
    expect(figureOf(fridges, 'highest', 'climate', 't')).toMatchObject({ value: 9, of: 2, device: { name: 'b' } });
    expect(figureOf(fridges, 'lowest', 'climate', 't')).toMatchObject({ value: 4, of: 2, device: { name: 'a' } });
    expect(figureOf(fridges, 'mean', 'other', 't')).toBeNull();
    expect(figureOf([], 'lowest', 'climate', 't')).toBeNull();
    expect(figureOf([device('a', { t: 1e308 }), device('b', { t: 1e308 })], 'mean', 'climate', 't')?.value).toBe(1e308);
  });

  it('asks for a project and a label', () => {
    expect(conditionsOf({})).toEqual([]);
    expect(conditionsOf({ projectUuid: 'p', label: 'site', labelValue: 'Hall 1' })).toEqual([
      { field: 'projectUuid', operator: 'eq', value: 'p' },
      { field: 'meta.site', operator: 'eq', value: 'Hall 1' },
    ]);
  });
});

describe('the alarms of a widget', () => {
  it('are those that are active, where nothing else is said', () => {
    expect(alarmFilters({}, null)).toEqual({ 'filter[state]': { eq: 'active' } });
  });

  it('are of a severity, a project and a state', () => {
    expect(alarmFilters({ severity: 'warning', projectUuid: 'p', alarmState: 'unacknowledged' }, null)).toEqual({
      'filter[projectId]': { eq: 'p' },
      'filter[severity]': { gte: 'warning' },
      'filter[acknowledged]': { eq: 'false' },
    });
    expect(alarmFilters({ alarmState: 'acknowledged' }, ['a', 'b'])).toEqual({
      'filter[deviceId]': { in: 'a,b' },
      'filter[state]': { eq: 'active' },
      'filter[acknowledged]': { eq: 'true' },
    });
  });

  it('of one device are of that alone, whatever else was chosen before', () => {
    const device = { id: 'd', name: 'D' };
    expect(alarmFilters({ device, projectUuid: 'p' }, null)).toEqual({
      'filter[deviceId]': { in: 'd' },
      'filter[state]': { eq: 'active' },
    });
  });
});
