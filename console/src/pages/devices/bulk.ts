import type { Device } from '../../api/client';
import type { Act } from '../../lib/bulk.svelte';

/** What a dialog for many devices is given: which ones, how it begins (so many devices at a call), and how it is given up. */
export interface BulkForm {
  devices: readonly Device[];
  start: (act: Act<Device>, handful: number, items: readonly Device[]) => void;
  cancel: () => void;
}
