import { describe, expect, it } from 'vitest';
import type { Page, Schemas } from '../api/client';
import { placeOf } from './place';

type Location = Schemas['DeviceLocation'];
const idOf = (index: number) => String(index).padStart(6, '0');

/** A list of places of every second device, and how often it was read. */
function places(count: number) {
  const all = Array.from({ length: count }, (_, index) => ({ id: idOf(index * 2), latitude: index }) as Location);
  const list = {
    reads: 0,
    read: async (page: number, limit: number) => {
      list.reads += 1;
      const data = all.slice((page - 1) * limit, page * limit);
      return { data, meta: { totalPages: Math.ceil(count / limit) } } as Page<Location>;
    },
  };
  return list;
}

describe('the place of a device', () => {
  it.each([0, 1, 199, 200, 201, 5_000, 9_999])('is found among many, wherever it stands: %i', async (index) => {
    const list = places(10_000);
    expect((await placeOf(idOf(index * 2), list.read))?.latitude).toBe(index);
    expect(list.reads).toBeLessThan(9);
  });

  it('is none where it is not among them', async () => {
    for (const id of [idOf(1), idOf(9_999), idOf(50_000), '']) {
      expect(await placeOf(id, places(10_000).read)).toBeNull();
    }
    expect(await placeOf(idOf(0), places(0).read)).toBeNull();
  });
});
