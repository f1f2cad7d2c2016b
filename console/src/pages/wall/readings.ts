import type { StatusText } from '../../api/client';
import type { WallData, WallReading } from '../../api/wall';
import type { WidgetKey } from '../../lib/dashboard';
import type { MapPoint } from '../../lib/map';
import { type Meaning, NO_MEANING, meaningAt, meaningsFrom } from '../../lib/meaning';
import { type Point, fieldOf } from '../../lib/series';

/** What a screen is told of keys, in the words of the widgets. */

/** Returns what is told of a key; undefined where it is out of reach, or not told yet. */
export function readingOf(
  data: WallData | undefined,
  key: Pick<WidgetKey, 'deviceId' | 'elementName' | 'path'> | undefined,
): WallReading | undefined {
  return data?.readings.find(
    (one) =>
      one.isInReach && one.deviceId === key?.deviceId && one.elementName === key.elementName && one.path === key.path,
  );
}

/** Returns what a design says of the key at a path. */
export function meaningOf(said: unknown, path: string): Meaning {
  return said ? meaningAt(meaningsFrom({ [fieldOf(path)]: said }), path) : NO_MEANING;
}

/** Returns what is said of a key: what is said of its widget goes before what its design says. */
export function meaningOfKey(reading: WallReading | undefined, key: WidgetKey | undefined): Meaning {
  const known = meaningOf(reading?.meaning, key?.path ?? '');
  return { ...known, unit: key?.unit ?? known.unit };
}

/** Returns what a key is called. */
export function calledIn(data: WallData | undefined, key: WidgetKey): string {
  return meaningOf(readingOf(data, key)?.meaning, key.path).title || key.path || key.elementName;
}

/** Returns the course of a key. */
export function pointsOf(reading: WallReading | undefined): Point[] {
  return (reading?.points ?? []).map(({ from, to, count, mean, min, max }) => {
    return { from: Date.parse(from), to: Date.parse(to), count, mean, min, max };
  });
}

/** Returns where devices are, as the map draws them. */
export function placesOf({ places }: WallData): MapPoint[] {
  return places.map(({ latitude: lat, longitude: lon, count, statusText, device, west, south, east, north }) => {
    const status = statusText as StatusText;
    if (device) return { id: device.id, name: device.name, lon, lat, status };
    return { id: `${lat},${lon}`, name: '', lon, lat, status, several: { west, south, east, north, count } };
  });
}
