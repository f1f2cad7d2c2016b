import type { Locator } from 'playwright-core';
import { beforeEach, describe, expect, it } from 'vitest';
import { Visitor } from './pages';
import { browser, fleet, server, stage, takeAPhone, visitor, withVisitor } from './stage';

/** Alarms: the page, what leads to it, and what is done about them. */

const PASSWORD = 'cold-rooms-7';
const ALARMING = {
  reading: {
    type: 'deviceEvent',
    triggers: {
      eventReceived: [
        { element: 'climate', ability: 'store' },
        { element: 'isWarm', ability: 'evaluate' },
      ],
    },
  },
  climate: { type: 'storage' },
  isWarm: {
    type: 'condition',
    properties: { expression: 'payload.temperature > 8' },
    triggers: { true: [{ element: 'warm', ability: 'raise' }], false: [{ element: 'warm', ability: 'clear' }] },
  },
  warm: { type: 'alarm', properties: { title: '{{ device.name }} is too warm', severity: 'critical' } },
  cool: { type: 'cloudEvent' },
};

let project: string;
let count = 0;

interface AlarmList {
  data: { id: string; acknowledged: boolean; state: string; deviceId: string }[];
}

const alarmsOf = (id: string): Promise<AlarmList> => fleet.call('GET', `/alarms?filter[deviceId][eq]=${id}`);

/** A device of a name of its own, with an alarm. */
async function warmDevice(name: string): Promise<{ id: string; token: string; name: string; alarm: string }> {
  const device = await fleet.device(`${name} ${(count += 1)}`, project);
  await fleet.event(device.token, { temperature: 9.5 });
  await expect.poll(async () => (await alarmsOf(device.id)).data.length).toBe(1);
  const [alarm] = (await alarmsOf(device.id)).data;
  return { ...device, name: `${name} ${count}`, alarm: alarm?.id ?? '' };
}

stage(async () => {
  project = await fleet.project('Cold chain', ALARMING);
  await fleet.user('tech', 'technician');
  await fleet.user('viewer', 'basicUser');
});
withVisitor();

const row = (name: string): Locator =>
  visitor.page
    .getByRole('main')
    .getByRole('listitem')
    .filter({ hasText: `${name} is too warm` });
const bell = (): Locator => visitor.page.getByRole('banner').getByRole('link', { name: /active alarm/ });

describe('the page of alarms', () => {
  let room: Awaited<ReturnType<typeof warmDevice>>;
  beforeEach(async () => {
    room = await warmDevice('Room');
  });

  it('shows who is in need, and one is acknowledged with a comment and a history', async () => {
    const { page } = visitor;
    await visitor.open('/alarms', 'tech', PASSWORD);
    await row(room.name).getByText('Critical').waitFor();
    await row(room.name).getByText('Active').waitFor();
    await row(room.name)
      .getByRole('link', { name: `${room.name} is too warm` })
      .click();
    const drawer = page.getByRole('dialog', { name: `${room.name} is too warm` });
    await expect.poll(() => new URL(page.url()).searchParams.get('alarm')).toBe(room.alarm);
    await drawer.getByRole('region', { name: 'The event before it' }).getByText('{"temperature":9.5}').waitFor();
    await drawer.getByLabel('Comment (optional)').fill('I am on my way');
    await drawer.getByRole('button', { name: 'Assign to me' }).click();
    await drawer.getByText('Assigned to Ada Keller').first().waitFor();
    await drawer.getByRole('button', { name: 'Acknowledge', exact: true }).click();
    await drawer.getByText('I am on my way').waitFor();
    await drawer.getByRole('button', { name: 'Withdraw the acknowledgement' }).waitFor();
    await page.keyboard.press('Escape');
    await drawer.waitFor({ state: 'detached' });
    await row(room.name).getByText('Acknowledged by Ada Keller').waitFor();
    await row(room.name).getByText('Assigned to Ada Keller').waitFor();
  });

  it('acknowledges many at once, by the mouse and by keys', async () => {
    const { page } = visitor;
    const others = [await warmDevice('Room'), await warmDevice('Room')];
    await visitor.open('/alarms?acknowledged=no', 'tech', PASSWORD);
    const [one, two] = others;
    for (const { name } of others)
      await page.getByRole('checkbox', { name: `Select ${name} is too warm of ${name}`, exact: true }).check();
    await page.getByRole('button', { name: 'Acknowledge (2)' }).click();
    await page.getByText('Acknowledged: 2. Refused: 0.').waitFor();
    for (const { name } of others) await row(name).waitFor({ state: 'detached' });
    for (const device of [one, two])
      expect((await alarmsOf(device?.id ?? '')).data[0]).toMatchObject({ acknowledged: true });
    const link = row(room.name).getByRole('link', { name: `${room.name} is too warm` });
    await link.focus();
    await page.keyboard.press('x');
    await page.getByRole('button', { name: 'Acknowledge (1)' }).waitFor();
    await page.keyboard.press('a');
    await row(room.name).waitFor({ state: 'detached' });
    expect((await alarmsOf(room.id)).data[0]).toMatchObject({ acknowledged: true });
  });

  it('counts what is selected as it is now, whoever has acknowledged it meanwhile', async () => {
    const { page } = visitor;
    const other = await warmDevice('Room');
    await visitor.open('/alarms?acknowledged=no', 'tech', PASSWORD);
    for (const { name } of [room, other])
      await page.getByRole('checkbox', { name: `Select ${name} is too warm of ${name}`, exact: true }).check();
    await page.getByRole('button', { name: 'Acknowledge (2)' }).waitFor();
    await fleet.call('PUT', `/alarms/${other.alarm}`, { acknowledged: true });
    await page.getByRole('button', { name: 'Acknowledge (1)' }).click();
    await page.getByText('Acknowledged: 1. Refused: 0.').waitFor();
  });

  it('is filtered, and its filters stand in the address', async () => {
    const { page } = visitor;
    await visitor.open('/alarms', 'tech', PASSWORD);
    await row(room.name).waitFor();
    await page.getByLabel('Severity').selectOption('info');
    await page.getByText('No alarm matches these filters').waitFor();
    expect(new URL(page.url()).searchParams.get('severity')).toBe('info');
    await page.getByLabel('Severity').selectOption('critical');
    await row(room.name).waitFor();
    await page.getByLabel('State').selectOption('cleared');
    await row(room.name).waitFor({ state: 'detached' });
    await page.reload();
    expect(await page.getByLabel('State').inputValue()).toBe('cleared');
    await page.goto(`/alarms?project=${project}&state=active`);
    await row(room.name).waitFor();
  });

  it('follows what comes and goes by itself', async () => {
    await visitor.open('/alarms', 'tech', PASSWORD);
    await row(room.name).waitFor();
    const next = await warmDevice('Late');
    await row(next.name).getByText('Active').waitFor();
    await fleet.event(next.token, { temperature: 4 });
    await row(next.name).getByText('Cleared').waitFor();
  });

  it('is read by who may not acknowledge, and says when an alarm is gone', async () => {
    const { page } = visitor;
    await visitor.open('/alarms', 'viewer', PASSWORD);
    await row(room.name).getByText('Not acknowledged').waitFor();
    expect(await page.getByRole('button', { name: /Acknowledge/ }).count()).toBe(0);
    await page.goto(`/alarms?alarm=${project}`);
    await page.getByRole('dialog').getByText('This alarm is gone').waitFor();
  });
});

