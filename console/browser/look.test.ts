import { beforeEach, describe, expect, it } from 'vitest';
import { type Found, LOOKS, see } from './look';
import { DESK, Visitor } from './pages';
import { browser, fleet, server, stage } from './stage';

const DEVICES = 40;

let device: { id: string; token: string };
let quiet: { id: string };
const found: Found = new Map();

stage(async () => {
  const project = await fleet.project('Cold chain');
  device = await fleet.device('Cold room A1', project, { description: 'Hall 2, behind the dock' });
  for (let hour = 0; hour < 12; hour += 1) {
    const temperature = 3 + Math.round(Math.sin(hour) * 20) / 10;
    await fleet.event(device.token, {
      temperature,
      humidity: 60 + hour,
      battery: 3.1,
      door: { open: hour % 4 === 0, seconds: hour * 7 },
    });
  }
  await fleet.event(device.token, { temperature: 9.4, wrong: 1 });
  quiet = await fleet.device('Dock door 3', await fleet.project('Doors', { knock: { type: 'deviceEvent' } }));
  for (let index = 0; index < DEVICES; index += 1) {
    const { token } = await fleet.device(`Cold room B${index}`, project);
    if (index % 3 > 0) await fleet.event(token, { temperature: [2, 4.5, 8.6, 24][index % 4] });
  }
  await fleet.call('POST', '/notifications/system', { message: 'Maintenance on Sunday from 06:00 to 06:15 UTC.' });
});

beforeEach(() => found.clear());

describe.each(Object.entries(LOOKS))('in the look %s', (look, options) => {
  it('every page for visitors is free of faults', async () => {
    const visitor = await Visitor.come(browser, server.url, options);
    for (const path of ['/', '/register', '/forgot', '/reset', '/verified']) {
      await visitor.page.goto(path);
      await visitor.page.getByRole('heading', { level: 1 }).waitFor();
      await see(visitor, `${look}-visitor${path.replaceAll('/', '-')}`, found);
    }
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  });

  it('every page for users is free of faults', async () => {
    const visitor = await Visitor.come(browser, server.url, options);
    const { page } = visitor;
    await visitor.open();
    const pages: Record<string, [path: string, ready: string]> = {
      overview: ['/', 'Look here first'],
      devices: ['/devices', 'Cold room A1'],
      events: [`/devices/${device.id}/events`, '1 error'],
      queue: [`/devices/${device.id}/queue`, 'target'],
      settings: [`/devices/${device.id}/settings`, 'Alarm limit'],
      data: [`/devices/${device.id}/data`, 'stored'],
      'device-empty': [`/devices/${quiet.id}`, 'No value yet'],
      'events-empty': [`/devices/${quiet.id}/events`, 'No event yet'],
      'data-empty': [`/devices/${quiet.id}/data`, 'No data yet'],
      'settings-empty': [`/devices/${quiet.id}/settings`, 'No settings'],
      'device-gone': ['/devices/none', 'It was deleted'],
      notifications: ['/notifications', 'Maintenance'],
      'nothing-found': ['/devices?q=zzz', 'No device matches'],
      'no-page': ['/nowhere', 'The address may be mistyped'],
    };
    for (const [name, [path, ready]] of Object.entries(pages)) {
      await page.goto(path);
      await page.getByText(ready).first().waitFor();
      if (name === 'events') await page.locator('[data-event] summary').first().click();
      await see(visitor, `${look}-${name}`, found);
    }
    await page.goto('/devices?new');
    await page.getByRole('button', { name: 'Create the device' }).waitFor();
    await see(visitor, `${look}-create`, found);
    await page.getByLabel('Name', { exact: true }).fill('New fridge');
    await page.getByRole('button', { name: 'Create the device' }).click();
    await page.getByTestId('token').waitFor();
    await see(visitor, `${look}-token`, found);
    await page.goto(`/devices/${device.id}`);
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'Delete the device' }).click();
    await page.getByLabel(/Type/).waitFor();
    await see(visitor, `${look}-delete`, found);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: /account of/ }).click();
    await page.getByRole('menuitem', { name: 'Sign out' }).waitFor();
    await see(visitor, `${look}-account`, found);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: /Organization:/ }).click();
    await page.getByLabel('Find an organization').waitFor();
    await see(visitor, `${look}-organizations`, found);
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }, 180_000);
});

describe('choices of a user', () => {
  it('of colours hold against the system, and from the first paint on', async () => {
    const visitor = await Visitor.come(browser, server.url, { ...DESK, colorScheme: 'light' });
    const { page } = visitor;
    await visitor.open();
    await page.getByRole('button', { name: /account of/ }).click();
    await page.getByRole('menuitemradio', { name: 'Dark' }).click();
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await expect.poll(ground).toBe('rgb(14, 21, 24)');
    await page.reload({ waitUntil: 'commit' });
    await page.waitForSelector('#app', { state: 'attached' });
    expect(await page.evaluate(() => document.documentElement.dataset.theme)).toBe('dark');
    await visitor.leave();
    expect(visitor.faults).toEqual([]);
  });

  it('of language change every word', async () => {
    const visitor = await Visitor.come(browser, server.url);
    const { page } = visitor;
    await visitor.open();
    await page.getByRole('button', { name: /account of/ }).click();
    await page.getByRole('menuitemradio', { name: 'Deutsch' }).click();
    await page.getByText('Hier zuerst hinsehen').waitFor();
    expect(await page.evaluate(() => document.documentElement.lang)).toBe('de');
    await visitor.leave();
    expect(visitor.faults).toEqual([]);
  });
});

describe('with the keyboard alone', () => {
  it('one signs in, and comes to the content', async () => {
    const visitor = await Visitor.come(browser, server.url);
    const { page } = visitor;
    await page.goto('/devices');
    await page.getByLabel('Username or e-mail').focus();
    await page.keyboard.type('admin');
    await page.keyboard.press('Tab');
    await page.keyboard.type('keep-it-cold-5');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
    await page.keyboard.press('Tab');
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe('Skip to the content');
    await page.keyboard.press('Enter');
    await expect.poll(() => page.evaluate(() => location.hash)).toBe('#main');
    await visitor.leave();
    expect(visitor.faults).toEqual([]);
  });
});
