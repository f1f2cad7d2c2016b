/** Rules of alarms. */

export const SEVERITIES = ['critical', 'warning', 'info'] as const;
export type AlarmSeverity = (typeof SEVERITIES)[number];
export const STATES = ['active', 'cleared'] as const;

interface Living {
  state: 'active' | 'cleared';
  acknowledged: boolean;
}

interface Counts {
  critical: number;
  warning: number;
  info: number;
}

/** Whether somebody still has to do with it. One that is cleared and acknowledged is history. */
export function isLiving({ state, acknowledged }: Living): boolean {
  return state === 'active' || !acknowledged;
}

/** How many there are of all severities. */
export function countOf({ critical, warning, info }: Counts): number {
  return critical + warning + info;
}

/** The highest severity that there is one of. */
export function worstOf(counts: Counts): AlarmSeverity | null {
  return SEVERITIES.find((severity) => counts[severity] > 0) ?? null;
}

/** The address of an alarm: its page, with it open. */
export function alarmAddress(id: string): string {
  return `/alarms?alarm=${encodeURIComponent(id)}`;
}

/** Where a notification leads to: its alarm, its device, or nowhere. */
export function noticeAddress({
  alarmId,
  deviceId,
}: {
  alarmId?: string | null;
  deviceId?: string | null;
}): string | null {
  if (alarmId) return alarmAddress(alarmId);
  return deviceId ? `/devices/${deviceId}` : null;
}
