import type { Device } from '../api/client';
import { labelColumn } from './columns';
import type { Settings } from './dashboard';
import { doubleOf } from './exact';
import type { Condition } from './filters';
import { valueAt } from './table';

/** Figures over several devices, and their alarms: those of a project, or with a label. */

export const FIGURES = ['count', 'mean', 'highest', 'lowest'] as const;
export type Figure = (typeof FIGURES)[number];

/** Returns the conditions under which a device is one of a selection. */
export function conditionsOf({ projectUuid, label, labelValue }: Settings): Condition[] {
  return [
    ...(projectUuid ? [{ field: 'projectUuid', operator: 'eq' as const, value: projectUuid }] : []),
    ...(label ? [{ field: labelColumn(label), operator: 'eq' as const, value: labelValue ?? '' }] : []),
  ];
}

/** Which alarms a widget shows, as filters; of these devices, where there are any. */
export function alarmFilters(
  { device, projectUuid, severity, alarmState }: Settings,
  deviceIds: readonly string[] | null,
): Record<string, Record<string, string>> {
  const devices = device ? [device.id] : deviceIds;
  return {
    ...(devices ? { 'filter[deviceId]': { in: devices.join(',') } } : {}),
    ...(projectUuid && !device ? { 'filter[projectId]': { eq: projectUuid } } : {}),
    ...(severity ? { 'filter[severity]': { gte: severity } } : {}),
    ...(alarmState === 'unacknowledged' ? {} : { 'filter[state]': { eq: 'active' } }),
    ...(alarmState ? { 'filter[acknowledged]': { eq: String(alarmState === 'acknowledged') } } : {}),
  };
}

/** What is told of a selection. */
export interface Told {
  value: number;
  /** How many devices have such a value. */
  of: number;
  /** The one that has it, where it is of one. */
  device: Device | null;
}

/** Returns the mean or an end of what these devices have stored last; null: none of them has such a number. */
export function figureOf(
  devices: readonly Device[],
  figure: Exclude<Figure, 'count'>,
  elementName: string,
  path: string,
): Told | null {
  const found = devices.flatMap((device) => {
    const last = device.lastValues.find((one) => one.elementName === elementName);
    const value = doubleOf(valueAt(last?.values, path));
    return value === undefined ? [] : [{ value, device }];
  });
  const [first] = found;
  if (!first) return null;
  const of = found.length;
  if (figure === 'mean') {
    // Each is divided first: the sum of large ones would be none.
    return { value: found.reduce((mean, { value }) => mean + value / of, 0), of, device: null };
  }
  const isWorse = (one: number, other: number) => (figure === 'highest' ? one > other : one < other);
  return { ...found.reduce((worst, one) => (isWorse(one.value, worst.value) ? one : worst), first), of };
}
