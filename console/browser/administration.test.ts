import { describe, expect, it } from 'vitest';
import { Fleet } from './fleet';
import { Visitor } from './pages';
import { picture } from './picture';
import { PASSWORD, type Tenants, organization, person, tenants } from './tenants';
import { browser, fleet, server, visitor, stage, withVisitor } from './stage';

let known: Tenants;

stage(async () => {
  known = await tenants(fleet);
});
withVisitor();

describe('organizations', () => {
  it('stand in a tree, of which only what is opened is read', async () => {
    const { page } = visitor;
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).searchParams.get('parentId') ?? ''));
    await visitor.open();
    await page.getByRole('link', { name: 'Organizations' }).click();
    await page.getByRole('link', { name: 'Cold Chain' }).waitFor();
    expect(asked).not.toContain(known.company);
    await page.getByRole('button', { name: 'Beneath Cold Chain' }).click();
    await page.getByRole('link', { name: 'Hamburg' }).waitFor();
    expect(await page.getByRole('link', { name: 'Hall 2' }).count()).toBe(0);
    expect(asked).not.toContain(known.site);
    await page.getByRole('button', { name: 'Beneath Cold Chain' }).click();
    await page.getByRole('link', { name: 'Hamburg' }).waitFor({ state: 'hidden' });
  });

  it('of any number are read some at a time, and found by a search that stands in the address', async () => {
    const { page } = visitor;
    const many = await organization(fleet, 'Shops', known.company);
    await Promise.all(Array.from({ length: 55 }, (_, index) => organization(fleet, `Branch ${100 + index}`, many)));
    await visitor.open(`/organizations/${many}`);
    const shown = page.getByRole('link', { name: /^Branch/ });
    await expect.poll(() => shown.count()).toBe(50);
    await page.getByRole('button', { name: '5 more' }).click();
    await expect.poll(() => shown.count()).toBe(55);
    await page.goto('/organizations');
    await page.getByLabel('Search name and description').fill('branch 15');
    await page.getByRole('link', { name: 'Branch 154' }).waitFor();
    await expect.poll(() => shown.count()).toBe(5);
    expect(new URL(page.url()).searchParams.get('q')).toBe('branch 15');
    await page.getByText('Root / Cold Chain / Shops').first().waitFor();
    await page.getByLabel('Search name and description').fill('nowhere');
    await page.getByText('No organization has this').waitFor();
  });

  it('are made beneath another with limits, which are shown beside what is used', async () => {
    const { page } = visitor;
    await visitor.open('/organizations?new');
    await page.getByLabel('Name', { exact: true }).fill('Lyon');
    await page.getByRole('searchbox', { name: 'Beneath' }).fill('Cold Ch');
    await page.getByRole('dialog').getByText('Cold Chain', { exact: true }).click();
    await page.getByLabel('Maximum devices').fill('20');
    await page.getByRole('button', { name: 'Create the organization' }).click();
    await page.getByRole('heading', { level: 1, name: 'Lyon' }).waitFor();
    await page.getByText('0 of 20').waitFor();
    await page.getByText('No limit is set').waitFor();
    const id = new URL(page.url()).pathname.split('/').at(-1) ?? '';
    expect(await fleet.call('GET', `/organizations/${id}`)).toMatchObject({
      parentId: known.company,
      deviceCountLimit: 20,
      dataUsageMbLimit: 0,
    });
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Description (optional)').fill('South');
    await page.getByLabel('Maximum stored data (MB)').fill('1.5');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('0 bytes of 1.5 MB').waitFor();
    await page.getByText('South').waitFor();
  });

  it('are moved with all that hangs on them, which is told before', async () => {
    const { page } = visitor;
    const from = await organization(fleet, 'Old place', known.company);
    const to = await organization(fleet, 'New place', known.company);
    const moved = await organization(fleet, 'Plant', from);
    await organization(fleet, 'Line 1', moved);
    const project = await fleet.project('Plant');
    await fleet.device('Pump', project, { organizationId: moved });
    await person(fleet, 'pia', 'manager', moved);
    await visitor.open(`/organizations/${moved}`);
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'Move' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('One device').waitFor();
    await dialog.getByText('One user').waitFor();
    await dialog.getByText('One organization').waitFor();
    expect(await dialog.getByRole('button', { name: 'Move', exact: true }).isDisabled()).toBe(true);
    await dialog.getByRole('searchbox').fill('place');
    await dialog.getByText('New place', { exact: true }).click();
    await dialog.getByText('Users of New place see all of it').waitFor();
    await dialog.getByRole('button', { name: 'Move beneath New place' }).click();
    await page.getByText('Plant is beneath New place now').waitFor();
    await page.getByRole('navigation', { name: 'Place in the tree' }).getByText('New place').waitFor();
    expect(await fleet.call('GET', `/organizations/${moved}`)).toMatchObject({ parentId: to });
  });

  it('are not moved where the limits leave no room, and the field says so', async () => {
    const { page } = visitor;
    const small = await organization(fleet, 'Small', known.company);
    await fleet.call('PUT', `/organizations/${small}`, { name: 'Small', deviceCountLimit: 1 });
    const big = await organization(fleet, 'Big', known.company);
    const project = await fleet.project('Big');
    for (const name of ['One', 'Two']) await fleet.device(name, project, { organizationId: big });
    await visitor.open(`/organizations/${big}`);
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'Move' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('searchbox').fill('small');
    await dialog.getByText('Small', { exact: true }).click();
    await dialog.getByRole('button', { name: 'Move beneath Small' }).click();
    await dialog.getByText('correct the marked fields').waitFor();
    expect(await dialog.getByRole('searchbox').getAttribute('aria-invalid')).toBe('true');
    expect(await fleet.call('GET', `/organizations/${big}`)).toMatchObject({ parentId: known.company });
  });

  it('go by their name when they are empty; of others it is told what hangs on them', async () => {
    const { page } = visitor;
    const doomed = await organization(fleet, 'Doomed', known.company);
    const user = await person(fleet, 'dora', 'basicUser', doomed);
    await visitor.open(`/organizations/${doomed}`);
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'Delete the organization' }).click();
    await page.getByText('Doomed cannot be deleted yet').waitFor();
    await page.getByRole('dialog').getByRole('link', { name: 'One user' }).click();
    await page.getByRole('link', { name: 'Kim dora' }).waitFor();
    await fleet.call('DELETE', `/users/${user}`);
    await page.reload();
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'Delete the organization' }).click();
    const remove = page.getByRole('button', { name: 'Delete', exact: true });
    await page.getByLabel('Type “Doomed” to confirm').fill('Doome');
    expect(await remove.isDisabled()).toBe(true);
    await page.getByLabel('Type “Doomed” to confirm').fill('Doomed');
    await remove.click();
    await page.getByRole('heading', { level: 1, name: 'Organizations' }).waitFor();
    await expect(fleet.call('GET', `/organizations/${doomed}`)).rejects.toThrow(/: 404 /);
  });
});

