import { ALARM_ROWS, type Settings } from '../lib/dashboard';
import { alarmFilters, conditionsOf } from '../lib/selection';
import type { Alarm } from './alarms';
import { api, done } from './client';
import { devicePage } from './devices';

/** Devices with a label that are looked at: so many identifiers fit into one address. */
const DEVICES_MAX = 300;

export interface WidgetAlarms {
  data: Alarm[];
  /** How many devices were looked at, where there are more with the label. */
  among: number | null;
}

/** The alarms that a widget shows, the most urgent first. @throws Failure */
export async function widgetAlarms(
  settings: Settings,
  organizationId: string,
  signal: AbortSignal,
): Promise<WidgetAlarms> {
  const { device, label, rows = ALARM_ROWS } = settings;
  const labelled = label && !device ? await withLabel(settings, organizationId, signal) : null;
  if (labelled?.ids.length === 0) return { data: [], among: null };
  const query = {
    ...(device ? {} : { organizationId }),
    depth: 'all' as const,
    limit: rows,
    ...alarmFilters(settings, labelled?.ids ?? null),
  };
  const { data } = await done(api.GET('/v2/alarms', { params: { query }, signal }));
  return { data, among: labelled?.isCut ? labelled.ids.length : null };
}

async function withLabel(
  settings: Settings,
  organizationId: string,
  signal: AbortSignal,
): Promise<{ ids: string[]; isCut: boolean }> {
  const query = {
    organizationId,
    searchText: '',
    status: undefined,
    conditions: conditionsOf(settings),
    sortBy: 'name',
    page: 1,
    limit: DEVICES_MAX,
  };
  const { data, meta } = await devicePage(query, signal);
  return { ids: data.map(({ id }) => id), isCut: meta.totalDocs > data.length };
}
