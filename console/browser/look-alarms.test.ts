import type { Page } from 'playwright-core';
import { beforeEach, describe, expect, it } from 'vitest';
import { type Found, LOOKS, see } from './look';
import { Visitor } from './pages';
import { picture } from './picture';
import { browser, fleet, server, stage } from './stage';

/** Alarms wherever they are shown, and dashboards on the pages of devices, as they are seen. */

const MINUTE_MS = 60_000;
const SEVERITIES = ['critical', 'warning', 'info'] as const;
const TITLES = {
  critical: '{{ device.name }} is too warm for what is stored in it',
  warning: 'The door of {{ device.name }} is open',
  info: 'Filter',
};
const COMMENT = 'The door of the dock stood open. I close it, and look again at noon.';

let room: { id: string; token: string };
let project: string;
const found: Found = new Map();

/** A design with an alarm of each severity, which its member in a reading raises and clears. */
function alarming(): Record<string, unknown> {
  const to = (element: string, ability: string, more: object = {}): object => ({ element, ability, ...more });
  const ofEach = SEVERITIES.flatMap((severity) => [
    [
      `is ${severity}`,
      {
        type: 'condition',
        properties: { expression: `has(payload.${severity}) && payload.${severity}` },
        triggers: {
          true: [to(severity, 'raise', { arguments: { key: "'sensor-4'" } })],
          false: [to(severity, 'clear', { arguments: { key: "'sensor-4'" } })],
        },
      },
    ],
    [severity, { type: 'alarm', properties: { title: TITLES[severity], severity } }],
  ]);
  return {
    reading: {
      type: 'deviceEvent',
      triggers: {
        eventReceived: [to('climate', 'store'), ...SEVERITIES.map((severity) => to(`is ${severity}`, 'evaluate'))],
      },
    },
    climate: {
      type: 'storage',
      properties: { fields: { 'payload.temperature': { title: 'Temperature', unit: '°C', low: 2, high: 6 } } },
    },
    limit: { type: 'deviceSetting', properties: { title: 'Alarm limit', inputType: 'number', defaultValue: 8 } },
    ...Object.fromEntries(ofEach),
  };
}

/** Dashboards of the project: a floor plan and what is bound to the device that is looked at, and another one. */
async function boards(device: { id: string; name: string }, other: { id: string; name: string }): Promise<void> {
  const path = `/organizations/${fleet.organizationId}/dashboards`;
  const put = (type: string, title: string, [x, y, w, h]: number[], settings: object): object => {
    return { id: type, type, title, x, y, w, h, settings };
  };
  const keys = [{ deviceId: device.id, deviceName: device.name, elementName: 'climate', path: 'temperature' }];
  const places = [
    { ...device, x: 12, y: 20 },
    { ...other, x: 97, y: 96 },
  ];
  const plan = { picture: picture(400, 240, [70, 110, 150]).toString('base64'), places };
  const widgets = [
    put('picture', 'Hall 2', [0, 0, 6, 5], plan),
    put('value', '', [6, 0, 3, 2], { keys, isOnThis: true }),
    put('selection', 'Warmest', [9, 0, 3, 2], { figure: 'highest', keys, projectUuid: project }),
    put('line', '', [6, 2, 6, 3], { keys, isOnThis: true }),
  ];
  const options = { organizationId: fleet.organizationId, projectUuid: project };
  for (const name of ['Each cold room', 'The plan of the whole of the cold store in Hamburg'])
    await fleet.call('POST', path, { name, projectUuid: project, options, configuration: { widgets } });
}

stage(async () => {
  project = await fleet.project('Cold chain', alarming());
  room = await fleet.device('Cold room A1', project);
  for (const temperature of [3.9, 4.4, 7.2]) await fleet.event(room.token, { temperature });
  await fleet.event(room.token, { temperature: 9.5, critical: true, warning: true, info: true });
  // Some are raised again, some are over.
  await fleet.event(room.token, { temperature: 9.9, critical: true, warning: true });
  const other = { id: '', name: '' };
  for (const name of ['Dock', 'The blast freezer behind the dock of the northern hall']) {
    const { id, token } = await fleet.device(name, project);
    await fleet.event(token, { temperature: 8.1, warning: true });
    Object.assign(other, { id, name });
  }
  const { data } = await fleet.call<{ data: { id: string; severity: string; deviceId: string }[] }>('GET', '/alarms');
  const { id: me } = await fleet.call<{ id: string }>('GET', '/auth/user');
  const ofRoom = data.filter(({ deviceId }) => deviceId === room.id);
  for (const { id, severity } of ofRoom) {
    if (severity === 'critical') await fleet.call('PUT', `/alarms/${id}`, { assigneeId: me, comment: COMMENT });
    if (severity === 'warning') await fleet.call('PUT', `/alarms/${id}`, { acknowledged: true });
  }
  await boards({ id: room.id, name: 'Cold room A1' }, other);
});
beforeEach(() => found.clear());