describe('alarms elsewhere', () => {
  it('are counted beside the bell, and asked for by nobody who is not signed in', async () => {
    const { page } = visitor;
    await warmDevice('Counted');
    let asked = 0;
    page.on('request', (request) => (asked += Number(request.url().includes('/alarms/summary'))));
    await page.goto('/');
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    await page.waitForLoadState('networkidle');
    expect(asked).toBe(0);
    await visitor.signIn();
    await bell().click();
    await page.getByRole('heading', { level: 1, name: 'Alarms' }).waitFor();
    expect(asked).toBeGreaterThan(0);
  });

  it('are counted again as soon as a stream tells of one', async () => {
    await visitor.open('/');
    await bell().waitFor();
    // Polls are farther apart than this.
    for (let time = 0; time < 3; time += 1) {
      const before = await bell().getAttribute('aria-label');
      await warmDevice('Told');
      await expect.poll(() => bell().getAttribute('aria-label'), { timeout: 10_000 }).not.toBe(before);
    }
  });

  it('burn on the map', async () => {
    const { page } = visitor;
    const device = await fleet.device('Mapped', project, { meta: { latitude: 47, longitude: 8 } });
    await fleet.event(device.token, { temperature: 9.5 });
    await expect.poll(async () => (await alarmsOf(device.id)).data.length).toBe(1);
    await visitor.open('/');
    await page.getByRole('button', { name: /^Mapped: .*Alarms: Critical$/ }).waitFor();
  });

  it('stand on their device, its row and its charts until they are over', async () => {
    const { page } = visitor;
    const room = await warmDevice('Shown');
    await visitor.open(`/devices?q=${encodeURIComponent(room.name)}`, 'tech', PASSWORD);
    await page.getByRole('img', { name: /^Active alarms: 1 critical/ }).waitFor();
    await page.goto(`/devices/${room.id}/charts?range=hour`);
    await page.getByText('1 alarm was raised in this range').waitFor();
    const own = page.getByRole('region', { name: 'Alarms of this device' });
    await own.getByRole('button', { name: /^Acknowledge/ }).click();
    await own.getByText('Acknowledged by').waitFor();
    // It is over with the event that clears it.
    await fleet.event(room.token, { temperature: 4 });
    await own.waitFor({ state: 'detached' });
  });
});