describe('users', () => {
  it('are made with a password, where no e-mail brings a link to choose one', async () => {
    const { page } = visitor;
    await visitor.open('/users?new', 'manager', PASSWORD);
    const roles = page.getByLabel('Role', { exact: true });
    await expect.poll(() => roles.getByRole('option').allTextContents()).toEqual(['Viewer', 'Technician', 'Manager']);
    await roles.selectOption('Technician');
    await page.getByText('create and change devices').waitFor();
    await page.getByLabel('First name').fill('Ivo');
    await page.getByLabel('Last name').fill('Brandt');
    await page.getByLabel('E-mail', { exact: true }).fill('ivo@example.com');
    await page.getByText('This server sends no e-mail').waitFor();
    await page.getByLabel('Password', { exact: true }).fill('first-frost-1');
    await page.getByRole('button', { name: 'Create the user' }).click();
    await page.getByText('Tell ivo@example.com the password in private').waitFor();
    await page.getByRole('link', { name: 'Open the user' }).click();
    await page.getByRole('heading', { level: 1, name: 'Ivo Brandt' }).waitFor();
    await page.getByText('gets a new one from you').waitFor();
    expect(await page.getByRole('button', { name: 'Send a link' }).count()).toBe(0);
    const other = await Visitor.come(browser, server.url);
    await other.page.goto('/');
    await other.signIn('ivo@example.com', 'first-frost-1');
    await other.leave();
    expect(other.faults).toEqual([]);
  });

  it('whose name is taken are refused at the field', async () => {
    const { page } = visitor;
    await visitor.open('/users?new');
    await page.getByLabel('First name').fill('Kim');
    await page.getByLabel('Last name').fill('Twice');
    await page.getByLabel('E-mail', { exact: true }).fill('twice@example.com');
    await page.getByLabel('Username (optional)').fill('manager');
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Create the user' }).click();
    await page.getByRole('alert').getByText('correct the marked fields').waitFor();
    expect(await page.getByLabel('Username (optional)').getAttribute('aria-invalid')).toBe('true');
  });

  it('are searched for and sorted by the server, as the address says', async () => {
    const { page } = visitor;
    await visitor.open('/users?q=kim&sort=-role');
    const names = page.locator('td.who a');
    await expect.poll(() => names.first().textContent()).toContain('developer');
    await page.getByRole('button', { name: 'Name' }).click();
    await expect.poll(() => new URL(page.url()).searchParams.get('sort')).toBe('lastName');
    await expect.poll(() => names.first().textContent()).toContain('administrator');
    await page.getByLabel('Organizations beneath too').uncheck();
    await page.getByText('No user matches this search').waitFor();
  });

  it('are disabled and refused, enabled and let in again', async () => {
    const { page } = visitor;
    const id = await person(fleet, 'dis', 'technician', known.company);
    await visitor.open(`/users/${id}`, 'administrator', PASSWORD);
    await page.getByRole('button', { name: 'Disable' }).click();
    await page.getByText('The user is disabled', { exact: true }).first().waitFor();
    const login = () => Fleet.of(server.url, 'dis', PASSWORD);
    await expect(login()).rejects.toThrow(/: 401 /);
    await page.getByRole('button', { name: 'Enable' }).click();
    await page.getByRole('button', { name: 'Disable' }).waitFor();
    await login();
  });

  it('get another role and place, up to one’s own', async () => {
    const { page } = visitor;
    const id = await person(fleet, 'mover', 'basicUser', known.company);
    await visitor.open(`/users/${id}`, 'manager', PASSWORD);
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Role', { exact: true }).selectOption('Manager');
    await page.getByRole('dialog').getByRole('searchbox').fill('hamburg');
    await page.getByRole('dialog').getByText('Hamburg', { exact: true }).click();
    await page.getByText('The user leaves Cold Chain').waitFor();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    expect(await fleet.call('GET', `/users/${id}`)).toMatchObject({ role: 'manager', organizationId: known.site });
  });

  it('of a higher role can be looked at and not changed; nobody ends the own account', async () => {
    const { page } = visitor;
    await visitor.open(`/users/${known.users.developer}`, 'administrator', PASSWORD);
    await page.getByText('is higher than yours').waitFor();
    for (const name of ['Edit', 'Disable', 'Delete the user', 'New key']) {
      expect(await page.getByRole('button', { name }).count(), name).toBe(0);
    }
    await page.goto(`/users/${known.users.administrator}`);
    await page.getByRole('link', { name: 'To your profile' }).waitFor();
    for (const name of ['Disable', 'Delete the user']) {
      expect(await page.getByRole('button', { name }).count(), name).toBe(0);
    }
  });

  it('go when their name is typed', async () => {
    const { page } = visitor;
    const id = await person(fleet, 'leaver', 'technician', known.company);
    await visitor.open(`/users/${id}`, 'administrator', PASSWORD);
    await page.getByRole('button', { name: 'Delete the user' }).click();
    await page.getByLabel('Type “leaver” to confirm').fill('leaver');
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Users' }).waitFor();
    await expect(fleet.call('GET', `/users/${id}`)).rejects.toThrow(/: 404 /);
  });
});

