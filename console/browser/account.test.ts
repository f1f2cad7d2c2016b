import { describe, expect, it } from 'vitest';
import { Visitor } from './pages';
import { PASSWORD, type Tenants, person, tenants } from './tenants';
import { browser, fleet, server, visitor, stage, withVisitor } from './stage';

let known: Tenants;

stage(async () => {
  known = await tenants(fleet);
});
withVisitor();

describe('the profile', () => {
  it('changes who one is, in the whole console', async () => {
    const { page } = visitor;
    const id = await person(fleet, 'ada', 'basicUser', known.company);
    await visitor.open('/', 'ada', PASSWORD);
    await page.getByRole('button', { name: /account of/ }).click();
    await page.getByRole('menuitem', { name: 'Profile' }).click();
    await page.getByLabel('First name').fill('Ada');
    await page.getByLabel('Last name').fill('Zimmer');
    await page.getByLabel('Job title').fill('Shift lead');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Your profile is saved').waitFor();
    await page.getByRole('heading', { level: 1, name: 'Ada Zimmer' }).waitFor();
    await page.getByRole('button', { name: 'AZ, account of ada' }).waitFor();
    expect(await page.getByLabel('E-mail').getAttribute('readonly')).not.toBeNull();
    expect(await fleet.call('GET', `/users/${id}`)).toMatchObject({ lastName: 'Zimmer', jobTitle: 'Shift lead' });
  });

  it('speaks another language, which the account keeps', async () => {
    const { page } = visitor;
    const id = await person(fleet, 'lena', 'basicUser', known.company);
    await visitor.open('/profile', 'lena', PASSWORD);
    await page.getByLabel('Language', { exact: true }).selectOption('Deutsch');
    await page.getByText('Sprache und Darstellung').waitFor();
    expect(await fleet.call('GET', `/users/${id}`)).toMatchObject({ language: 'de' });
  });

  it('sets a new password: this session goes on, others end', async () => {
    const { page } = visitor;
    await person(fleet, 'peter', 'basicUser', known.company);
    const other = await Visitor.come(browser, server.url);
    await other.open('/', 'peter', PASSWORD);
    // What the page asks by itself from now on is not answered: it hears of the end with what is done next.
    await other.page.route(/\/v2\/(?!auth\/|devices)/, () => undefined);
    await visitor.open('/profile/security', 'peter', PASSWORD);
    await page.getByLabel('Current password').fill('not-this-one');
    await page.getByLabel('New password').fill('deep-frost-9');
    await page.getByLabel('Repeat the password').fill('deep-frost-8');
    await page.getByText('The passwords do not match').waitFor();
    expect(await page.getByRole('button', { name: 'Set the password' }).isDisabled()).toBe(true);
    await page.getByLabel('Repeat the password').fill('deep-frost-9');
    await page.getByRole('button', { name: 'Set the password' }).click();
    await page.getByText('This is not your current password.').waitFor();
    await page.getByLabel('Current password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Set the password' }).click();
    await page.getByText('The new password is set').waitFor();
    await page.getByRole('link', { name: 'Devices', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    await other.page.getByRole('link', { name: 'Devices', exact: true }).click();
    await other.page.getByText('Your session has ended').waitFor();
    await other.signIn('peter', 'deep-frost-9');
    await other.leave();
  });

  it('chooses of what one is told, and how', async () => {
    const { page } = visitor;
    const id = await person(fleet, 'nina', 'basicUser', known.company);
    await visitor.open('/profile/notifications', 'nina', PASSWORD);
    const told = () => fleet.call<{ preferences: unknown }>('GET', `/users/${id}`).then((user) => user.preferences);
    // Whoever is quick makes the next choice before the first one is kept.
    let goOn!: () => void;
    const hasGoneOn = new Promise<void>((resolve) => (goOn = resolve));
    await page.route(`**/v2/users/${id}`, async (route) => {
      if (route.request().method() === 'PUT') await hasGoneOn;
      await route.fallback();
    });
    await page.getByLabel('Devices: By e-mail').check();
    await page.getByLabel('Your account: In the console').uncheck();
    goOn();
    await expect.poll(told).toMatchObject({
      notifications: {
        deviceNotification: { inapp: true, email: true },
        accountNotifications: { inapp: false },
      },
    });
    expect(await page.getByLabel('This server: In the console').isDisabled()).toBe(true);
    await page.reload();
    expect(await page.getByLabel('Devices: By e-mail').isChecked()).toBe(true);
    expect(await page.getByLabel('Your account: In the console').isChecked()).toBe(false);
  });
});

describe('notifications', () => {
  it('to everybody stand above each page until they are read', async () => {
    const { page } = visitor;
    await visitor.open('/notifications');
    await page.getByRole('button', { name: 'Notify everyone' }).click();
    await page.getByLabel('Message').fill('Maintenance on Sunday.');
    await page.getByRole('dialog').getByRole('button', { name: 'Notify everyone' }).click();
    await page.getByText('All users are notified').waitFor();
    const other = await Visitor.come(browser, server.url);
    await other.open('/devices', 'basicUser', PASSWORD);
    const notice = other.page.getByRole('region', { name: 'Notice to everybody' });
    await notice.getByText('Maintenance on Sunday.').waitFor();
    await other.page.getByRole('link', { name: /Notifications, 1 unread/ }).waitFor();
    await notice.getByRole('button', { name: 'Got it' }).click();
    await notice.getByText('Maintenance on Sunday.').waitFor({ state: 'hidden' });
    await other.page.getByRole('link', { name: 'Notifications', exact: true }).click();
    await other.page.getByRole('listitem').getByText('Maintenance on Sunday.').waitFor();
    expect(await other.page.getByRole('button', { name: 'Notify everyone' }).count()).toBe(0);
    await other.leave();
    expect(other.faults).toEqual([]);
  });

  it('are counted at the bell as they come, without loading anything', async () => {
    await person(fleet, 'bella', 'basicUser', known.company);
    const other = await Visitor.comeFirst(browser, server.url);
    const { page } = other;
    // Its clock is the page's own, so that nobody has to wait.
    await page.clock.install();
    await other.open('/devices', 'bella', PASSWORD);
    const bell = (count: number) => page.getByRole('link', { name: `Notifications, ${count} unread` });
    for (const count of [1, 2]) {
      await fleet.call('POST', '/notifications/system', { message: `Word ${count}` });
      await page.clock.runFor(15_000);
      await bell(count).waitFor();
    }
    await other.leave();
    expect(other.faults).toEqual([]);
  });

  it('are filtered, marked and deleted', async () => {
    const { page } = visitor;
    await person(fleet, 'olga', 'basicUser', known.company);
    for (const message of ['First word', 'Second word', 'Third word', 'Fourth word']) {
      await fleet.call('POST', '/notifications/system', { message });
      // Those of one moment are deleted together.
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    await visitor.open('/notifications', 'olga', PASSWORD);
    const row = (text: string) => page.getByRole('main').getByRole('listitem').filter({ hasText: text });
    // Whoever is quick marks the next one before the first one is.
    let goOn!: () => void;
    const hasGoneOn = new Promise<void>((resolve) => (goOn = resolve));
    await page.route('**/v2/notifications/*', async (route) => {
      await hasGoneOn;
      await route.fallback();
    });
    for (const text of ['Third word', 'Fourth word'])
      await row(text).getByRole('button', { name: 'Mark as read' }).click();
    goOn();
    for (const text of ['Third word', 'Fourth word'])
      await row(text).getByRole('button', { name: 'Mark as unread' }).waitFor();
    await page.getByLabel('Which notifications').selectOption('Unread ones');
    await row('Third word').waitFor({ state: 'hidden' });
    await row('Second word').getByRole('button', { name: 'Delete this notification' }).click();
    await row('Second word').waitFor({ state: 'hidden' });
    await row('First word').waitFor();
    await page.getByRole('button', { name: 'Mark all as read' }).click();
    await page.getByText('No unread notifications').waitFor();
    await page.getByRole('main').getByRole('button', { name: 'All notifications' }).click();
    await row('First word').waitFor();
    await page.getByRole('button', { name: 'Delete notifications' }).click();
    await page.getByRole('dialog').getByLabel('Which notifications').selectOption('All of them');
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByText('No notifications').waitFor();
  });
});

describe('about the server', () => {
  it('everybody sees what it is and how it is; its figures are for who runs it', async () => {
    const { page } = visitor;
    await visitor.open('/about', 'basicUser', PASSWORD);
    await page.getByText(/^Isobar \d/).waitFor();
    await page.getByText('its databases respond').waitFor();
    expect(await page.getByText('Open connections').count()).toBe(0);
    expect(await page.getByRole('heading', { name: 'Nodes and databases' }).count()).toBe(0);
    const operator = await Visitor.come(browser, server.url);
    await operator.open('/about');
    await operator.page.getByText('Open connections').waitFor();
    const nodes = operator.page.getByRole('region', { name: 'Nodes and databases' });
    await nodes.getByText(/^\d.*, running for .*, clock off by 0 ms$/).waitFor();
    await nodes.getByText('registry').waitFor();
    await nodes.getByText('telemetry').waitFor();
    expect(await nodes.getByText('files beside the program').count()).toBe(2);
    await operator.leave();
  });

  it('node that is gone and a database that does not answer are told to operators', async () => {
    const operator = await Visitor.come(browser, server.url);
    const startedAt = new Date(Date.now() - 3_600_000).toISOString();
    const node = { version: '1.0.0', startedAt, clockAhead: -2, unseenFor: 500, serves: true };
    const nodes = [
      { ...node, name: 'isobar-1:8080', settings: 'one' },
      { ...node, name: 'isobar-2:8080', settings: 'two' },
      { ...node, name: 'isobar-3:8080', settings: 'one', unseenFor: 120_000, serves: false },
    ];
    const databases = [
      { name: 'registry', place: 'db1.example:5432/isobar', ready: true, message: null },
      { name: 'telemetry', place: 'db2.example:5432/isobar', ready: false, message: 'did not answer within 2 s' },
    ];
    await operator.page.route('**/v2/platform', (route) => route.fulfill({ json: { nodes, databases } }));
    await operator.open('/about');
    const shown = operator.page.getByRole('region', { name: 'Nodes and databases' });
    await shown.getByText('not seen for 2 minutes').waitFor();
    await shown.getByText('clock off by -2 ms').first().waitFor();
    await shown.getByText('The nodes have different settings').waitFor();
    expect(await shown.getByText('different versions').count()).toBe(0);
    await shown.getByText('db2.example:5432/isobar').waitFor();
    await shown.getByText('did not answer within 2 s').waitFor();
    await operator.leave();
  });

  it('backup that failed is told to operators beside the last good one', async () => {
    const operator = await Visitor.come(browser, server.url);
    const lastGoodAt = new Date(Date.now() - 3 * 3_600_000 - 60_000).toISOString();
    await operator.page.route('**/health/ready', (route) =>
      route.fulfill({ json: { status: 'up', backup: { lastGoodAt, failing: true, message: 'it failed' } } }),
    );
    await operator.open('/about');
    await operator.page.getByText('Last good backup').waitFor();
    await operator.page.getByText('3 hours ago').waitFor();
    await operator.page.getByText('The newest try failed').waitFor();
    await operator.leave();
  });

  it('a store that does not answer is named', async () => {
    const { page } = visitor;
    await page.route('**/health/ready', (route) =>
      route.fulfill({
        status: 503,
        json: { message: 'not ready', errors: [{ field: 'registry', message: 'did not answer within 2 s' }] },
      }),
    );
    await visitor.open('/about', 'basicUser', PASSWORD);
    await page.getByText('registry').waitFor();
    await page.getByText('Critical').waitFor();
  });
});
