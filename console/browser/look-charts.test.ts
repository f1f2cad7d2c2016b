import { beforeEach, describe, expect, it } from 'vitest';
import { type Found, LOOKS, see } from './look';
import { Visitor } from './pages';
import { browser, fleet, server, stage } from './stage';

const HOURS = 25;
const EVERY_S = 40;
const PLACES: readonly [name: string, lat: number, lon: number][] = [
  ['Zürich', 47.37, 8.54],
  ['Hamburg', 53.55, 9.99],
  ['Lyon', 45.76, 4.83],
  ['Gent', 51.05, 3.72],
  ['Milano', 45.46, 9.19],
  ['Wien', 48.21, 16.37],
  ['Oslo', 59.91, 10.75],
  ['Madrid', 40.42, -3.7],
];
const TEMPERATURES = [2.4, 9.1, 4.2, 24, 3.3];

let room: { id: string; token: string };
let quiet: { id: string };
const found: Found = new Map();

/** A day of a cold room, which was without power for a while. */
function day(deviceId: string, end: number): object[] {
  const count = (HOURS * 3_600) / EVERY_S;
  return Array.from({ length: count }, (_, index) => {
    const at = end - (count - index) * EVERY_S * 1_000;
    const noise = Math.sin(index * 12.9898) * 0.5;
    return {
      elementName: 'reading',
      deviceId,
      payload: {
        at: new Date(at).toISOString(),
        temperature: Math.round((4 + 2.5 * Math.sin(index / 190) + noise) * 100) / 100,
        humidity: Math.round(62 + 9 * Math.cos(index / 330) + 2 * noise),
        battery: Math.round((3.3 - index / 6_000) * 1_000) / 1_000,
      },
    };
  }).filter((_, index) => index < count * 0.35 || index > count * 0.42);
}

stage(async () => {
  const project = await fleet.project('Cold chain');
  room = await fleet.device('Cold room A1', project, { meta: { latitude: 47.39, longitude: 8.51 } });
  const events = day(room.id, Date.now());
  for (let first = 0; first < events.length; first += 1_000) {
    await fleet.call('POST', '/events/device/batch', events.slice(first, first + 1_000));
  }
  for (const [index, [name, latitude, longitude]] of PLACES.entries()) {
    const { token } = await fleet.device(`Cold store ${name}`, project, { meta: { latitude, longitude } });
    await fleet.event(token, { temperature: TEMPERATURES[index % TEMPERATURES.length], humidity: 60 + index });
  }
  quiet = await fleet.device('Dock door', await fleet.project('Doors', { knock: { type: 'deviceEvent' } }));
  await fleet.user('viewer', 'basicUser');
});
beforeEach(() => found.clear());

const key = (path: string, unit: string) => ({
  deviceId: room.id,
  deviceName: 'Cold room A1',
  elementName: 'climate',
  path,
  unit,
});

/** A dashboard with a widget of each kind. */
function board(): object {
  const put = (type: string, title: string, [x, y, w, h]: [number, number, number, number], settings: object = {}) => ({
    id: type,
    type,
    title,
    x,
    y,
    w,
    h,
    settings,
  });
  return {
    name: 'Cold chain today',
    options: { organizationId: fleet.organizationId, organizationName: 'Root' },
    configuration: {
      widgets: [
        put('status', '', [0, 0, 9, 2]),
        put('value', 'Cold room A1', [9, 0, 3, 2], { keys: [key('temperature', '°C')], timePath: 'at' }),
        put('map', '', [0, 2, 6, 5]),
        put('line', 'Climate', [6, 2, 6, 5], {
          keys: [key('temperature', '°C'), key('humidity', '%')],
          isSplit: true,
          timePath: 'at',
        }),
        put('table', 'Warmest rooms', [0, 7, 6, 4], { elementName: 'climate', paths: ['temperature', 'humidity'] }),
        put('gauge', 'Humidity', [6, 7, 3, 4], { keys: [key('humidity', '%')], min: 0, max: 100 }),
        put('text', 'On call', [9, 7, 3, 4], { text: 'Ada Keller, extension 47.\nAbove 8 °C call at once.' }),
        put('bar', 'Newest values', [0, 11, 6, 3], { keys: [key('temperature', '°C'), key('humidity', '%')] }),
        put('selection', '', [6, 11, 3, 3], { figure: 'highest', keys: [key('temperature', '°C')] }),
        put('button', '', [9, 11, 3, 3], {
          device: { id: room.id, name: 'Cold room A1' },
          elementName: 'cool',
          payload: '{}',
        }),
        put('events', '', [0, 14, 6, 4], { device: { id: room.id, name: 'Cold room A1' } }),
        put('switch', '', [6, 14, 3, 4], { device: { id: room.id, name: 'Cold room A1' }, settingName: 'limit' }),
        put('markdown', 'Handbook', [9, 14, 3, 4], {
          text: '# On call\n- **Ada Keller**, extension 47\n- [Handbook](https://example.com)\n\nAbove `8 °C` call *at once*.',
        }),
      ],
    },
  };
}

