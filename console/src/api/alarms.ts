import type { AlarmSeverity } from '../lib/alarms';
import { type Page, type Schemas, api, done } from './client';

export type Alarm = Schemas['Alarm'];
export type AlarmDetail = Schemas['AlarmDetail'];
export type AlarmEntry = Schemas['AlarmEntry'];
export type AlarmSummary = Schemas['AlarmSummary'];
export type AlarmInput = Schemas['AlarmInput'];

/** Which alarms; those that are active come first, then by severity and age. */
export interface AlarmQuery {
  organizationId?: string;
  deviceId?: string;
  projectId?: string | undefined;
  state?: Alarm['state'] | undefined;
  severity?: AlarmSeverity | undefined;
  acknowledged?: boolean | undefined;
  /** Raised in this range of time, in milliseconds. */
  raised?: { from: number; to: number };
  page?: number;
  limit: number;
}

/** A page of the alarms of an organization and all beneath it, or of one device. @throws Failure */
export function alarmPage(wanted: AlarmQuery, signal: AbortSignal): Promise<Page<Alarm>> {
  const { organizationId, page = 1, limit, raised, acknowledged, deviceId, projectId, state, severity } = wanted;
  const equal = { deviceId, projectId, state, severity, acknowledged: acknowledged?.toString() };
  const filters: Record<string, Record<string, string>> = {};
  for (const [name, value] of Object.entries(equal))
    if (value !== undefined) filters[`filter[${name}]`] = { eq: value };
  if (raised) {
    const moment = (time: number): string => new Date(time).toISOString();
    filters['filter[raisedAt]'] = { gte: moment(raised.from), lt: moment(raised.to) };
  }
  const whose = organizationId ? { organizationId } : {};
  const query = { ...whose, depth: 'all' as const, page, limit, ...filters };
  return done(api.GET('/v2/alarms', { params: { query }, signal }));
}

/** How many are active, by severity, and how many wait to be acknowledged. @throws Failure */
export function alarmSummary(organizationId: string): Promise<AlarmSummary> {
  return done(api.GET('/v2/alarms/summary', { params: { query: { organizationId, depth: 'all' } } }));
}

/** @throws Failure */
export function alarmDetail(id: string, signal: AbortSignal): Promise<AlarmDetail> {
  return done(api.GET('/v2/alarms/{id}', { params: { path: { id } }, signal }));
}

/** Acknowledges, comments, assigns or clears; what is left out stays as it is. @throws Failure */
export function changeAlarm(id: string, body: AlarmInput, signal?: AbortSignal): Promise<AlarmDetail> {
  return done(api.PUT('/v2/alarms/{id}', { params: { path: { id } }, body, ...(signal ? { signal } : {}) }));
}
