/** Conditions on the list of devices: which there are, how the address keeps them, and how the server is asked. */

import { labelOf } from './columns';

export const OPERATORS = ['eq', 'ne', 'lt', 'lte', 'gt', 'gte', 'in', 'nin'] as const;
export type Operator = (typeof OPERATORS)[number];

export interface Condition {
  /** One of the fields below, `meta.<path>` or `meta["<name>"]`. */
  field: string;
  operator: Operator;
  /** As it stands in the address. A time may be a span before now: `-36h`. */
  value: string;
}

export type FieldKind = 'text' | 'status' | 'project' | 'time' | 'count' | 'label';

/** What is compared with: what is typed or chosen for it. */
export type Operand = 'text' | 'list' | 'status' | 'project' | 'span' | 'moment' | 'none';

/** One way to ask about a field. Two may share an operator: times are asked by span and by date. */
export interface Question {
  name: string;
  operator: Operator;
  operand: Operand;
}

export const FIELDS = [
  'name',
  'statusInt',
  'projectUuid',
  'lastActive',
  'createdAt',
  'updatedAt',
  'alarms.critical',
  'alarms.warning',
  'alarms.info',
] as const;
/** An instant that never was. */
const NEVER = 'null';

const TIMES: readonly Question[] = [
  { name: 'within', operator: 'gte', operand: 'span' },
  { name: 'longer', operator: 'lt', operand: 'span' },
  { name: 'since', operator: 'gte', operand: 'moment' },
  { name: 'before', operator: 'lt', operand: 'moment' },
];

export function kindOf(field: string): FieldKind {
  if (labelOf(field) !== undefined) return 'label';
  if (field === 'statusInt') return 'status';
  if (field === 'projectUuid') return 'project';
  if (field.startsWith('alarms.')) return 'count';
  return field === 'name' ? 'text' : 'time';
}

/** The ways in which a field can be asked about. */
export function questionsOf(field: string): readonly Question[] {
  switch (kindOf(field)) {
    case 'text':
      return [
        { name: 'is', operator: 'eq', operand: 'text' },
        { name: 'is_not', operator: 'ne', operand: 'text' },
        { name: 'one_of', operator: 'in', operand: 'list' },
        { name: 'none_of', operator: 'nin', operand: 'list' },
      ];
    case 'status':
      return [
        { name: 'is', operator: 'eq', operand: 'status' },
        { name: 'is_not', operator: 'ne', operand: 'status' },
        { name: 'at_least', operator: 'gte', operand: 'status' },
        { name: 'at_most', operator: 'lte', operand: 'status' },
      ];
    case 'project':
      return [
        { name: 'is', operator: 'eq', operand: 'project' },
        { name: 'is_not', operator: 'ne', operand: 'project' },
      ];
    case 'time':
      if (field !== 'lastActive') return TIMES;
      return [
        ...TIMES,
        { name: 'never', operator: 'eq', operand: 'none' },
        { name: 'ever', operator: 'ne', operand: 'none' },
      ];
    case 'count':
      return [
        { name: 'at_least', operator: 'gte', operand: 'text' },
        { name: 'at_most', operator: 'lte', operand: 'text' },
      ];
    case 'label':
      return [
        { name: 'is', operator: 'eq', operand: 'text' },
        { name: 'is_not', operator: 'ne', operand: 'text' },
        { name: 'more', operator: 'gt', operand: 'text' },
        { name: 'at_least', operator: 'gte', operand: 'text' },
        { name: 'less', operator: 'lt', operand: 'text' },
        { name: 'at_most', operator: 'lte', operand: 'text' },
        { name: 'one_of', operator: 'in', operand: 'list' },
        { name: 'none_of', operator: 'nin', operand: 'list' },
      ];
  }
}

/** The question that a condition asks. */
export function questionOf({ field, operator, value }: Condition): Question | undefined {
  const asked = questionsOf(field).filter((question) => question.operator === operator);
  if (kindOf(field) !== 'time') return asked[0];
  const operand = value === NEVER ? 'none' : spanOf(value) ? 'span' : 'moment';
  return asked.find((question) => question.operand === operand);
}

const SPAN = /^-(\d{1,6})([mhd])$/;
const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 };
export type SpanUnit = keyof typeof UNIT_MS;

/** A span before now: `-36h`. */
export function spanOf(value: string): { count: number; unit: SpanUnit } | undefined {
  const [, count, unit] = SPAN.exec(value) ?? [];
  return count === undefined ? undefined : { count: Number(count), unit: unit as SpanUnit };
}

const NAME = /^filter\[(.+)\]\[(\w+)\]$/;

/** The conditions of an address, in its order; what is none is left out. */
export function readConditions(search: URLSearchParams): Condition[] {
  const conditions: Condition[] = [];
  for (const [name, value] of search) {
    const [, field = '', operator = ''] = NAME.exec(name) ?? [];
    const condition = { field, operator: operator as Operator, value };
    const isField = (FIELDS as readonly string[]).includes(field) || labelOf(field) !== undefined;
    if (isField && questionOf(condition)) conditions.push(condition);
  }
  return conditions;
}

/** How a condition is called in the address. There is one of each name: a second takes the place of the first. */
export function nameOf({ field, operator }: Condition): string {
  return `filter[${field}][${operator}]`;
}

/** What the server is asked: `{'filter[statusInt]': {gte: '3'}}`. Spans become moments, to the minute, so that all pages ask the same. */
export function asQuery(conditions: readonly Condition[], now: number): Record<string, Record<string, string>> {
  const query: Record<string, Record<string, string>> = {};
  for (const { field, operator, value } of conditions) {
    const key = `filter[${field}]`;
    query[key] = { ...query[key], [operator]: kindOf(field) === 'time' ? momentOf(value, now) : value };
  }
  return query;
}

function momentOf(value: string, now: number): string {
  const span = spanOf(value);
  if (!span) return value;
  const minute = Math.floor(now / UNIT_MS.m) * UNIT_MS.m;
  return new Date(minute - span.count * UNIT_MS[span.unit]).toISOString();
}

export { NEVER };
