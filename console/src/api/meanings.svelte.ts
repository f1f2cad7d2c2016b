import { type Meaning, type Meanings, NO_MEANINGS, meaningAt, meaningsFrom } from '../lib/meaning';
import { resource } from '../lib/resource.svelte';
import { api, done } from './client';

/** How long what was read is good: designs change seldom. */
const GOOD_MS = 60_000;
/** Elements of devices that are remembered. */
const KNOWN_MAX = 500;

interface Asked {
  deviceId: string;
  elementName: string;
}

const known = new Map<string, { readAt: number; meanings: Promise<Meanings> }>();

/** What a device's design says of the keys of an element, read once for all who ask. Nothing where it cannot be read. */
function meaningsOf({ deviceId, elementName }: Asked): Promise<Meanings> {
  const name = JSON.stringify([deviceId, elementName]);
  const found = known.get(name);
  if (found && Date.now() - found.readAt < GOOD_MS) return found.meanings;
  const params = { path: { id: deviceId, elementName } };
  const meanings = done(api.GET('/v2/devices/{id}/storage/{elementName}', { params })).then(
    ({ fields }) => meaningsFrom(fields),
    () => {
      known.delete(name);
      return NO_MEANINGS;
    },
  );
  if (known.size >= KNOWN_MAX) known.clear();
  known.set(name, { readAt: Date.now(), meanings });
  return meanings;
}

/** Reads them again when they are wanted next: a design was saved. */
export function forgetMeanings(): void {
  known.clear();
}

export interface KnownMeanings {
  of(asked: Asked): Meanings;
  at(key: Asked & { path: string }): Meaning;
}

/** Reads what is said of the keys of these elements. Until that is known, nothing is. Call it while a component is made. */
export function meanings(wanted: () => readonly Asked[]): KnownMeanings {
  // Compared as text: what says the same is not asked again.
  const asked = $derived(
    JSON.stringify([...new Set(wanted().map(({ deviceId, elementName }) => JSON.stringify([deviceId, elementName])))]),
  );
  const read = resource(async () => {
    const names = JSON.parse(asked) as string[];
    const pairs = names.map(async (name) => {
      const [deviceId = '', elementName = ''] = JSON.parse(name) as string[];
      return [name, await meaningsOf({ deviceId, elementName })] as const;
    });
    return new Map(await Promise.all(pairs));
  });
  const of = ({ deviceId, elementName }: Asked): Meanings =>
    read.value?.get(JSON.stringify([deviceId, elementName])) ?? NO_MEANINGS;
  return { of, at: (key) => meaningAt(of(key), key.path) };
}
