import type { MapPoint } from '../lib/map';
import { type Schemas, type StatusText, api, done } from './client';

/** Devices that one page of the list holds at most. */
const PAGE_MAX = 10_000;
/** Marks beyond would say nothing more. */
const PLACES_MAX = 50_000;

/** The places of the devices of an organization and of those beneath it. @throws Failure */
export async function devicePlaces(organizationId: string, signal: AbortSignal): Promise<MapPoint[]> {
  const found: MapPoint[] = [];
  for (let page = 1; found.length < PLACES_MAX; page += 1) {
    const query = { organizationId, depth: 'all' as const, limit: PAGE_MAX, page };
    const list = await done(api.GET('/v2/devices/locations', { params: { query }, signal }));
    found.push(...list.data.map(pointOf));
    if (!list.meta.hasNextPage) break;
  }
  return found;
}

function pointOf({ id, name, longitude, latitude, statusText }: Schemas['DeviceLocation']): MapPoint {
  return { id, name, lon: longitude, lat: latitude, status: statusText as StatusText };
}
