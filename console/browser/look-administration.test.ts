import { beforeEach, describe, expect, it } from 'vitest';
import { type Found, LOOKS, see } from './look';
import { Visitor } from './pages';
import { picture } from './picture';
import { PASSWORD, type Tenants, organization, tenants } from './tenants';
import { browser, fleet, server, stage } from './stage';

const CUSTOMERS = 60;

let known: Tenants;
const found: Found = new Map();

stage(async () => {
  known = await tenants(fleet);
  const project = await fleet.project('Cold chain');
  for (let index = 0; index < 9; index += 1) {
    const { token } = await fleet.device(`Cold room A${index}`, project, { organizationId: known.site });
    await fleet.event(token, { temperature: index });
  }
  await fleet.call('PUT', `/organizations/${known.company}`, {
    name: 'Cold Chain',
    deviceCountLimit: 10,
    dataUsageMbLimit: 500,
  });
  for (let index = 0; index < CUSTOMERS; index += 1) await organization(fleet, `Shop ${index}`, known.site);
  const keys = `/users/${known.users.manager}/apiKeys`;
  const soon = (ms: number) => new Date(Date.now() + ms).toISOString();
  await fleet.call('POST', keys, { name: 'Line 4, until the audit', role: 'technician', expiresAt: soon(15_000) });
  await fleet.call('POST', keys, { name: 'Report of the month', role: 'basicUser', expiresAt: soon(6 * 86_400_000) });
  await fleet.call('POST', keys, { name: 'Gateway' });
  await fleet.call('PUT', `/users/${known.users.technician}`, {
    role: 'technician',
    company: 'Cold Chain',
    disabled: true,
  });
});

beforeEach(() => found.clear());

describe.each(Object.entries(LOOKS))('in the look %s', (look, options) => {
  it('every page of the administration is free of faults', async () => {
    const visitor = await Visitor.come(browser, server.url, options);
    const { page } = visitor;
    await visitor.open();
    const pages: Record<string, [path: string, ready: string]> = {
      organizations: ['/organizations', 'Cold Chain'],
      'organizations-found': ['/organizations?q=a', 'Rotterdam'],
      'organizations-none': ['/organizations?q=zzz', 'Nothing found'],
      organization: [`/organizations/${known.company}`, '9 of 10'],
      'organization-users': [`/organizations/${known.company}/users`, 'manager@example.com'],
      'organization-gone': ['/organizations/none', 'Organization not found'],
      users: ['/users', 'manager@example.com'],
      user: [`/users/${known.users.manager}`, 'Line 4, until the audit'],
      'user-gone': ['/users/none', 'User not found'],
      profile: ['/profile', 'Language and appearance'],
      'profile-security': ['/profile/security', 'Change the password'],
      'profile-notifications': ['/profile/notifications', 'Notify me about'],
      about: ['/about', 'its databases respond'],
    };
    for (const [name, [path, ready]] of Object.entries(pages)) {
      await page.goto(path);
      await page.getByText(ready).first().waitFor();
      if (name === 'organizations') {
        await page.getByRole('button', { name: 'Beneath Cold Chain' }).click();
        await page.getByText('Terminal 4').waitFor();
      }
      await see(visitor, `${look}-${name}`, found);
      const overflow = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;
      expect(await page.evaluate(overflow), `${name} is wider than the screen`).toBe(0);
    }
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }, 180_000);

  it('every dialog of the administration is free of faults', async () => {
    const visitor = await Visitor.come(browser, server.url, options);
    const { page } = visitor;
    await visitor.open();
    await page.goto('/organizations?new');
    await page.getByRole('radio', { name: 'Hamburg Root / Cold Chain' }).waitFor({ state: 'attached' });
    await see(visitor, `${look}-organization-new`, found);
    await page.goto(`/organizations/${known.site}`);
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'Move' }).click();
    // The radio itself is hidden: its label is what one presses, once the dialog stands still.
    const rotterdam = page.getByRole('radio', { name: /^Rotterdam/ });
    await page.locator('label').filter({ has: rotterdam }).click();
    await page.getByText('Everything in it moves along').waitFor();
    await see(visitor, `${look}-organization-move`, found);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'Delete the organization' }).click();
    await page.getByText('It is not empty').waitFor();
    await see(visitor, `${look}-organization-full`, found);
    await page.goto('/users?new');
    await page.getByRole('radio', { name: 'Hamburg Root / Cold Chain' }).waitFor({ state: 'attached' });
    await see(visitor, `${look}-user-new`, found);
    await page.goto(`/users/${known.users.manager}`);
    await page.getByRole('button', { name: 'New key' }).click();
    await page.getByLabel('Name', { exact: true }).fill(`Look ${look}`);
    await see(visitor, `${look}-key-new`, found);
    await page.getByRole('button', { name: 'Create the key' }).click();
    await page.getByTestId('key').waitFor();
    await see(visitor, `${look}-key`, found);
    await page.goto('/notifications');
    await page.getByRole('button', { name: 'Notify everyone' }).click();
    await page.getByLabel('Message').fill('Maintenance on Sunday from 06:00 to 06:15 UTC.');
    await see(visitor, `${look}-tell`, found);
    await page.getByRole('dialog').getByRole('button', { name: 'Notify everyone' }).click();
    await page.getByRole('button', { name: 'Got it' }).waitFor();
    await see(visitor, `${look}-notice`, found);
    await page.getByRole('button', { name: 'Got it' }).click();
    await page.getByRole('button', { name: 'Got it' }).waitFor({ state: 'hidden' });
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }, 180_000);

  it('the branding and what comes of it is free of faults', async () => {
    const visitor = await Visitor.come(browser, server.url, options);
    const { page } = visitor;
    await visitor.open(`/organizations/${known.company}/branding`, 'developer', PASSWORD);
    await page.getByText('A colour of its own').click();
    await page.getByLabel('Colour as a code').fill('#e3007b');
    await page.setInputFiles('input[type=file]', {
      name: 'logo.png',
      mimeType: 'image/png',
      buffer: picture(160, 40, [227, 0, 123]),
    });
    await see(visitor, `${look}-branding`, found);
    await page.getByRole('button', { name: 'Save the branding' }).click();
    await page.getByText('The branding is saved').waitFor();
    await page.getByRole('link', { name: 'Cold Chain', exact: true }).first().waitFor();
    await page.goto('/');
    await page.locator('header img').waitFor();
    // All that is heard of here is well.
    await page.getByRole('heading', { name: 'Nothing needs attention' }).waitFor();
    await see(visitor, `${look}-branded`, found);
    await page.goto('/about');
    await page.getByText('its databases respond').waitFor();
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }, 120_000);

  it('a page for another role, and a lost connection, are free of faults', async () => {
    const visitor = await Visitor.come(browser, server.url, options);
    const { page } = visitor;
    await visitor.open('/users', 'basicUser', PASSWORD);
    await page.getByText('Not available for your role').first().waitFor();
    await see(visitor, `${look}-needs`, found);
    await page.goto('/notifications');
    await page.getByRole('heading', { level: 1 }).waitFor();
    await visitor.context.setOffline(true);
    await page.getByText('No connection to the server').waitFor();
    await see(visitor, `${look}-offline`, found);
    await visitor.leave();
    expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
  }, 120_000);
});
