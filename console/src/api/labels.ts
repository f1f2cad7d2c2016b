import { type Act } from '../lib/bulk.svelte';
import { readCsv } from '../lib/csv';
import { readExact } from '../lib/exact';
import { placed, refused } from '../lib/refusals';
import { type Device, api, authorizedFetch, done } from './client';
import { arrived, failureOf } from './failure';

/** Of a fleet's labels so much is read to make suggestions: those of some ten thousand devices. */
const READ_MAX_CHARACTERS = 2_000_000;

/** The labels of an organization's devices and of those beneath it, device by device. @throws Failure */
export async function fleetLabels(organizationId: string, signal: AbortSignal): Promise<Record<string, unknown>[]> {
  const search = new URLSearchParams({ organizationId, depth: 'all', columns: 'meta' });
  const response = await authorizedFetch(`/v2/devices?${search}`, { headers: { accept: 'text/csv' }, signal });
  if (!response.ok) throw await failureOf(response);
  const [, ...rows] = readCsv(await beginning(response));
  return rows.flatMap(({ cells: [cell = ''], isOpen }) => (isOpen ? [] : labelsIn(cell)));
}

async function beginning(response: Response): Promise<string> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return '';
  let text = '';
  while (text.length < READ_MAX_CHARACTERS) {
    const { done: isOver, value } = await arrived(reader.read());
    if (isOver) return text;
    text += value;
  }
  await reader.cancel();
  return text.slice(0, text.lastIndexOf('\n') + 1);
}

function labelsIn(cell: string): Record<string, unknown>[] {
  try {
    const labels = readExact(cell);
    return typeof labels === 'object' && labels !== null ? [labels as Record<string, unknown>] : [];
  } catch {
    return [];
  }
}

/** Changes these labels of a device, and no others. @throws Failure */
export async function changeLabels(id: string, labels: Record<string, unknown>): Promise<void> {
  await done(api.PATCH('/v2/devices/{id}/meta', { params: { path: { id } }, body: labels }));
}

/** Changes the same labels of many devices. */
export function changeLabelsOf(labels: Record<string, unknown>): Act<Device> {
  return async (items, signal) => {
    const body = items.map(({ id }) => ({ deviceId: id, meta: labels }));
    const { errors } = await done(api.POST('/v2/devices/meta', { body, signal }));
    return errors.flatMap(({ message }) => {
      const at = placed(message);
      const item = items[at?.index ?? -1];
      return item ? [{ item, failure: refused(at?.text ?? message) }] : [];
    });
  };
}
