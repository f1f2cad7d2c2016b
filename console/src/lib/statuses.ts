import type { StatusText } from '../api/client';

/** Statuses in rising priority: their place is `statusInt`. */
export const STATUSES: readonly StatusText[] = ['none', 'good', 'info', 'warning', 'critical', 'missing'];
