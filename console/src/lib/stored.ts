import type { LastValues } from '../api/client';
import { isNumber } from './exact';
import { leaves, namesIn } from './table';

/** The keys of a device whose last values are numbers, by element. */
export function numericKeys(lastValues: readonly LastValues[]): { elementName: string; path: string }[] {
  return lastValues.flatMap(({ elementName, values }) =>
    leaves(values).flatMap(([path, value]) => (isNumber(value) ? [{ elementName, path }] : [])),
  );
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d/;
const NAMED_LIKE_A_TIME = /(^|[._])(at|ts|time|timestamp|date|datetime)$|(Time|At|Timestamp)$/;

function isNamedLikeATime(path: string): boolean {
  return NAMED_LIKE_A_TIME.test(namesIn(path).at(-1) ?? '');
}

/** Keys that tell when a value was measured, where devices send later: moments as texts, or numbers that are named so. */
export function timeKeys(lastValues: readonly LastValues[]): string[] {
  const found = lastValues.flatMap(({ values }) =>
    leaves(values).flatMap(([path, value]) => {
      const isTime = typeof value === 'string' ? TIME.test(value) : isNumber(value) && isNamedLikeATime(path);
      return isTime ? [path] : [];
    }),
  );
  return [...new Set(found)];
}
