import type { Locator } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { DESK, PHONE, Visitor } from './pages';
import { type Found, see } from './look';
import { browser, fleet, server, stage, visitor, withVisitor } from './stage';

/** A dashboard on a screen: by a link, in a browser that has no session. */

let fridge: { id: string; token: string };
let boardId: string;

const COMES_WITHIN_MS = 30_000;

stage(async () => {
  const to = (element: string, ability: string) => ({ element, ability });
  const project = await fleet.project('Cold chain', {
    reading: { type: 'deviceEvent', triggers: { eventReceived: [to('climate', 'store')] } },
    climate: {
      type: 'storage',
      properties: { fields: { 'payload.temperature': { title: 'Temperature', unit: '°C', high: 8 } } },
    },
  });
  fridge = await fleet.device('Fridge', project, { meta: { latitude: 46.5, longitude: 7.25 } });
  await fleet.event(fridge.token, { temperature: 4 });
  const key = { deviceId: fridge.id, deviceName: 'Fridge', elementName: 'climate', path: 'temperature' };
  const device = { id: fridge.id, name: 'Fridge' };
  const widgets = [
    { id: 'now', type: 'value', x: 0, y: 0, w: 4, h: 2, settings: { keys: [key] } },
    { id: 'gauge', type: 'gauge', x: 4, y: 0, w: 4, h: 2, title: 'Dial', settings: { keys: [key], min: 0, max: 10 } },
    { id: 'bars', type: 'bar', x: 8, y: 0, w: 4, h: 2, title: 'Bars', settings: { keys: [key] } },
    { id: 'line', type: 'line', x: 0, y: 2, w: 6, h: 3, title: 'Course', settings: { keys: [key] } },
    {
      id: 'table',
      type: 'table',
      x: 6,
      y: 2,
      w: 6,
      h: 3,
      title: 'Devices',
      settings: { elementName: 'climate', paths: ['temperature'] },
    },
    { id: 'map', type: 'map', x: 0, y: 5, w: 4, h: 3, title: 'Places', settings: {} },
    { id: 'status', type: 'status', x: 4, y: 5, w: 4, h: 2, title: 'Statuses', settings: {} },
    { id: 'count', type: 'selection', x: 8, y: 5, w: 2, h: 2, title: 'Counted', settings: { figure: 'count' } },
    { id: 'events', type: 'events', x: 4, y: 7, w: 4, h: 2, title: 'Said', settings: { device } },
    {
      id: 'press',
      type: 'button',
      x: 8,
      y: 7,
      w: 2,
      h: 2,
      title: 'Press',
      settings: { device, elementName: 'reading', payload: '{"pin": 1234}' },
    },
    { id: 'words', type: 'markdown', x: 10, y: 5, w: 2, h: 2, title: 'Words', settings: { text: '# Welcome' } },
  ];
  const path = `/organizations/${fleet.organizationId}/dashboards`;
  boardId = (await fleet.call<{ id: string }>('POST', path, { name: 'Hall', configuration: { widgets } })).id;
});
withVisitor();

const links = (): string => `/organizations/${fleet.organizationId}/dashboards/${boardId}/links`;

/** The address of a new link, made through the interface. */
async function link(name = 'screen'): Promise<string> {
  const expiresAt = new Date(Date.now() + 86_400_000).toISOString();
  const { url } = await fleet.call<{ url: string }>('POST', links(), { name, expiresAt });
  return `/wall${new URL(url).hash}`;
}

async function end(): Promise<void> {
  const { data } = await fleet.call<{ data: { id: string }[] }>('GET', links());
  for (const { id } of data) await fleet.text('DELETE', `${links()}/${id}`);
}

