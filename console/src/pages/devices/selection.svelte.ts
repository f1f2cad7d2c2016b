import type { Device } from '../../api/client';

/** Which devices are selected: some that were picked, or all that are found but some. */
export class Selection {
  /** Whether all that are found are meant. */
  isAll = $state(false);
  #picked = $state.raw<ReadonlyMap<string, Device>>(new Map());
  #except = $state.raw<ReadonlySet<string>>(new Set());

  has(device: Device): boolean {
    return this.isAll ? !this.#except.has(device.id) : this.#picked.has(device.id);
  }

  /** How many of so many that are found. */
  count(total: number): number {
    return this.isAll ? Math.max(total - this.#except.size, 0) : this.#picked.size;
  }

  set(devices: readonly Device[], isSelected: boolean): void {
    if (this.isAll) {
      const except = new Set(this.#except);
      for (const { id } of devices) {
        if (isSelected) except.delete(id);
        else except.add(id);
      }
      this.#except = except;
    } else {
      const picked = new Map(this.#picked);
      for (const device of devices) {
        if (isSelected) picked.set(device.id, device);
        else picked.delete(device.id);
      }
      this.#picked = picked;
    }
  }

  all(): void {
    this.clear();
    this.isAll = true;
  }

  clear(): void {
    this.isAll = false;
    this.#picked = new Map();
    this.#except = new Set();
  }

  /** Those that were picked one by one, or left out so. */
  ids(): string[] {
    return this.isAll ? [...this.#except] : [...this.#picked.keys()];
  }

  /** Forgets devices that are gone. */
  forget(ids: readonly string[]): void {
    if (ids.length === 0) return;
    const gone = new Set(ids);
    this.#picked = new Map([...this.#picked].filter(([id]) => !gone.has(id)));
    this.#except = new Set([...this.#except].filter((id) => !gone.has(id)));
  }

  /** The devices themselves; `read` reads all that are found. */
  async devices(read: () => Promise<readonly Device[]>): Promise<Device[]> {
    if (!this.isAll) return [...this.#picked.values()];
    return (await read()).filter((device) => this.has(device));
  }

  /** Whether the selection is exactly what is found, so that the question itself says it. */
  get isWhole(): boolean {
    return this.isAll && this.#except.size === 0;
  }
}
