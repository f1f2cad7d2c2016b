import { describe, expect, it } from 'vitest';
import { type Kind, KINDS, curlOf, keyName, readKeyName, sampleOf, setupOf, tagOf } from './integrations';

const wanted = (kind: Kind) => ({ kind, origin: 'https://here', key: 'K', projectId: 'P' });

describe('the set-up of an integration', () => {
  it('tells The Things Stack everything by headers, as its address must stay bare', () => {
    const { url, headers } = setupOf(wanted('thingsStack'));
    expect(url).toBe('https://here/v2/events/integrations');
    expect(Object.fromEntries(headers)).toEqual({
      authorization: 'K',
      integration: 'lora',
      deviceTag: 'devEui',
      deviceTagValueRef: '$.end_device_ids.dev_eui',
      deviceTagCase: 'insensitive',
      projectUuid: 'P',
    });
  });

  it('tells the others by the address, without a comma, which would begin a second one', () => {
    for (const kind of ['chirpStack', 'sigfox', 'custom'] as const) {
      const { url, headers } = setupOf({ ...wanted(kind), organizationId: 'O', reference: "$['a,b']" });
      expect(url).not.toContain(',');
      expect(new URL(url).searchParams.get('organizationId')).toBe('O');
      expect(headers).toEqual([['authorization', 'K']]);
    }
  });

  it('finds devices of networks in any case, and those of others as they are written', () => {
    for (const kind of ['chirpStack', 'sigfox', 'custom'] as const) {
      const asked = new URL(setupOf(wanted(kind)).url).searchParams.get('deviceTagCase');
      expect(asked, kind).toBe(kind === 'custom' ? null : 'insensitive');
    }
  });

  it('has a sample in which its own reference finds the device', () => {
    for (const kind of KINDS) {
      const [, reference] = tagOf({ kind });
      const steps = reference.replace(/^\$\./, '').split('.');
      const found = steps.reduce<unknown>(
        (value, step) => (value as Record<string, unknown>)[step],
        sampleOf({ kind, projectId: 'P' }),
      );
      expect(typeof found, kind).toBe('string');
    }
  });

  it('has a sample device of its own for each project', () => {
    for (const kind of KINDS) {
      const [one, other] = ['11223344-55aa', '11223344-55bb'].map((projectId) =>
        JSON.stringify(sampleOf({ kind, projectId })),
      );
      expect(one, kind).not.toBe(other);
    }
  });

  it('gives a command that a shell takes as it is meant', () => {
    const command = curlOf(setupOf({ ...wanted('custom'), tag: "it's" }), { name: "o'clock" });
    expect(command).toContain("deviceTag=it's".replace("'", "'\\''"));
    expect(command).toContain(`{"name":"o'\\''clock"}`);
  });

  it('is found again by the name of its key', () => {
    for (const kind of KINDS)
      expect(readKeyName(keyName(kind, ' Cold chain '))).toEqual({ kind, purpose: 'Cold chain' });
    expect(readKeyName('laptop')).toBeUndefined();
    expect(keyName('custom', 'x'.repeat(200))).toHaveLength(80);
  });
});
