import type { Page, Schemas } from '../api/client';

type Location = Schemas['DeviceLocation'];

/** Places that are read at once. */
const READ_AT_ONCE = 200;

/**
 * Where a device is. The interface tells places of many devices alone, in the order in which the devices were made, which is that of
 * their identifiers: the right page is found by halving.
 */
export async function placeOf(
  deviceId: string,
  read: (page: number, limit: number) => Promise<Page<Location>>,
): Promise<Location | null> {
  let [first, last, page] = [1, Number.MAX_SAFE_INTEGER, 1];
  while (first <= last) {
    const { data, meta } = await read(page, READ_AT_ONCE);
    last = Math.min(last, meta.totalPages);
    const found = data.find(({ id }) => id === deviceId);
    if (found) return found;
    const [smallest, largest] = [data[0]?.id, data.at(-1)?.id];
    if (smallest === undefined || largest === undefined) return null;
    if (deviceId < smallest) last = page - 1;
    else if (deviceId > largest) first = page + 1;
    else return null;
    page = Math.floor((first + last) / 2);
  }
  return null;
}

/** Degrees as people write them: 52.520°, 13.405°. */
export function degrees(value: number, locale: string): string {
  return `${new Intl.NumberFormat(locale, { maximumFractionDigits: 5 }).format(value)}°`;
}
