import type { MapBox, MapCells, MapPoint } from '../lib/map';
import { type StatusText, api, done } from './client';

/** The whole map in a few cells, whose boxes tell where the fleet is. */
export const WHOLE_MAP: MapCells = { box: { west: -180, south: -90, east: 180, north: 90 }, cellSize: 30 };
/** Devices of one place that are listed. */
const LISTED_MAX = 100;

/** What of an organization, and of those beneath it, stands in each cell. @throws Failure */
export async function deviceClusters(
  organizationId: string,
  { box, cellSize }: MapCells,
  signal: AbortSignal,
): Promise<MapPoint[]> {
  const query = { organizationId, depth: 'all' as const, box: textOf(box), cellSize };
  const { data } = await done(api.GET('/v2/devices/locations/clusters', { params: { query }, signal }));
  return data.map((cell) => {
    const { latitude: lat, longitude: lon, count, device, west, south, east, north } = cell;
    const said = { lon, lat, status: cell.statusText as StatusText, alarm: cell.alarmSeverity };
    if (device) return { id: device.id, name: device.name, ...said };
    return { id: `${lat},${lon}`, name: '', ...said, several: { west, south, east, north, count } };
  });
}

/** The devices within a box, as many as are listed. @throws Failure */
export async function devicesWithin(organizationId: string, box: MapBox, signal: AbortSignal): Promise<MapPoint[]> {
  const query = { organizationId, depth: 'all' as const, box: textOf(box), limit: LISTED_MAX };
  const { data } = await done(api.GET('/v2/devices/locations', { params: { query }, signal }));
  return data.map(({ id, name, longitude: lon, latitude: lat, statusText, alarmSeverity: alarm }) => {
    return { id, name, lon, lat, status: statusText as StatusText, alarm };
  });
}

function textOf({ west, south, east, north }: MapBox): string {
  return [west, south, east, north].join(',');
}
