import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { overwriteGetLocale } from '../paraglide/runtime';
import { deliveryWords } from './deliveryWords';

beforeEach(() => vi.stubGlobal('navigator', { languages: ['de'] }));
afterEach(() => {
  overwriteGetLocale(() => 'en');
  vi.unstubAllGlobals();
});

describe('why nothing came of a delivery', () => {
  it('is told in the language of the console, with the part of the body that it is about', () => {
    overwriteGetLocale(() => 'de');
    expect(deliveryWords('event block 0: deviceTagValueRef finds nothing in it')).toBe(
      'Teil 1 des Inhalts: Er nennt sein Gerät nicht.',
    );
    expect(
      deliveryWords(
        "event block 2: the design of the device's project has no deviceEvent element of the integration lora",
      ),
    ).toBe('Teil 3 des Inhalts: Der Entwurf seines Projekts hat kein Geräteereignis, das über lora kommt.');
    expect(deliveryWords('eventsRef finds nothing in the body')).toBe('Im Inhalt stehen keine Ereignisse.');
    expect(deliveryWords('event block 0: division by zero')).toBe('Teil 1 des Inhalts: Durch null geteilt.');
    expect(deliveryWords('event block 0: what idempotencyKeyRef finds must be at most 64 characters long')).toBe(
      'Teil 1 des Inhalts: Was idempotencyKeyRef findet, ist länger als 64 Zeichen.',
    );
    expect(deliveryWords('event block 0: idempotencyKeyRef finds a array, not a string or a number')).toBe(
      'Teil 1 des Inhalts: idempotencyKeyRef findet weder Text noch Zahl, sondern: array.',
    );
    expect(deliveryWords('event block 0: several devices carry the tag in other cases, and none in this one')).toBe(
      'Teil 1 des Inhalts: Mehrere Geräte tragen diese Kennung in anderer Groß- und Kleinschreibung, keines genau diese.',
    );
    expect(deliveryWords('something new')).toBe('something new');
  });
});
