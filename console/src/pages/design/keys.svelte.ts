import { type Device, type StoredEvent, api, done } from '../../api/client';
import { type KnownKeys, NO_KEYS, incomingKeys, keysOf, keysOfEvents } from '../../lib/design/keys';
import type { Known } from '../../lib/design/complete';
import { type Design, elementsOf } from '../../lib/design/model';
import { fieldOf } from '../../lib/series';
import { namesIn } from '../../lib/table';

/** Devices that are looked at, those that were active last. */
const DEVICES = 3;
const EVENTS = 50;

/** The devices of a project. @throws Failure */
export async function devicesOf(project: string, limit: number, signal?: AbortSignal): Promise<Device[]> {
  const query = { depth: 'all' as const, limit, sortBy: ['-lastActive'], 'filter[projectUuid]': { eq: project } };
  const page = await done(api.GET('/v2/devices', { params: { query }, ...(signal ? { signal } : {}) }));
  return page.data;
}

/** The newest device events of a device. @throws Failure */
export async function eventsOf(deviceId: string, limit: number, signal?: AbortSignal): Promise<StoredEvent[]> {
  const params = { path: { deviceId }, query: { cloudEvents: false, limit } };
  const page = await done(api.GET('/v2/devices/{deviceId}/events', { params, ...(signal ? { signal } : {}) }));
  return page.data;
}

/** The keys of what devices of a project really send, and of what is stored of them: for completion. */
export class PayloadKeys {
  #keys = $state.raw<KnownKeys>(NO_KEYS);
  #isAsked = false;

  constructor(private readonly project: string) {}

  /** Reads them, once. Without them there is less to complete, and nobody is told. */
  async load(): Promise<void> {
    if (this.#isAsked) return;
    this.#isAsked = true;
    try {
      const devices = await devicesOf(this.project, DEVICES);
      const events = await Promise.all(devices.map(({ id }) => eventsOf(id, EVENTS)));
      const stored = new Map<string, Set<string>>();
      for (const { id } of devices) {
        const device = await done(
          api.GET('/v2/devices/{id}', { params: { path: { id }, query: { lastValues: 'all' } } }),
        );
        for (const { elementName, values } of device.lastValues) {
          stored.set(elementName, keysOf(values, stored.get(elementName)));
        }
      }
      this.#keys = { events: keysOfEvents(events.flat()), stored };
    } catch {
      this.#isAsked = false;
    }
  }

  /** The paths of what a storage element holds, or else of what may come to it. */
  storedPaths(design: Design, name: string): string[] {
    const stored = [...(this.#keys.stored.get(name) ?? [])];
    const paths = stored.length > 0 ? stored : incomingKeys(design, name, this.#keys);
    // What stands above others is no value.
    const isValue = (path: string): boolean => !paths.some((other) => other.startsWith(`${path}.`));
    return paths.filter(isValue).map(fieldOf);
  }

  /** What expressions of an element can name. */
  known(design: Design, name: string): Known {
    const entries = Object.entries(elementsOf(design));
    const storages = entries.filter(([, { type }]) => type === 'storage').map(([storage]) => storage);
    return {
      payload: incomingKeys(design, name, this.#keys).map(namesIn),
      settings: entries.filter(([, { type }]) => type === 'deviceSetting').map(([setting]) => setting),
      stored: new Map(storages.map((storage) => [storage, [...(this.#keys.stored.get(storage) ?? [])].map(namesIn)])),
    };
  }
}