describe('API keys', () => {
  it('are shown once, work with their role, and are refused when they are deleted', async () => {
    const { page } = visitor;
    await visitor.open('/profile/security', 'developer', PASSWORD);
    await page.getByText('No API key').waitFor();
    await page.getByRole('button', { name: 'New key' }).click();
    await page.getByLabel('Name', { exact: true }).fill('Line 4');
    await page.getByLabel('Role', { exact: true }).selectOption('Viewer');
    await page.getByLabel('Expires').selectOption('in 30 days');
    await page.getByRole('button', { name: 'Create the key' }).click();
    const key = (await page.getByTestId('key').textContent()) ?? '';
    expect(await page.getByLabel('curl').textContent()).toContain(key);
    const ask = async (method: string, path: string) =>
      (await fetch(`${server.url}/v2${path}`, { method, headers: { api_auth_token: key } })).status;
    expect(await ask('GET', '/devices')).toBe(200);
    expect(await ask('DELETE', `/organizations/${known.site}`), 'a viewer').toBe(403);
    await page.getByRole('button', { name: 'I have saved it' }).click();
    expect(await page.content()).not.toContain(key);
    await page.getByRole('cell', { name: 'Line 4', exact: true }).waitFor();
    await page.getByRole('cell', { name: 'Viewer', exact: true }).waitFor();
    await page.getByRole('button', { name: 'Delete the key Line 4' }).click();
    await page.getByLabel('Type “Line 4” to confirm').fill('Line 4');
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByText('No API key').waitFor();
    expect(await ask('GET', '/devices')).toBe(401);
  });

  it('that have ended are told', async () => {
    const { page } = visitor;
    const keys = `/users/${known.users.technician}/apiKeys`;
    // The server takes none that has ended by the time that it is asked.
    const expiresAt = new Date(Date.now() + 8_000).toISOString();
    const { key } = await fleet.call<{ key: string }>('POST', keys, { name: 'Short', expiresAt });
    await expect
      .poll(async () => (await fetch(`${server.url}/v2/devices`, { headers: { api_auth_token: key } })).status)
      .toBe(401);
    await visitor.open(`/users/${known.users.technician}`, 'manager', PASSWORD);
    await page.getByText('One key has expired and is refused').waitFor();
    await page.getByText('Expired', { exact: true }).waitFor();
  });
});