describe.each(Object.entries(LOOKS))('in the look %s', (look, options) => {
  it('charts are free of faults', async () => {
    const visitor = await Visitor.come(browser, server.url, options);
    const { page } = visitor;
    await visitor.open(`/devices/${room.id}`);
    const keys = 'climate%2Ftemperature,climate%2Fhumidity,climate%2Fbattery';
    const pages: Record<string, [path: string, ready: string]> = {
      chart: [`/charts?time=at&keys=climate%2Ftemperature`, 'points of'],
      'chart-split': [`/charts?time=at&view=split&keys=${keys}`, 'points of'],
      'chart-table': [`/charts?time=at&table=on&keys=climate%2Ftemperature,climate%2Fhumidity`, 'points of'],
      'chart-nothing': ['/charts?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z', 'Nothing in this range'],
    };
    for (const [name, [path, ready]] of Object.entries(pages)) {
      await page.goto(`/devices/${room.id}${path}`);
      await page.getByText(ready).first().waitFor();
      await see(visitor, `${look}-${name}`, found);
    }
    await page.goto(`/devices/${room.id}/charts?time=at`);
    await page.getByText('points of').waitFor();
    await page.getByRole('button', { name: 'Keys (1)' }).click();
    await page.getByLabel('Find a key').waitFor();
    await see(visitor, `${look}-chart-keys`, found);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Choose a range' }).click();
    await page.getByLabel('From').waitFor();
    await see(visitor, `${look}-chart-range`, found);
    await page.goto(`/devices/${quiet.id}/charts`);
    await page.getByText('No numbers yet').waitFor();
    await see(visitor, `${look}-chart-none`, found);
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }, 120_000);

  it('overview, map and last values are free of faults', async () => {
    // Some time after the others, so that there is a course.
    const at = new Date().toISOString();
    await fleet.event(room.token, { at, temperature: 3.4, humidity: 71, battery: 2.92 });
    const visitor = await Visitor.come(browser, server.url, options);
    const { page } = visitor;
    await visitor.open('/');
    await page.locator('[data-mark]').first().waitFor();
    await page.getByText('events in the last').waitFor();
    await page.locator('.map').scrollIntoViewIfNeeded();
    await see(visitor, `${look}-overview-map`, found);
    await page.goto(`/devices/${room.id}`);
    await page.locator('.spark').first().waitFor();
    await see(visitor, `${look}-device-sparks`, found);
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }, 120_000);

  it('dashboards are free of faults', async () => {
    await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, { configuration: {} });
    const visitor = await Visitor.come(browser, server.url, options);
    const { page } = visitor;
    await visitor.open('/dashboards');
    await page.getByText('Add your first widget').waitFor();
    await see(visitor, `${look}-board-none`, found);
    await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, board());
    await page.goto('/dashboards');
    await page.locator('.uplot').first().waitFor();
    await page.locator('[data-mark]').first().waitFor();
    await page.getByRole('img', { name: /on a scale/ }).waitFor();
    for (const words of ['Alarm limit', 'Handbook']) await page.getByText(words).first().waitFor();
    await see(visitor, `${look}-board`, found);
    await page.getByText('Handbook').first().scrollIntoViewIfNeeded();
    await see(visitor, `${look}-board-below`, found);
    await page.getByRole('button', { name: 'More actions for dashboards' }).click();
    await page.getByRole('menuitem', { name: 'Duplicate' }).waitFor();
    await see(visitor, `${look}-board-more`, found);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Arrange' }).click();
    await see(visitor, `${look}-board-arrange`, found);
    await page.getByRole('button', { name: 'Change Climate' }).click();
    await page.getByRole('region', { name: 'Preview' }).locator('.uplot').first().waitFor();
    await see(visitor, `${look}-board-widget`, found);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Settings of the dashboard' }).click();
    await page.getByText('Show it in the organizations beneath').waitFor();
    await see(visitor, `${look}-board-settings`, found);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Discard' }).click();
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }, 120_000);
});
