/** Which of the events of a whole organization come from devices that carry a label, asked of the server in few calls. */

/** Devices that are asked for by one call. */
export const ASKED_AT_ONCE = 100;
/** Devices that wait to be asked for; beyond, the ones that wait longest go unseen. */
const WAITING_MAX = 1_000;
/** So long a device that had no label is not asked for again: somebody may give it one meanwhile. */
const WITHOUT_FOR_MS = 60_000;

interface Heard {
  deviceId: string;
}

interface Labelled {
  id: string;
  meta: Record<string, unknown>;
}

/** Takes events as they come, however many; gives those of labelled devices, the newest of each, by one call at a time. */
export class LabelSieve<E extends Heard, D extends Labelled> {
  #waiting = new Map<string, E>();
  #without = new Map<string, number>();

  /**
   * @param label a member of the devices' `meta`
   * @param read the devices with these identifiers that are there
   * @param now the time in milliseconds
   */
  constructor(
    private readonly label: string,
    private readonly read: (ids: string[]) => Promise<readonly D[]>,
    private readonly now: () => number = Date.now,
  ) {}

  get isEmpty(): boolean {
    return this.#waiting.size === 0;
  }

  take(event: E): void {
    const { deviceId } = event;
    if ((this.#without.get(deviceId) ?? 0) > this.now()) return;
    this.#waiting.delete(deviceId);
    this.#waiting.set(deviceId, event);
    if (this.#waiting.size <= WAITING_MAX) return;
    const [longest] = this.#waiting.keys();
    if (longest !== undefined) this.#waiting.delete(longest);
  }

  /** Forgets what waits. */
  clear(): void {
    this.#waiting.clear();
  }

  /** Asks for the devices that wait longest. What could not be asked waits on. @throws Failure */
  async pass(): Promise<[event: E, device: D][]> {
    const asked = [...this.#waiting].slice(0, ASKED_AT_ONCE);
    if (asked.length === 0) return [];
    const devices = new Map((await this.read(asked.map(([id]) => id))).map((device) => [device.id, device]));
    const passed: [E, D][] = [];
    for (const [id, event] of asked) {
      if (this.#waiting.get(id) === event) this.#waiting.delete(id);
      const device = devices.get(id);
      if (device && this.label in device.meta) passed.push([event, device]);
      else this.#remember(id);
    }
    return passed;
  }

  #remember(id: string): void {
    const now = this.now();
    // In the order in which they end: the first ones are over first.
    this.#without.delete(id);
    this.#without.set(id, now + WITHOUT_FOR_MS);
    for (const [other, until] of this.#without) {
      if (until > now) break;
      this.#without.delete(other);
    }
  }
}
