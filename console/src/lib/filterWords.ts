import { m } from '../paraglide/messages';
import { labelOf } from './columns';
import { type Condition, type Question, type SpanUnit, questionOf, spanOf } from './filters';
import { formatLocale, moment } from './format';
import { projectName } from './projects.svelte';
import { STATUSES } from './statuses';
import { labelWord } from './table';
import { statusWord } from './words';

const UNITS: Record<SpanUnit, string> = { m: 'minute', h: 'hour', d: 'day' };

export function fieldWord(field: string): string {
  switch (field) {
    case 'name':
      return m.name();
    case 'statusInt':
      return m.status();
    case 'projectUuid':
      return m.project();
    case 'lastActive':
      return m.last_active();
    case 'createdAt':
      return m.created();
    case 'updatedAt':
      return m.column_updated();
    case 'alarms.critical':
      return m.filter_alarms_critical();
    case 'alarms.warning':
      return m.filter_alarms_warning();
    case 'alarms.info':
      return m.filter_alarms_info();
    default:
      return labelWord(labelOf(field) ?? field);
  }
}

const QUESTIONS: Record<string, () => string> = {
  is: m.filter_is,
  is_not: m.filter_is_not,
  one_of: m.filter_one_of,
  none_of: m.filter_none_of,
  at_least: m.filter_at_least,
  at_most: m.filter_at_most,
  more: m.filter_more,
  less: m.filter_less,
  within: m.filter_within,
  longer: m.filter_longer,
  since: m.filter_since,
  before: m.filter_before,
  never: m.filter_never,
  ever: m.filter_ever,
};

export function questionWord({ name }: Question): string {
  return QUESTIONS[name]?.() ?? name;
}

/** A span in words: “36 hours”. */
export function spanWord(count: number, unit: SpanUnit): string {
  return new Intl.NumberFormat(formatLocale(), { style: 'unit', unit: UNITS[unit], unitDisplay: 'long' }).format(count);
}

/** The unit of a span by itself: “hours”. */
export function unitWord(unit: SpanUnit): string {
  const words = new Intl.NumberFormat(formatLocale(), { style: 'unit', unit: UNITS[unit], unitDisplay: 'long' });
  return words.formatToParts(2).find(({ type }) => type === 'unit')?.value ?? unit;
}

/** A condition in words: “Last active longer ago than 36 hours”. */
export function conditionWords(condition: Condition): string {
  const question = questionOf(condition);
  if (!question) return '';
  return [fieldWord(condition.field), questionWord(question), operandWord(condition, question)]
    .filter((word) => word !== '')
    .join(' ');
}

function operandWord({ value }: Condition, { operand }: Question): string {
  const span = spanOf(value);
  switch (operand) {
    case 'status': {
      const status = STATUSES[Number(value)];
      return status ? statusWord(status) : value;
    }
    case 'project':
      return (projectName(value) ?? '…') || m.projects_gone_title();
    case 'span':
      return span ? spanWord(span.count, span.unit) : value;
    case 'moment':
      return Number.isNaN(Date.parse(value)) ? value : moment(value);
    case 'list':
      return value.split(',').join(', ');
    case 'text':
      return value === '' ? '“”' : value;
    case 'none':
      return '';
  }
}
