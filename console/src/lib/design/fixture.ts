import { type Design, type Element, emptyDesign, withElements } from './model';

/** A design of these elements. */
export function design(elements: Record<string, Element>): Design {
  return withElements(emptyDesign('Test'), Object.entries(elements));
}

/** A fridge that is judged by a limit of its own. */
export const FRIDGE = design({
  reading: {
    type: 'deviceEvent',
    triggers: {
      eventReceived: [
        { element: 'values', ability: 'store' },
        { element: 'warm', ability: 'evaluate' },
      ],
    },
  },
  values: { type: 'storage' },
  limit: { type: 'deviceSetting', properties: { inputType: 'number', defaultValue: 8 } },
  warm: {
    type: 'condition',
    properties: { expression: 'payload.temp > settings.limit || last.values.temp > 20' },
    triggers: { true: [{ element: 'health', ability: 'setStatus', arguments: { status: 'warning' } }] },
  },
  health: { type: 'deviceMeta' },
  tell: { type: 'notification', properties: { message: 'limit {{ settings.limit }}, not settings.limit' } },
});

/** Chance that is the same each time. */
export function chance(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}