describe('alarms on a dashboard', () => {
  const path = (): string => `/organizations/${fleet.organizationId}/dashboards`;
  const widget = (): Locator => visitor.page.getByRole('region', { name: 'Alarms', exact: true });
  const line = (name: string): Locator =>
    widget()
      .getByRole('listitem')
      .filter({ hasText: `${name} is too warm` });
  const make = (settings: object, options: object = {}): Promise<{ id: string }> => {
    const widgets = [{ id: 'a', type: 'alarms', title: 'Alarms', x: 0, y: 0, w: 12, h: 5, settings }];
    return fleet.call('POST', path(), { name: 'Night', options, configuration: { widgets } });
  };

  it('come by themselves, are acknowledged by who may, and lead to all that happened', async () => {
    const { page } = visitor;
    const room = await warmDevice('Board');
    const board = await make({ severity: 'warning', projectUuid: project });
    await visitor.open(`/dashboards?board=${board.id}`, 'tech', PASSWORD);
    await line(room.name).getByText('Critical').waitFor();
    const late = await warmDevice('Late');
    await line(late.name)
      .getByRole('button', { name: /^Acknowledge/ })
      .click();
    await line(late.name).getByText('Acknowledged by').waitFor();
    expect((await alarmsOf(late.id)).data[0]).toMatchObject({ acknowledged: true });
    await line(late.name)
      .getByRole('link', { name: `${late.name} is too warm` })
      .click();
    await page.getByRole('dialog', { name: `${late.name} is too warm` }).waitFor();
    await fleet.text('DELETE', `${path()}/${board.id}`);
  });

  it('are chosen by severity and state, of all devices or of one', async () => {
    const { page } = visitor;
    const room = await warmDevice('Chosen');
    const board = await fleet.call<{ id: string }>('POST', path(), { name: 'Night', options: {}, configuration: {} });
    await visitor.open(`/dashboards?board=${board.id}`);
    await page.getByRole('button', { name: 'Choose another widget' }).click();
    const form = page.getByRole('dialog');
    await form.getByLabel('Widget type').selectOption({ label: 'Alarms' });
    await form.getByLabel('Severity, at least').selectOption({ label: 'Critical' });
    await form.getByLabel('State').selectOption({ label: 'Not acknowledged' });
    await form.getByLabel('Rows at most').fill('3');
    await form.getByLabel('Alarms of').selectOption({ label: 'One device' });
    await form.getByRole('searchbox').fill(room.name);
    await form.getByRole('button', { name: room.name, exact: true }).click();
    await form.getByText(`Chosen: ${room.name}`).waitFor();
    await form.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Arrange' }).waitFor();
    await page
      .getByRole('region', { name: `${room.name}: Alarms` })
      .getByText('is too warm')
      .waitFor();
    const saved = await fleet.call<{ configuration: { widgets: object[] } }>('GET', `${path()}/${board.id}`);
    const settings = { severity: 'critical', alarmState: 'unacknowledged', rows: 3, device: { id: room.id } };
    expect(saved.configuration.widgets).toMatchObject([{ type: 'alarms', settings }]);
    await fleet.text('DELETE', `${path()}/${board.id}`);
  });

  it('are those of the device on whose page it is, where it is bound to that', async () => {
    const [one, other] = [await warmDevice('Bound'), await warmDevice('Bound')];
    const board = await make({ isOnThis: true }, { projectUuid: project });
    await visitor.open(`/devices/${one.id}/board?board=${board.id}`, 'viewer', PASSWORD);
    await line(one.name).getByText('Not acknowledged').waitFor();
    expect(await line(other.name).count()).toBe(0);
    await fleet.text('DELETE', `${path()}/${board.id}`);
  });
});

describe('the manager of a plant, at night and on a phone', () => {
  it('goes from a notification to what was done in six taps', async () => {
    const room = await warmDevice('Night');
    await takeAPhone();
    const { page } = visitor;
    let taps = 0;
    const tap = async (on: Locator): Promise<void> => {
      taps += 1;
      await on.tap();
    };
    await visitor.open('/');
    await tap(page.getByRole('banner').getByRole('link', { name: /^Notifications/ }));
    await tap(
      page
        .getByRole('main')
        .getByRole('link', { name: `${room.name} is too warm` })
        .first(),
    );
    const drawer = page.getByRole('dialog', { name: `${room.name} is too warm` });
    // The event that caused it stands in what the alarm says.
    await drawer.getByRole('region', { name: 'The event before it' }).getByText('{"temperature":9.5}').waitFor();
    await tap(drawer.getByRole('link', { name: 'Send the device a command' }));
    await page.getByLabel('Element').fill('cool');
    await tap(page.getByRole('button', { name: 'Send to the device', exact: true }));
    await page.getByText('cool', { exact: true }).first().waitFor();
    await tap(page.getByRole('button', { name: `Acknowledge ${room.name} is too warm of ${room.name}` }));
    await expect.poll(async () => (await alarmsOf(room.id)).data[0]?.acknowledged).toBe(true);
    expect(taps).toBeLessThanOrEqual(6);
  });
});

describe('in German', () => {
  it('alarms speak German', async () => {
    await warmDevice('Raum');
    const other = await Visitor.come(browser, server.url, { locale: 'de-DE' });
    await other.open('/alarms');
    await other.page.getByRole('heading', { level: 1, name: 'Alarme' }).waitFor();
    await other.page
      .getByRole('button', { name: /quittieren$/ })
      .first()
      .waitFor();
    expect(await other.page.getByRole('main').innerText()).not.toMatch(/Acknowledge|Active/);
    await other.leave();
    expect(other.faults).toEqual([]);
  });
});