describe('a dashboard on a screen', () => {
  it('is shown by a link that is made in its menu, and no more once that is deleted', async () => {
    const { page } = visitor;
    await visitor.open('/dashboards');
    const menu = async (): Promise<void> => {
      await page.getByRole('button', { name: 'More actions for dashboards' }).click();
      await page.getByRole('menuitem', { name: 'Links for screens' }).click();
    };
    await menu();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('There is no link yet.').waitFor();
    await dialog.getByRole('button', { name: 'New link' }).click();
    await dialog.getByLabel('Name').fill('Entrance');
    await dialog.getByLabel('Ends after').selectOption({ label: '1 day' });
    await dialog.getByRole('button', { name: 'Create link' }).click();
    const address = (await dialog.getByTestId('link').textContent()) ?? '';
    expect(address).toMatch(/\/wall#[0-9a-f-]{36}\.[0-9a-f]{64}$/);
    await dialog.getByRole('button', { name: 'I have saved it' }).click();
    await dialog.getByText('Entrance').waitFor();

    const screen = await Visitor.come(browser, server.url);
    const asked: string[] = [];
    screen.page.on('request', (request) => asked.push(request.url()));
    await screen.page.goto(address);
    await screen.page.getByRole('heading', { level: 1, name: 'Hall' }).waitFor();
    const widget = (name: string): Locator => screen.page.getByRole('region', { name });
    const value = widget('Fridge: Temperature').locator('.large');
    await expect.poll(() => value.textContent()).toContain('4 °C');
    // Nothing of a session, no side bar, and the link in no address that is asked for.
    expect(await screen.page.getByRole('navigation').count()).toBe(0);
    expect(asked.filter((url) => url.includes(address.split('#')[1] ?? ''))).toEqual([]);
    expect(asked.filter((url) => url.includes('/v2/auth/') || url.includes('/v2/devices'))).toEqual([]);

    await fleet.event(fridge.token, { temperature: 9 });
    await expect.poll(() => value.textContent(), { timeout: COMES_WITHIN_MS }).toContain('9 °C');
    await widget('Fridge: Temperature').getByText('above 8 °C').waitFor();

    await dialog.getByRole('button', { name: 'Delete the link Entrance' }).click();
    await dialog.getByText('There is no link yet.').waitFor();
    await screen.page.getByRole('heading', { name: 'This link has ended' }).waitFor({ timeout: COMES_WITHIN_MS });
    await screen.leave();
    expect(screen.faults).toEqual([]);
    expect(screen.strays).toEqual([]);
  });

  it('shows what each of its widgets needs, and sends nothing', async () => {
    const { page } = visitor;
    await page.goto(await link());
    const widget = (name: string): Locator => page.getByRole('region', { name });
    await widget('Dial').getByRole('img').waitFor();
    await widget('Bars').getByText('Temperature').waitFor();
    await widget('Course').locator('canvas').first().waitFor();
    await widget('Devices').getByRole('columnheader', { name: 'Temperature (°C)' }).waitFor();
    await widget('Devices').getByRole('cell', { name: 'Fridge' }).waitFor();
    await widget('Places').locator('svg').first().waitFor();
    await widget('Statuses').getByText('Critical').waitFor();
    await expect.poll(() => widget('Counted').locator('.large').textContent()).toContain('1');
    await widget('Said').getByText('reading').first().waitFor();
    await widget('Words').getByText('Welcome').waitFor();
    await widget('Press').getByText('Only shown here.').waitFor();
    expect(await widget('Press').getByRole('button').count()).toBe(0);
    expect(await page.content()).not.toContain('1234');
    await end();
  });

  it('says that the connection is lost, and comes back by itself', async () => {
    const { page } = visitor;
    await page.goto(await link());
    await page.getByRole('heading', { level: 1, name: 'Hall' }).waitFor();
    await page.getByRole('region', { name: 'Bars' }).getByText('Temperature').waitFor();
    await visitor.context.setOffline(true);
    await page.getByText('Connection lost.').waitFor({ timeout: COMES_WITHIN_MS });
    // What is there stays.
    await page.getByRole('region', { name: 'Bars' }).getByText('Temperature').waitFor();
    await visitor.context.setOffline(false);
    await page.getByText('Connection lost.').waitFor({ state: 'detached', timeout: COMES_WITHIN_MS });
    await end();
  });

  it('says so where the address holds no link, or one that nobody knows', async () => {
    const { page } = visitor;
    await page.goto('/wall');
    await page.getByRole('heading', { name: 'This address shows no dashboard' }).waitFor();
    await page.goto('/wall#01890a5d-ac96-774b-bcce-b302099a8057.0');
    await page.getByRole('heading', { name: 'This link has ended' }).waitFor();
    // Another address on the same page: what stands there is asked for once more, and not without end.
    await page.goto(await link());
    await page.getByRole('region', { name: 'Said' }).getByText('reading').first().waitFor();
    let asked = 0;
    page.on('request', () => (asked += 1));
    await page.goto('/wall#01890a5d-ac96-774b-bcce-b302099a8057.0');
    await page.getByRole('heading', { name: 'This link has ended' }).waitFor();
    expect(asked).toBeLessThan(40);
    await end();
  });

  it('is free of faults for the eye, on a wall and on a phone', async () => {
    const found: Found = new Map();
    for (const [name, options] of Object.entries({ desk: DESK, phone: PHONE })) {
      const screen = await Visitor.come(browser, server.url, options);
      await screen.page.goto(await link(name));
      await screen.page.getByRole('region', { name: 'Course' }).locator('canvas').first().waitFor();
      await screen.page.getByRole('region', { name: 'Said' }).getByText('reading').first().waitFor();
      await see(screen, `${name}-wall`, found);
      await screen.page.goto('/wall#ended');
      await screen.page.getByRole('heading', { name: 'This link has ended' }).waitFor();
      await see(screen, `${name}-wall-ended`, found);
      await screen.leave();
    }
    await end();
    expect(Object.fromEntries(found)).toEqual({});
  });
});
