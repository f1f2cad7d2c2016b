import { beforeEach, describe, expect, it } from 'vitest';
import { node } from './canvas';
import { type Found, LOOKS, see } from './look';
import { Visitor } from './pages';
import { browser, fleet, server, stage } from './stage';

/** Keys that have a meaning, as they are seen. */

const COUNT = 400;
const EVERY_MS = 150_000;
const found: Found = new Map();
let project: string;
let room: { id: string; token: string };

const DESIGN = {
  reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'climate', ability: 'store' }] } },
  climate: {
    type: 'storage',
    properties: {
      fields: {
        'payload.temperature': { title: 'Temperature', unit: '°C', decimals: 1, low: 2, high: 6, maximum: 8 },
        'payload.humidity': { title: 'Relative humidity', unit: '%', decimals: 0, minimum: 0, maximum: 100 },
        'payload.door': { title: 'Door', words: { true: 'open', false: 'closed' } },
      },
    },
  },
};

stage(async () => {
  project = await fleet.project('Cold chain', DESIGN);
  room = await fleet.device('Cold room A1', project);
  const end = Date.now();
  const events = Array.from({ length: COUNT }, (_, index) => ({
    elementName: 'reading',
    deviceId: room.id,
    payload: {
      at: new Date(end - (COUNT - index) * EVERY_MS).toISOString(),
      temperature: 4 + 2.6 * Math.sin(index / 30) + 0.3 * Math.sin(index * 12.9898),
      humidity: 62 + 9 * Math.cos(index / 40),
      door: index % 2 === 0,
      note: null,
    },
  }));
  await fleet.call('POST', '/events/device/batch', events);
  const key = (path: string): object => ({
    deviceId: room.id,
    deviceName: 'Cold room A1',
    elementName: 'climate',
    path,
  });
  const put = (type: string, [x, y, w, h]: [number, number, number, number], settings: object): object => {
    return { id: `${type}-${x}`, type, title: '', x, y, w, h, settings };
  };
  await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, {
    name: 'Board',
    options: { organizationId: fleet.organizationId },
    configuration: {
      widgets: [
        put('value', [0, 0, 3, 3], { keys: [key('temperature')] }),
        put('gauge', [3, 0, 3, 3], { keys: [key('humidity')] }),
        put('line', [6, 0, 6, 5], { keys: [key('temperature')], timePath: 'at' }),
        put('table', [0, 3, 6, 3], { elementName: 'climate', paths: ['temperature', 'humidity', 'door'] }),
      ],
    },
  });
});
beforeEach(() => found.clear());

describe.each(Object.entries(LOOKS))('in the look %s', (look, options) => {
  it('what keys mean is free of faults', async () => {
    const visitor = await Visitor.come(browser, server.url, options);
    const { page } = visitor;
    await visitor.open(`/devices/${room.id}`);
    await page.getByText('Relative humidity').first().waitFor();
    await see(visitor, `${look}-meaning-tiles`, found);
    await page.goto(`/devices/${room.id}/data`);
    await page.getByRole('columnheader', { name: 'Temperature (°C)' }).waitFor();
    await see(visitor, `${look}-meaning-data`, found);
    await page.goto(`/devices/${room.id}/charts?time=at&keys=climate%2Ftemperature`);
    await page.getByText('points of').first().waitFor();
    await see(visitor, `${look}-meaning-chart`, found);
    await page.goto(`/devices/${room.id}/charts?time=at&keys=climate%2Ftemperature,climate%2Fhumidity&view=split`);
    await page.getByText('points of').first().waitFor();
    await see(visitor, `${look}-meaning-split`, found);
    await page.goto('/dashboards');
    await page.getByText('Relative humidity').first().waitFor();
    await page.getByText('Temperature').first().waitFor();
    await see(visitor, `${look}-meaning-board`, found);
    await page.goto(`/projects/${project}/design`);
    await node(page, 'climate').click();
    if (look !== 'desk') await page.getByRole('button', { name: 'Properties' }).click();
    await page.getByText('payload.temperature', { exact: true }).click();
    await page.getByLabel('Unit').first().waitFor();
    await page.getByText('Meaning of keys').scrollIntoViewIfNeeded();
    await see(visitor, `${look}-meaning-canvas`, found);
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }, 120_000);
});
