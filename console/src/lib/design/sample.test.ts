import { describe, expect, it } from 'vitest';
import { firstDesign } from '../firstSteps';
import { samplePayload } from './sample';

function design(links: unknown[], elements: Record<string, unknown>): unknown {
  const reading = { type: 'deviceEvent', triggers: { eventReceived: links } };
  return { planes: { cloud: { elements: { reading, ...elements } } } };
}

describe('the first event of a device', () => {
  it('has the keys that conditions and arguments read', () => {
    const found = samplePayload(
      design([{ element: 'warm' }, { element: 'health', arguments: { status: 'payload["a b"].c > 3 ? good : bad' } }], {
        warm: { type: 'condition', properties: { expression: 'payload.temp > settings.limit && !payload.off' } },
        health: { type: 'deviceMeta' },
      }),
      'reading',
    );
    expect(found).toEqual({ temp: 21.5, off: true, 'a b': { c: 21.5 } });
  });

  it('has what a key is compared with', () => {
    const expression = "payload.state == 'on' || payload.open == false || payload.name.contains('x')";
    const found = samplePayload(
      design([{ element: 'is' }], { is: { type: 'condition', properties: { expression } } }),
      'reading',
    );
    expect(found).toEqual({ state: 'on', open: false, name: 21.5 });
  });

  it('has values within what is said of stored keys', () => {
    const fields = {
      'payload.temp': { low: 2, high: 8 },
      'payload["front door"].open': { words: { true: 'open', false: 'closed' } },
      'payload.level': { words: { '0': 'empty' } },
    };
    const found = samplePayload(
      design([{ element: 'log', ability: 'store' }], { log: { type: 'storage', properties: { fields } } }),
      'reading',
    );
    expect(found).toEqual({ temp: 5, 'front door': { open: true }, level: 0 });
  });

  it('has nothing of what is made on the way', () => {
    const found = samplePayload(
      design([{ element: 'celsius' }], {
        celsius: {
          type: 'transform',
          properties: { expression: "{'temp': (payload.f - 32) / 1.8}" },
          triggers: { result: [{ element: 'high' }] },
        },
        high: { type: 'condition', properties: { expression: 'payload.temp > 3' } },
      }),
      'reading',
    );
    expect(found).toEqual({ f: 21.5 });
  });

  it('is a usual one where a design reads nothing, or goes round', () => {
    for (const nothing of [null, {}, [], design([], {}), design([{ element: 'reading' }, 5, null], {})]) {
      expect(samplePayload(nothing, 'reading')).toEqual({ temperature: 21.5 });
    }
    expect(samplePayload({ planes: { cloud: { elements: firstDesign() } } }, 'reading')).toEqual({ temperature: 21.5 });
  });

  it('takes names that objects have already for names', () => {
    const expression = 'payload.constructor.name > 1 && payload.__proto__.x > 2';
    const found = samplePayload(
      design([{ element: 'is' }], { is: { type: 'condition', properties: { expression } } }),
      'reading',
    );
    expect(JSON.stringify(found)).toBe('{"constructor":{"name":21.5},"__proto__":{"x":21.5}}');
  });
});
