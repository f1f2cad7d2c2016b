/** The label that marks the device of a guided start, with the user whose it is: it is found again wherever one goes on. */
export const START_LABEL = 'guidedStart';
export const READING = 'reading';
export const CLIMATE = 'climate';
export const LIMIT = 'limit';
export const LIMIT_DEFAULT = 28;

const IS_WARM = `payload.temperature > settings.${LIMIT}`;

/** A ready design: readings are stored and judged by a limit; at each turn the device is told, and people when it is warm. */
export function firstDesign(): Record<string, unknown> {
  return {
    [READING]: {
      type: 'deviceEvent',
      triggers: {
        eventReceived: [
          { element: CLIMATE, ability: 'store' },
          { element: 'health', ability: 'setStatus', arguments: { status: `${IS_WARM} ? warning : good` } },
          { element: 'turn', ability: 'evaluate' },
        ],
      },
    },
    [CLIMATE]: {
      type: 'storage',
      properties: {
        fields: {
          'payload.temperature': { title: { en: 'Temperature', de: 'Temperatur' }, unit: '°C', decimals: 1 },
        },
      },
    },
    health: { type: 'deviceMeta' },
    turn: {
      type: 'changed',
      properties: { expression: IS_WARM },
      triggers: {
        changed: [
          { element: 'fan', ability: 'send', arguments: { value: `{"on": ${IS_WARM}}` } },
          { element: 'warm', ability: 'evaluate' },
        ],
      },
    },
    fan: { type: 'cloudEvent', properties: { ttlMinutes: 10 } },
    warm: {
      type: 'condition',
      properties: { expression: IS_WARM },
      triggers: { true: [{ element: 'alarm', ability: 'notify' }] },
    },
    alarm: {
      type: 'notification',
      properties: { message: `{{ device.name }}: {{ payload.temperature }} °C > {{ settings.${LIMIT} }} °C` },
    },
    [LIMIT]: {
      type: 'deviceSetting',
      properties: {
        title: { en: 'Alarm limit in °C', de: 'Alarmgrenze in °C' },
        description: {
          en: 'Above this temperature the fan goes on, and somebody is told.',
          de: 'Über dieser Temperatur geht der Lüfter an, und jemand wird benachrichtigt.',
        },
        inputType: 'number',
        inputTypeProperties: { min: -20, max: 60 },
        defaultValue: LIMIT_DEFAULT,
        listOrder: 1,
      },
    },
  };
}
