import { describe, expect, it } from 'vitest';
import { ASKED_AT_ONCE, LabelSieve } from './labelled';

interface Sent {
  deviceId: string;
  name: string;
}

/** A fleet in which the devices of `labelled` carry the label, and what was asked of it. */
function fleet(labelled: readonly string[]) {
  const asked: string[][] = [];
  const clock = { now: 0 };
  const sieve = new LabelSieve<Sent, { id: string; meta: Record<string, unknown> }>(
    'devEui',
    (ids) => {
      asked.push(ids);
      return Promise.resolve(ids.map((id) => ({ id, meta: labelled.includes(id) ? { devEui: id } : { floor: 3 } })));
    },
    () => clock.now,
  );
  return { sieve, asked, clock };
}

describe('events of labelled devices', () => {
  it('are found among those of a whole fleet by one call, and devices without the label are asked for once', async () => {
    const { sieve, asked, clock } = fleet(['b']);
    for (let turn = 0; turn < 200; turn += 1)
      for (const deviceId of ['a', 'b', 'c']) sieve.take({ deviceId, name: `${deviceId}${turn}` });
    const passed = await sieve.pass();
    expect(passed.map(([{ name }, { id }]) => [name, id])).toEqual([['b199', 'b']]);
    for (const deviceId of ['a', 'b', 'c']) sieve.take({ deviceId, name: 'again' });
    expect((await sieve.pass()).map(([{ name }]) => name)).toEqual(['again']);
    expect(asked).toEqual([['a', 'b', 'c'], ['b']]);
    // Somebody may have given it the label meanwhile.
    clock.now = 60_001;
    sieve.take({ deviceId: 'a', name: 'later' });
    await sieve.pass();
    expect(asked.at(-1)).toEqual(['a']);
  });

  it('are asked for in handfuls, the first that waits first', async () => {
    const { sieve, asked } = fleet([]);
    for (let at = 0; at < ASKED_AT_ONCE + 5; at += 1) sieve.take({ deviceId: String(at), name: '' });
    await sieve.pass();
    expect(asked[0]).toHaveLength(ASKED_AT_ONCE);
    expect(sieve.isEmpty).toBe(false);
    await sieve.pass();
    expect(asked[1]).toEqual(['100', '101', '102', '103', '104']);
    expect(sieve.isEmpty).toBe(true);
    expect(await sieve.pass()).toEqual([]);
    expect(asked).toHaveLength(2);
  });

  it('wait on when the server cannot be asked', async () => {
    let isAway = true;
    const sieve = new LabelSieve<Sent, { id: string; meta: Record<string, unknown> }>('devEui', (ids) =>
      isAway ? Promise.reject(new Error('away')) : Promise.resolve(ids.map((id) => ({ id, meta: { devEui: id } }))),
    );
    sieve.take({ deviceId: 'a', name: 'first' });
    await expect(sieve.pass()).rejects.toThrow('away');
    isAway = false;
    expect(await sieve.pass()).toHaveLength(1);
  });
});
