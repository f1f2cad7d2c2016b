import { describe, expect, it } from 'vitest';
import { entryWords } from './alarmWords';
import { countOf, isLiving, noticeAddress, worstOf } from './alarms';

describe('an alarm', () => {
  it('lives until it is cleared and acknowledged', () => {
    expect(isLiving({ state: 'active', acknowledged: true })).toBe(true);
    expect(isLiving({ state: 'cleared', acknowledged: false })).toBe(true);
    expect(isLiving({ state: 'cleared', acknowledged: true })).toBe(false);
  });

  it('is counted with others, the worst of which decides the look', () => {
    expect(countOf({ critical: 1, warning: 2, info: 3 })).toBe(6);
    expect(worstOf({ critical: 0, warning: 2, info: 3 })).toBe('warning');
    expect(worstOf({ critical: 0, warning: 0, info: 0 })).toBeNull();
  });

  it('is where its notification leads; without one, its device is', () => {
    expect(noticeAddress({ alarmId: 'a', deviceId: 'd' })).toBe('/alarms?alarm=a');
    expect(noticeAddress({ alarmId: null, deviceId: 'd' })).toBe('/devices/d');
    expect(noticeAddress({})).toBeNull();
  });

  it('tells in words what happened to it', () => {
    const nameOf = (id: string): string => `user ${id}`;
    expect(entryWords({ what: 'assigned', assigneeId: '7' }, nameOf)).toBe('Assigned to user 7');
    expect(entryWords({ what: 'assigned', assigneeId: null }, nameOf)).toBe('Unassigned');
    expect(entryWords({ what: 'raised' }, nameOf)).toBe('Raised');
  });
});