describe('branding', () => {
  it('takes effect at once, is inherited beneath, and ends with the session', async () => {
    const { page } = visitor;
    await visitor.open(`/organizations/${known.company}/branding`, 'developer', PASSWORD);
    await page.getByText('A colour of its own').click();
    await page.getByLabel('Colour as a code').fill('#7a1fa2');
    await page.getByText('On a dark background text in this colour would be hard to read').waitFor();
    await page.setInputFiles('input[type=file]', {
      name: 'logo.png',
      mimeType: 'image/png',
      buffer: picture(120, 30, [122, 31, 162]),
    });
    await page.getByRole('button', { name: 'Save the branding' }).click();
    const ground = () =>
      page.evaluate(() => getComputedStyle(document.querySelector('button.primary') as Element).backgroundColor);
    // A button beneath the mouse has another ground.
    await page.mouse.move(0, 0);
    await expect.poll(ground).toBe('rgb(122, 31, 162)');
    await page.locator('header img').waitFor();
    await page.goto(`/organizations/${known.site}/branding`);
    await page.getByText('Inherited from Cold Chain').waitFor();
    await page.getByText('that of Cold Chain is shown').waitFor();
    await page.getByRole('button', { name: /account of/ }).click();
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByLabel('Username or e-mail').waitFor();
    await expect.poll(ground).toBe('rgb(12, 90, 97)');
    expect(await fleet.call('GET', `/organizations/${known.company}/branding`)).toMatchObject({
      domainPublicConfiguration: { console: { accent: '#7a1fa2', logo: true } },
    });
  });

  it('with a colour that is none is not saved, and keeps what else is free in it', async () => {
    const { page } = visitor;
    const path = `/organizations/${known.site}/branding`;
    await fleet.call('PUT', path, { domainPublicConfiguration: { map: 'north' } });
    await visitor.open(path);
    await page.getByText('A colour of its own').click();
    await page.getByLabel('Colour as a code').fill('green');
    expect(await page.getByRole('button', { name: 'Save the branding' }).isDisabled()).toBe(true);
    await page.getByLabel('Colour as a code').fill('#0a0');
    await page.getByLabel('Domain').fill('no domain');
    await page.getByRole('button', { name: 'Save the branding' }).click();
    await page.getByRole('alert').getByText('correct the marked fields').waitFor();
    expect(await page.getByLabel('Domain').getAttribute('aria-invalid')).toBe('true');
    await page.getByLabel('Domain').fill('devices.example.com');
    await page.getByRole('button', { name: 'Save the branding' }).click();
    await page.getByText('The branding is saved').waitFor();
    expect(await fleet.call('GET', path)).toMatchObject({
      domain: 'devices.example.com',
      domainPublicConfiguration: { map: 'north', console: { accent: '#00aa00' } },
    });
  });
});
