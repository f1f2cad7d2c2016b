/**
 * The element types of a design: what links may ask of them, what they set off, and which properties they have. The interface's
 * document does not describe them; `elements.test.ts` holds this table to the table of docs/design-language.md, and a scene in the
 * browser to what the server accepts.
 */

export const TYPES = [
  'deviceEvent',
  'interval',
  'condition',
  'transform',
  'changed',
  'function',
  'window',
  'throttle',
  'deviceSetting',
  'deviceMeta',
  'storage',
  'cloudEvent',
  'notification',
  'alarm',
  'http',
] as const;
export type ElementType = (typeof TYPES)[number];

/** What an element is for; one look for each. */
export type Family = 'source' | 'logic' | 'device' | 'result';
export const FAMILIES: readonly Family[] = ['source', 'logic', 'device', 'result'];

export interface Ability {
  name: string;
  arguments: readonly string[];
}

/** How a property is entered and judged. */
export type PropertyKind =
  | 'expression'
  | 'message'
  | 'code'
  | 'choice'
  | 'whole'
  | 'positive'
  | 'reference'
  | 'words'
  | 'bounds'
  | 'default'
  | 'headers'
  | 'fields'
  | 'address'
  | 'method'
  | 'body';

export interface Property {
  name: string;
  kind: PropertyKind;
  isRequired?: boolean;
  /** The words of a choice, the first one that which holds where nothing is said. */
  choices?: readonly string[];
  min?: number;
  max?: number;
}

export interface Shape {
  type: ElementType;
  family: Family;
  abilities: readonly Ability[];
  triggers: readonly string[];
  properties: readonly Property[];
}

const YEAR_MINUTES = 366 * 24 * 60;
const value = ['value'] as const;
const ROLES = ['basicUser', 'technician', 'manager', 'administrator', 'developer', 'systemAdmin'] as const;

