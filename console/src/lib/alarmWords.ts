import { m } from '../paraglide/messages';

/** Words of alarms, apart from their rules: what counts them has no use of these. */

export function alarmStateWord(state: 'active' | 'cleared'): string {
  return state === 'active' ? m.alarm_active() : m.alarm_cleared();
}

interface Entry {
  what: 'raised' | 'cleared' | 'acknowledged' | 'unacknowledged' | 'assigned' | 'comment';
  assigneeId?: string | null;
}

/** What happened to an alarm, in words. `nameOf` tells the name of a user. */
export function entryWords({ what, assigneeId }: Entry, nameOf: (id: string) => string): string {
  switch (what) {
    case 'raised':
      return m.alarm_was_raised();
    case 'cleared':
      return m.alarm_was_cleared();
    case 'acknowledged':
      return m.alarm_was_acknowledged();
    case 'unacknowledged':
      return m.alarm_was_unacknowledged();
    case 'assigned':
      return assigneeId ? m.alarm_was_assigned({ name: nameOf(assigneeId) }) : m.alarm_was_unassigned();
    case 'comment':
      return m.alarm_was_comment();
  }
}
