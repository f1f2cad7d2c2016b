import type { StatusText } from '../api/client';

/** Statuses in rising priority: their place is `statusInt`. */
export const STATUSES: readonly StatusText[] = ['none', 'good', 'info', 'warning', 'critical', 'missing'];

/** Statuses as they are looked at: what burns is not hidden by what is silent. */
export const BY_URGENCY: readonly StatusText[] = ['critical', 'warning', 'missing', 'info', 'good', 'none'];

/** Orders by urgency, the most urgent first. */
export function byUrgency(one: StatusText, other: StatusText): number {
  return BY_URGENCY.indexOf(one) - BY_URGENCY.indexOf(other);
}
