import type { Fleet } from '../fleet';

export const DEVICES = 10_000;
export const VALUES = 1_000_000;
const DAYS = 30;
const DAY_MS = 86_400_000;
const AT_ONCE = 1_000;
const SENDERS = 4;
/** So many chains of five elements each. */
const CHAINS = 80;
export const ELEMENTS = 5 * CHAINS;
export const FLOORS = 100;

/** What there is to be opened. */
export interface Filled {
  /** A device with a month of values. */
  device: string;
  /** A project with a large design. */
  project: string;
}

export const nameOf = (index: number): string => `Sensor ${String(index).padStart(5, '0')}`;

/** A fleet, a large design and a dashboard; with `isWhole` a long series besides. */
export async function fill(fleet: Fleet, isWhole: boolean): Promise<Filled> {
  const stored = await fleet.project('Cold chain', {
    reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'climate', ability: 'store' }] } },
    climate: { type: 'storage' },
  });
  const devices = Array.from({ length: DEVICES }, (_, index) => ({
    name: nameOf(index),
    projectUuid: stored,
    meta: { floor: index % FLOORS, latitude: 40 + (index % 150) / 10, longitude: (index % 250) / 10 },
  }));
  const { data } = await fleet.call<{ data: { id: string }[] }>('POST', '/devices/bulk', devices);
  const device = data[0]?.id ?? '';
  if (isWhole) await series(fleet, device);
  await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, dashboard(fleet, device));
  return { device, project: await fleet.project('Large', largeDesign()) };
}

/** A month of readings, which tell their own time. */
async function series(fleet: Fleet, deviceId: string): Promise<void> {
  const starts = Array.from({ length: VALUES / AT_ONCE }, (_, batch) => batch * AT_ONCE);
  const step = (DAYS * DAY_MS) / VALUES;
  const begin = Date.now() - DAYS * DAY_MS;
  const reading = (place: number): object => ({
    elementName: 'reading',
    deviceId,
    payload: { at: begin + place * step, temperature: 4 + Math.sin(place / 25_000) + (place % 7) / 10 },
  });
  await Promise.all(
    Array.from({ length: SENDERS }, async () => {
      for (let start = starts.shift(); start !== undefined; start = starts.shift()) {
        const first = start;
        const events = Array.from({ length: AT_ONCE }, (_, index) => reading(first + index));
        await fleet.call('POST', '/events/device/batch', events);
      }
    }),
  );
}

/** Chains from an event to what comes of it. Nothing has a place yet, so that the console arranges all of it. */
export function largeDesign(): Record<string, unknown> {
  const chains = Array.from({ length: CHAINS }, (_, index) => {
    const own = (name: string): string => `${name} ${String(index).padStart(2, '0')}`;
    const link = (name: string, ability: string): object => ({ element: own(name), ability });
    return {
      [own('reading')]: { type: 'deviceEvent', triggers: { eventReceived: [link('celsius', 'evaluate')] } },
      [own('celsius')]: {
        type: 'transform',
        properties: { expression: "{'temperature': payload.raw / 10.0}" },
        triggers: { result: [link('values', 'store'), link('warm', 'evaluate')] },
      },
      [own('values')]: { type: 'storage' },
      [own('warm')]: {
        type: 'condition',
        properties: { expression: 'payload.temperature > 8.0' },
        triggers: { true: [link('tell', 'notify')] },
      },
      [own('tell')]: { type: 'notification', properties: { message: 'Too warm' } },
    };
  });
  return Object.assign({}, ...chains) as Record<string, unknown>;
}

function dashboard({ organizationId }: Fleet, deviceId: string): object {
  const keys = [{ deviceId, deviceName: nameOf(0), elementName: 'climate', path: 'temperature' }];
  const widget = (type: string, x: number, y: number, w: number, h: number, settings: object = {}): object => ({
    id: type,
    type,
    title: '',
    x,
    y,
    w,
    h,
    settings,
  });
  return {
    name: 'Cold chain today',
    options: { organizationId, organizationName: 'Root' },
    configuration: {
      widgets: [
        widget('status', 0, 0, 9, 2),
        widget('value', 9, 0, 3, 2, { keys, timePath: 'at' }),
        widget('map', 0, 2, 6, 5),
        widget('line', 6, 2, 6, 5, { keys, timePath: 'at' }),
        widget('table', 0, 7, 6, 4, { elementName: 'climate', paths: ['temperature'] }),
        widget('gauge', 6, 7, 3, 4, { keys, min: 0, max: 10 }),
      ],
    },
  };
}
