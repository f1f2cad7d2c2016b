import { describe, expect, it } from 'vitest';
import { STATUSES, byUrgency } from './statuses';

describe('urgency', () => {
  it('puts what burns above what is silent', () => {
    expect([...STATUSES].sort(byUrgency)).toEqual(['critical', 'warning', 'missing', 'info', 'good', 'none']);
  });
});