export const SHAPES: Readonly<Record<ElementType, Shape>> = {
  deviceEvent: {
    type: 'deviceEvent',
    family: 'source',
    abilities: [],
    triggers: ['eventReceived'],
    properties: [
      { name: 'integration', kind: 'choice', choices: ['http', 'custom', 'ble', 'lora', 'sigfox', 'zigbee'] },
    ],
  },
  interval: {
    type: 'interval',
    family: 'source',
    abilities: [],
    triggers: ['elapsed'],
    properties: [{ name: 'minutes', kind: 'whole', isRequired: true, min: 1, max: YEAR_MINUTES }],
  },
  condition: {
    type: 'condition',
    family: 'logic',
    abilities: [{ name: 'evaluate', arguments: [] }],
    triggers: ['true', 'false'],
    properties: [{ name: 'expression', kind: 'expression', isRequired: true }],
  },
  transform: {
    type: 'transform',
    family: 'logic',
    abilities: [{ name: 'evaluate', arguments: [] }],
    triggers: ['result'],
    properties: [{ name: 'expression', kind: 'expression', isRequired: true }],
  },
  changed: {
    type: 'changed',
    family: 'logic',
    abilities: [{ name: 'evaluate', arguments: [] }],
    triggers: ['changed', 'unchanged'],
    properties: [{ name: 'expression', kind: 'expression' }],
  },
  function: {
    type: 'function',
    family: 'logic',
    abilities: [{ name: 'evaluate', arguments: [] }],
    triggers: ['result', 'error'],
    properties: [
      { name: 'code', kind: 'code', isRequired: true },
      { name: 'bytesRef', kind: 'reference' },
      { name: 'bytesEncoding', kind: 'choice', choices: ['base64', 'hex'] },
      { name: 'fPortRef', kind: 'reference' },
    ],
  },
  window: {
    type: 'window',
    family: 'logic',
    abilities: [{ name: 'push', arguments: [] }],
    triggers: ['result'],
    properties: [
      {
        name: 'aggregate',
        kind: 'choice',
        isRequired: true,
        choices: ['mean', 'min', 'max', 'sum', 'count', 'first', 'last'],
      },
      { name: 'expression', kind: 'expression' },
      { name: 'size', kind: 'whole', min: 1, max: 4_096 },
      { name: 'minutes', kind: 'positive', max: YEAR_MINUTES },
    ],
  },
  throttle: {
    type: 'throttle',
    family: 'logic',
    abilities: [{ name: 'pass', arguments: [] }],
    triggers: ['passed', 'dropped'],
    properties: [{ name: 'minutes', kind: 'positive', isRequired: true, max: YEAR_MINUTES }],
  },
  deviceSetting: {
    type: 'deviceSetting',
    family: 'device',
    abilities: [
      { name: 'set', arguments: value },
      { name: 'reset', arguments: [] },
    ],
    triggers: ['changed'],
    properties: [
      { name: 'title', kind: 'words' },
      { name: 'description', kind: 'words' },
      { name: 'inputType', kind: 'choice', choices: ['text', 'number', 'toggle', 'geolocation'] },
      { name: 'inputTypeProperties', kind: 'bounds' },
      { name: 'defaultValue', kind: 'default' },
      { name: 'listOrder', kind: 'whole', min: -1_000_000, max: 1_000_000 },
    ],
  },
  deviceMeta: {
    type: 'deviceMeta',
    family: 'device',
    abilities: [
      { name: 'setStatus', arguments: ['status'] },
      { name: 'escalateStatus', arguments: ['status'] },
      { name: 'setValue', arguments: ['tag', 'value'] },
      { name: 'setLocation', arguments: ['latitude', 'longitude'] },
    ],
    triggers: ['done'],
    properties: [{ name: 'missingAfterMinutes', kind: 'whole', min: 1, max: YEAR_MINUTES }],
  },
  storage: {
    type: 'storage',
    family: 'result',
    abilities: [{ name: 'store', arguments: value }],
    triggers: ['stored'],
    properties: [
      { name: 'retentionDays', kind: 'whole', min: 1, max: 3_650 },
      { name: 'valuesMax', kind: 'whole', min: 1, max: 1_000_000_000 },
      { name: 'fields', kind: 'fields' },
    ],
  },
  cloudEvent: {
    type: 'cloudEvent',
    family: 'result',
    abilities: [{ name: 'send', arguments: value }],
    triggers: ['sent'],
    properties: [{ name: 'ttlMinutes', kind: 'whole', min: 1, max: 4_294_967_295 }],
  },
  notification: {
    type: 'notification',
    family: 'result',
    abilities: [{ name: 'notify', arguments: [] }],
    triggers: ['sent'],
    properties: [
      { name: 'message', kind: 'message', isRequired: true },
      {
        name: 'minimumRole',
        kind: 'choice',
        choices: ROLES,
      },
    ],
  },
  alarm: {
    type: 'alarm',
    family: 'result',
    abilities: [
      { name: 'raise', arguments: ['key', 'value'] },
      { name: 'clear', arguments: ['key'] },
    ],
    triggers: ['raised', 'cleared', 'acknowledged'],
    properties: [
      { name: 'title', kind: 'message', isRequired: true },
      { name: 'severity', kind: 'choice', choices: ['warning', 'info', 'critical'] },
      { name: 'minimumRole', kind: 'choice', choices: ROLES },
    ],
  },
  http: {
    type: 'http',
    family: 'result',
    abilities: [{ name: 'request', arguments: [] }],
    triggers: ['response', 'error'],
    properties: [
      { name: 'method', kind: 'method' },
      { name: 'url', kind: 'address', isRequired: true },
      { name: 'headers', kind: 'headers' },
      { name: 'body', kind: 'body' },
    ],
  },
};

/** The methods of a call; any other text is an expression. */
export const METHODS: readonly string[] = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'];

/** The shape of a type; undefined for a type that the console does not know. */
export function shapeOf(type: unknown): Shape | undefined {
  return typeof type === 'string' && Object.hasOwn(SHAPES, type) ? SHAPES[type as ElementType] : undefined;
}

/** Whether a run can begin at an element of this type. */
export function isStart(type: unknown): boolean {
  return type === 'deviceEvent' || type === 'deviceSetting' || type === 'interval';
}
