import { describe, expect, it } from 'vitest';
import type { DeviceSetting } from '../../api/client';
import { changesOf } from './timeline';

let count = 0;
const record = (name: string, value: unknown, more: Partial<DeviceSetting> = {}) => {
  count += 1;
  const createdAt = new Date(Date.UTC(2026, 0, 1, 0, count)).toISOString();
  return { id: `r${count}`, name, value, defaultValue: 8, createdAt, changedToId: null, ...more } as DeviceSetting;
};

describe('the changes of settings', () => {
  const first = record('limit', 9);
  const second = record('limit', 12);
  const reset = record('limit', 8);
  const untouched = record('quiet', 8);
  first.changedToId = second.id;
  first.changedById = 'ana';
  second.changedToId = reset.id;
  second.changedById = 'device';

  it('are told from what they replaced, newest first, resets too', () => {
    const changes = changesOf([reset, untouched], [second, first], true);
    expect(changes.map(({ from, to, by }) => [from, to, by])).toEqual([
      [12, 8, 'device'],
      [9, 12, 'ana'],
      [8, 9, null],
    ]);
  });

  it('claim no beginning while older records are unread', () => {
    expect(changesOf([reset], [second], false).map(({ from }) => from)).toEqual([12, undefined]);
  });
});
