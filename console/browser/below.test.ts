import { describe, expect, it } from 'vitest';
import { DESK, PHONE, Visitor } from './pages';
import { browser, fleet, server, stage, visitor, withVisitor } from './stage';
import { PASSWORD, organization, person } from './tenants';

let project: string;
let device: { id: string; token: string };

// The project stands at the top, those who work with it beneath.
stage(async () => {
  project = await fleet.project('Cold chain');
  await fleet.project('Doors');
  const site = await organization(fleet, 'Hamburg', fleet.organizationId);
  await person(fleet, 'tech', 'technician', site);
  await person(fleet, 'first', 'technician', await organization(fleet, 'Bremen', fleet.organizationId));
  device = await fleet.device('Fridge', project, { organizationId: site });
  for (const temperature of [4, 5]) await fleet.event(device.token, { temperature });
});
withVisitor();

describe('who works beneath the organization of a project', () => {
  it('sees the project that devices there have, and makes more of them', async () => {
    const { page } = visitor;
    await visitor.open('/projects', 'tech', PASSWORD);
    await page.getByText('No project of your own yet').waitFor();
    const above = page.getByRole('region', { name: 'Of organizations above' });
    await above.getByRole('link', { name: 'Cold chain' }).waitFor();
    expect(await above.getByRole('listitem').count()).toBe(1);
    await page.goto('/devices');
    await page.getByRole('button', { name: 'New device' }).first().click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name', { exact: true }).fill('Freezer');
    await expect
      .poll(() => dialog.getByLabel('Project', { exact: true }).locator('option').allInnerTexts())
      .toEqual(['Cold chain', 'Doors']);
    await dialog.getByRole('button', { name: 'Create the device' }).click();
    await page.getByRole('heading', { name: 'Freezer is ready' }).waitFor();
    const { data } = await fleet.call<{ data: { name: string; projectUuid: string }[] }>('GET', '/devices?depth=all');
    expect(data.find(({ name }) => name === 'Freezer')?.projectUuid).toBe(project);
  });

  it('makes the first device of a new organization', async () => {
    const { page } = visitor;
    await visitor.open('/devices?new', 'first', PASSWORD);
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name', { exact: true }).fill('First of Bremen');
    await dialog.getByLabel('Project', { exact: true }).selectOption({ label: 'Cold chain' });
    await dialog.getByRole('button', { name: 'Create the device' }).click();
    await page.getByRole('heading', { name: 'First of Bremen is ready' }).waitFor();
  });

  it('gets from a device to its design, and tells apart values of one second', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/data`, 'tech', PASSWORD);
    const times = page.getByRole('row').filter({ hasText: /^\d/ }).getByRole('cell').first();
    await times.waitFor();
    expect(await times.innerText()).toMatch(/:\d\d\.\d{3}$/);
    await page.getByRole('main').getByRole('link', { name: 'Cold chain' }).click();
    await page.getByRole('heading', { name: 'Cold chain' }).waitFor();
    expect(new URL(page.url()).pathname).toBe(`/projects/${project}/design`);
    await page.getByText('Choose an element or a link to look at it.').waitFor();
    const [open, shut] = await page.evaluate(() => {
      const field = document.createElement('input');
      field.className = 'input';
      document.body.append(field);
      const look = (element: Element | null) => (element ? getComputedStyle(element).backgroundColor : '');
      const looks = [look(field), look(document.querySelector('.inspector input'))];
      field.remove();
      return looks;
    });
    expect(shut, 'a field that can only be read').not.toBe(open);
  });
});

describe('a board that is inherited', () => {
  it('says once, and quietly, that a widget shows what is out of reach', async () => {
    const above = await fleet.device('Head office', project);
    await fleet.event(above.token, { temperature: 21 });
    const key = { deviceId: above.id, deviceName: 'Head office', elementName: 'climate', path: 'temperature' };
    const widget = { x: 0, y: 0, w: 4, h: 3, settings: { keys: [key] } };
    const widgets = ['value', 'gauge', 'line'].map((type, place) => ({
      ...widget,
      id: type,
      type,
      title: type,
      x: 4 * place,
    }));
    await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, {
      name: 'Board',
      options: { organizationId: fleet.organizationId, organizationName: 'Root' },
      configuration: { widgets },
    });
    await fleet.call('PUT', `/organizations/${fleet.organizationId}`, { name: 'Root', childrenInheritDashboard: true });
    const { page } = visitor;
    await page.clock.install();
    let asked = 0;
    page.on('request', (request) => (asked += Number(request.url().includes(above.id))));
    await visitor.open('/dashboards', 'tech', PASSWORD);
    const told = page.getByText('a device that was deleted or that you have no access to');
    await expect.poll(() => told.count()).toBe(widgets.length);
    expect(await page.getByRole('main').getByRole('alert').count()).toBe(0);
    const before = asked;
    await page.clock.runFor(60_000);
    await page.waitForLoadState('networkidle');
    expect(asked).toBe(before);
    await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, { configuration: { widgets: [] } });
  });

  it('asks once for a device out of reach that a line chart shows beside others', async () => {
    const above = await fleet.device('Head office', project);
    const keys = [device, above].map(({ id }, place) => ({
      deviceId: id,
      deviceName: place === 0 ? 'Fridge' : 'Head office',
      elementName: 'climate',
      path: 'temperature',
    }));
    const widgets = [{ id: 'both', type: 'line', title: 'Both', x: 0, y: 0, w: 8, h: 4, settings: { keys } }];
    const board = `/organizations/${fleet.organizationId}/dashboard`;
    await fleet.call('PUT', board, {
      name: 'Board',
      options: { organizationId: fleet.organizationId, organizationName: 'Root' },
      configuration: { widgets },
    });
    await fleet.call('PUT', `/organizations/${fleet.organizationId}`, { name: 'Root', childrenInheritDashboard: true });
    const { page } = visitor;
    await page.clock.install();
    const asked = { within: 0, beyond: 0 };
    page.on('request', (request) => {
      if (!request.url().includes('/buckets')) return;
      asked[request.url().includes(above.id) ? 'beyond' : 'within'] += 1;
    });
    await visitor.open('/dashboards?range=hour', 'tech', PASSWORD);
    await page.getByText('This was not found, or you have no access to it.').waitFor();
    expect(await page.getByRole('main').getByRole('alert').count()).toBe(0);
    const { within } = asked;
    for (let tick = 0; tick < 3; tick += 1) {
      await page.clock.runFor(30_000);
      await page.waitForLoadState('networkidle');
    }
    expect(asked.within).toBeGreaterThan(within);
    expect(asked.beyond).toBe(1);
    await fleet.call('PUT', board, { configuration: { widgets: [] } });
  });
});

describe('in German', () => {
  it('an address that asks for what is not there is told in German', async () => {
    const other = await german(DESK, '/projects?sort=odd');
    const { page } = other;
    await page.getByText('Die Adresse dieser Seite fragt nach etwas, das es nicht gibt.').waitFor();
    expect(await page.getByRole('alert').innerText()).not.toMatch(/must|field/);
    await page.getByText('Was der Server sagt').click();
    await page.getByText('query.sortBy').waitFor();
    await page.getByRole('link', { name: 'Die Seite neu öffnen' }).click();
    await page.getByRole('link', { name: 'Cold chain' }).waitFor();
    await other.leave();
    expect(other.faults).toEqual([]);
  });

  it('on a phone the notifications begin at once, and words of a choice are read in full', async () => {
    for (const message of ['Maintenance on Sunday.', 'Maintenance on Monday.'])
      await fleet.call('POST', '/notifications/system', { message });
    const other = await german(PHONE, '/notifications');
    const { page } = other;
    const notice = page.getByRole('main').getByRole('listitem').filter({ hasText: 'Sunday' });
    await notice.waitFor();
    // One of them comes with the count of what is unread, as does the band above the page.
    const buttons = page.locator('.head').getByRole('button');
    await expect.poll(() => buttons.count()).toBe(3);
    await page.getByRole('region', { name: 'Mitteilung an alle' }).getByRole('button').waitFor();
    const tops = await buttons.evaluateAll((all) => all.map((one) => Math.round(one.getBoundingClientRect().top)));
    expect(new Set(tops).size, 'rows of buttons').toBe(1);
    const [text, mark] = await Promise.all([
      notice.locator('.text').boundingBox(),
      notice.getByRole('button', { name: 'Als gelesen markieren' }).boundingBox(),
    ]);
    expect(Math.abs((text?.y ?? 0) - (mark?.y ?? 0)), 'what can be done stands beside').toBeLessThan(16);
    await page.goto('/users');
    const sort = page.getByLabel('Sortieren');
    await sort.waitFor();
    expect((await sort.boundingBox())?.width).toBeGreaterThan(150);
    await other.leave();
    expect(other.faults).toEqual([]);
  });

  /** An administrator whose browser speaks German. */
  async function german(options: typeof DESK, path: string): Promise<Visitor> {
    const other = await Visitor.come(browser, server.url, { ...options, locale: 'de-DE' });
    await other.open(path);
    return other;
  }
});
