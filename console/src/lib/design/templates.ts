import type { Element } from './model';

/** Designs to begin with. Words that people see in them are given by the page. */
export type TemplateName = 'empty' | 'sensor' | 'coldRoom' | 'meter';
export const TEMPLATES: readonly TemplateName[] = ['empty', 'sensor', 'coldRoom', 'meter'];

export interface TemplateWords {
  upperLimit: string;
  isTooHigh: string;
  isTooWarm: string;
  doorOpen: string;
}

type Elements = Record<string, Element>;

export function templateElements(name: TemplateName, words: TemplateWords): Elements {
  switch (name) {
    case 'empty':
      return {};
    case 'sensor':
      return sensor(words);
    case 'coldRoom':
      return coldRoom(words);
    case 'meter':
      return meter();
  }
}

/** Stores what comes, and tells people when it is too high: once in ten minutes at most. */
function sensor({ upperLimit, isTooHigh }: TemplateWords): Elements {
  return {
    reading: {
      type: 'deviceEvent',
      triggers: {
        eventReceived: [
          { element: 'values', ability: 'store' },
          { element: 'tooHigh', ability: 'evaluate' },
        ],
      },
    },
    values: { type: 'storage' },
    limit: {
      type: 'deviceSetting',
      properties: { title: upperLimit, inputType: 'number', defaultValue: 30 },
    },
    tooHigh: {
      type: 'condition',
      properties: { expression: 'has(payload.value) && payload.value > settings.limit' },
      triggers: {
        true: [
          { element: 'health', ability: 'setStatus', arguments: { status: 'warning' } },
          { element: 'calm', ability: 'pass' },
        ],
        false: [{ element: 'health', ability: 'setStatus', arguments: { status: 'good' } }],
      },
    },
    health: { type: 'deviceMeta', properties: { missingAfterMinutes: 60 } },
    calm: {
      type: 'throttle',
      properties: { minutes: 10 },
      triggers: { passed: [{ element: 'tell', ability: 'notify' }] },
    },
    tell: { type: 'notification', properties: { message: `{{ device.name }} ${isTooHigh} ({{ payload.value }})` } },
  };
}

/** A room that must stay cold: its mean decides, not one warm reading, and a door may not stand open. */
function coldRoom({ upperLimit, isTooWarm, doorOpen }: TemplateWords): Elements {
  return {
    reading: {
      type: 'deviceEvent',
      triggers: {
        eventReceived: [
          { element: 'climate', ability: 'store' },
          { element: 'mean', ability: 'push' },
          { element: 'door', ability: 'evaluate' },
        ],
      },
    },
    climate: {
      type: 'storage',
      properties: {
        retentionDays: 730,
        fields: {
          'payload.temperature': { title: { en: 'Temperature', de: 'Temperatur' }, unit: '°C', decimals: 1 },
          'payload.door': { title: { en: 'Door', de: 'Tür' } },
        },
      },
    },
    limit: {
      type: 'deviceSetting',
      properties: {
        title: upperLimit,
        inputType: 'number',
        inputTypeProperties: { min: -30, max: 15 },
        defaultValue: 6,
      },
    },
    mean: {
      type: 'window',
      properties: { minutes: 15, aggregate: 'mean', expression: 'payload.temperature' },
      triggers: { result: [{ element: 'tooWarm', ability: 'evaluate' }] },
    },
    tooWarm: {
      type: 'condition',
      properties: { expression: 'payload > settings.limit' },
      triggers: {
        true: [
          { element: 'health', ability: 'setStatus', arguments: { status: 'critical' } },
          { element: 'calm', ability: 'pass' },
        ],
        false: [{ element: 'health', ability: 'setStatus', arguments: { status: 'good' } }],
      },
    },
    calm: {
      type: 'throttle',
      properties: { minutes: 30 },
      triggers: { passed: [{ element: 'tell', ability: 'notify' }] },
    },
    tell: { type: 'notification', properties: { message: `{{ device.name }} ${isTooWarm} ({{ payload }} °C)` } },
    door: {
      type: 'changed',
      properties: { expression: 'has(payload.door) && payload.door' },
      triggers: { changed: [{ element: 'doorIsOpen', ability: 'evaluate' }] },
    },
    doorIsOpen: {
      type: 'condition',
      properties: { expression: 'has(payload.door) && payload.door' },
      triggers: { true: [{ element: 'tellOfDoor', ability: 'notify' }] },
    },
    tellOfDoor: { type: 'notification', properties: { message: `{{ device.name }}: ${doorOpen}` } },
    health: { type: 'deviceMeta', properties: { missingAfterMinutes: 30 } },
  };
}

/** A meter whose count rises: what was used between two readings is stored beside it. */
function meter(): Elements {
  return {
    reading: {
      type: 'deviceEvent',
      triggers: {
        eventReceived: [
          { element: 'use', ability: 'evaluate' },
          { element: 'total', ability: 'store' },
        ],
      },
    },
    use: {
      type: 'transform',
      properties: {
        expression: "has(last.total) ? {'used': payload.count - last.total.count} : {'used': 0}",
      },
      triggers: { result: [{ element: 'consumption', ability: 'store' }] },
    },
    consumption: { type: 'storage' },
    total: { type: 'storage' },
    health: { type: 'deviceMeta', properties: { missingAfterMinutes: 1440 } },
  };
}
