import { describe, expect, it } from 'vitest';
import { PHONE, Visitor } from './pages';
import { PASSWORD, ROLES, type Tenants, tenants } from './tenants';
import { browser, fleet, server, stage } from './stage';

let known: Tenants;

stage(async () => {
  known = await tenants(fleet);
});

const rank = (role: string): number =>
  ['basicUser', 'technician', 'manager', 'administrator', 'developer'].indexOf(role);

describe.each(ROLES)('a user with the role %s', (role) => {
  const reaches = (needed: string): boolean => rank(role) >= rank(needed);

  it('is offered what it may use, and at every other address is told why not', async () => {
    const visitor = await Visitor.come(browser, server.url);
    const { page } = visitor;
    await visitor.open('/', role, PASSWORD);
    const places = page.getByRole('navigation', { name: 'Main navigation' });
    for (const [name, needed] of [
      ['Organizations', 'manager'],
      ['Users', 'manager'],
      ['API', 'developer'],
    ] as const) {
      expect(await places.getByRole('link', { name, exact: true }).count(), name).toBe(reaches(needed) ? 1 : 0);
    }
    const pages: [path: string, needed: string, heading: string][] = [
      ['/organizations', 'manager', 'Organizations'],
      [`/organizations/${known.site}`, 'manager', 'Hamburg'],
      [`/organizations/${known.site}/users`, 'manager', 'Hamburg'],
      [`/organizations/${known.site}/branding`, 'administrator', 'Hamburg'],
      ['/users', 'manager', 'Users'],
      [`/users/${known.users.technician}`, 'manager', 'Kim technician'],
      ['/profile', 'basicUser', `Kim ${role}`],
      ['/profile/security', 'basicUser', `Kim ${role}`],
      ['/notifications', 'basicUser', 'Notifications'],
      ['/about', 'basicUser', 'About this server'],
    ];
    for (const [path, needed, heading] of pages) {
      await page.goto(path);
      const name = reaches(needed) ? heading : 'Not available for your role';
      await page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
      if (!reaches(needed)) await page.getByText('Ask an administrator of your organization').waitFor();
    }
    await visitor.leave();
    expect([visitor.strays, visitor.faults]).toEqual([[], []]);
  });

  it('sees no button that the server would refuse', async () => {
    const visitor = await Visitor.come(browser, server.url);
    const { page } = visitor;
    await visitor.open('/organizations', role, PASSWORD);
    await page.getByRole('heading', { level: 1 }).waitFor();
    const shows = async (name: string): Promise<boolean> =>
      (await page.getByRole('button', { name, exact: true }).count()) > 0;
    expect(await shows('New organization')).toBe(reaches('administrator'));
    await page.goto(`/organizations/${known.site}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    expect(await shows('Edit')).toBe(reaches('administrator'));
    expect(await shows('More actions')).toBe(reaches('administrator'));
    expect(await page.getByRole('link', { name: 'Branding' }).count()).toBe(reaches('administrator') ? 1 : 0);
    await page.goto(`/users/${known.users.basicUser}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    const isSelf = role === 'basicUser';
    expect(await shows('Edit')).toBe(reaches('manager') && !isSelf);
    expect(await shows('Disable')).toBe(reaches('administrator'));
    expect(await shows('Delete the user')).toBe(reaches('administrator'));
    await page.goto('/notifications');
    await page.getByRole('heading', { level: 1 }).waitFor();
    expect(await shows('Notify everyone')).toBe(false);
    await visitor.leave();
    expect([visitor.strays, visitor.faults]).toEqual([[], []]);
  });
});

describe('limits of the own organization', () => {
  it('are shown to its administrator and set from above', async () => {
    const visitor = await Visitor.come(browser, server.url);
    const { page } = visitor;
    await visitor.open(`/organizations/${known.company}`, 'administrator', PASSWORD);
    await page.getByText('The limits are set from an organization above').waitFor();
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Name', { exact: true }).waitFor();
    expect(await page.getByLabel('Maximum devices').count()).toBe(0);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'New organization beneath' }).waitFor();
    expect(await page.getByRole('menuitem', { name: 'Delete the organization' }).count(), 'the own one').toBe(0);
    await visitor.leave();
    expect(visitor.faults).toEqual([]);
  });
});

describe('on a phone', () => {
  it('no more than five places stand at the bottom, and each other one is behind one of them', async () => {
    const visitor = await Visitor.come(browser, server.url, PHONE);
    const { page } = visitor;
    await visitor.open();
    const bar = page.getByRole('navigation', { name: 'Main navigation' });
    expect(await bar.getByRole('listitem').count()).toBeLessThanOrEqual(5);
    const more = bar.getByRole('button', { name: 'More' });
    if ((await more.count()) > 0) await more.click();
    await bar.getByRole('link', { name: 'Users' }).click();
    await page.getByRole('heading', { level: 1, name: 'Users' }).waitFor();
    await visitor.leave();
    expect(visitor.faults).toEqual([]);
  });
});