describe.each(Object.entries(LOOKS))('in the look %s', (look, options) => {
  async function visit(scene: (page: Page, shot: (name: string) => Promise<void>) => Promise<void>): Promise<void> {
    const visitor = await Visitor.come(browser, server.url, options);
    await visitor.open();
    await scene(visitor.page, async (name) => {
      await see(visitor, `${look}-alarms-${name}`, found);
      const overflow = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;
      expect(await visitor.page.evaluate(overflow), `${name} is wider than the screen`).toBe(0);
    });
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }

  it('the page of alarms is free of faults', async () => {
    await visit(async (page, shot) => {
      await page.goto('/alarms');
      await page.getByRole('main').getByText('Assigned to').first().waitFor();
      await page.getByRole('main').getByText('Acknowledged by').first().waitFor();
      await shot('page');
      await page.getByRole('checkbox', { name: /^Select The door of Dock/ }).check();
      await page.getByRole('checkbox', { name: /^Select The door of The blast/ }).check();
      await page.getByRole('button', { name: 'Acknowledge (2)' }).waitFor();
      await shot('selected');
      await page
        .getByRole('main')
        .getByRole('link', { name: /too warm/ })
        .click();
      const drawer = page.getByRole('dialog');
      await drawer.getByRole('link', { name: 'Cold chain' }).waitFor();
      await drawer.getByText(COMMENT).waitFor();
      await drawer.getByRole('region', { name: 'The event before it' }).getByText('reading').first().waitFor();
      await shot('drawer');
      await drawer.getByText(COMMENT).scrollIntoViewIfNeeded();
      await shot('history');
      await page.goto('/alarms?severity=info&acknowledged=yes');
      await page.getByText('No alarm matches these filters').waitFor();
      await shot('none');
    });
  }, 120_000);

  it('alarms beside what else there is are free of faults', async () => {
    await visit(async (page, shot) => {
      await page.goto('/');
      await page.getByText('Look here first').waitFor();
      await shot('overview');
      await page.goto('/notifications');
      await page
        .getByRole('main')
        .getByRole('link', { name: /is too warm/ })
        .first()
        .waitFor();
      await shot('notices');
      await page.goto('/devices?filter[alarms.warning][gte]=1');
      await page
        .getByRole('img', { name: /^Active alarms/ })
        .first()
        .waitFor();
      await shot('devices');
      await page.goto(`/devices/${room.id}`);
      await page.getByRole('region', { name: 'Alarms of this device' }).getByText('Acknowledged by').waitFor();
      await shot('device');
    });
  }, 120_000);

  it('a chart with alarms, limits and the range before is free of faults', async () => {
    const from = new Date(Date.now() - 20 * MINUTE_MS).toISOString();
    const to = new Date(Date.now() + MINUTE_MS).toISOString();
    await visit(async (page, shot) => {
      await page.goto(`/devices/${room.id}/charts?from=${from}&to=${to}&before=on`);
      await page.getByText('alarms were raised in this range').waitFor();
      await shot('chart');
    });
  }, 120_000);

  it('dashboards of a device, and one from a file, are free of faults', async () => {
    await visit(async (page, shot) => {
      await page.goto(`/devices/${room.id}/board`);
      await page.getByRole('region', { name: 'Hall 2' }).getByRole('img').first().waitFor();
      await page.getByRole('region', { name: 'Warmest' }).getByRole('link').waitFor();
      await page.locator('.uplot').first().waitFor();
      await shot('board');
      await page.goto('/dashboards');
      await page.getByRole('region', { name: 'Hall 2' }).getByRole('img').first().waitFor();
      await page.locator('.uplot').first().waitFor();
      await shot('boards');
      const file = JSON.stringify({ name: 'Copy', options: {}, configuration: { widgets: [] } });
      await page
        .locator('input[type=file]')
        .setInputFiles({ name: 'Copy.json', mimeType: 'application/json', buffer: Buffer.from(file) });
      await page.getByRole('dialog').getByLabel('Name').waitFor();
      await shot('board-file');
      await page.keyboard.press('Escape');
      await page.getByRole('button', { name: 'Arrange' }).click();
      for (const [type, name] of [
        ['Picture or floor plan', 'picture'],
        ['Figure across devices', 'selection'],
        ['Text with headings and lists', 'markdown'],
      ] as const) {
        await page.getByRole('button', { name: 'Add a widget' }).click();
        await page.getByRole('dialog').getByLabel('Widget type').selectOption({ label: type });
        await shot(`widget-${name}`);
        await page.keyboard.press('Escape');
      }
    });
  }, 120_000);
});
