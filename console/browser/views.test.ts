import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { type Found, see } from './look';
import { Visitor } from './pages';
import { browser, fleet, server, stage, visitor, withVisitor } from './stage';
import { organization } from './tenants';

interface View {
  id: string;
  name: string;
  query: string;
  organizationId: string | null;
}

const PASSWORD = 'cold-rooms-7';
let site: string;
let viewer: string;

stage(async () => {
  const project = await fleet.project('Cold chain');
  site = await organization(fleet, 'Hamburg', fleet.organizationId);
  viewer = (await fleet.user('viewer', 'basicUser', PASSWORD)).id;
  for (let index = 0; index < 6; index += 1) {
    await fleet.device(`Room ${index}`, project, { meta: { floor: index % 2 } });
  }
  await fleet.device('Far room', project, { organizationId: site, meta: { floor: 7 } });
});
withVisitor();

const search = (page: Page): Record<string, string> => Object.fromEntries(new URL(page.url()).searchParams);
const views = async (): Promise<View[]> => (await fleet.call<{ data: View[] }>('GET', '/views')).data;

async function forgetAll(): Promise<void> {
  for (const { id } of await views()) await fleet.call('DELETE', `/views/${id}`);
}

async function openViews(page: Page) {
  await page.getByRole('button', { name: 'Views' }).click();
  const dialog = page.getByRole('dialog', { name: 'Views' });
  await dialog.waitFor();
  return dialog;
}

describe('views of the device list', () => {
  it('that are saved in one browser are there in another, for their user alone', async () => {
    const { page } = visitor;
    await forgetAll();
    await visitor.open('/devices?filter[meta.floor][eq]=1&sort=-name');
    await page.getByText('3 devices').waitFor();
    let dialog = await openViews(page);
    await dialog.getByText('No views yet').waitFor();
    await dialog.getByLabel('Save the list as it is now as').fill('Odd <b>floors</b> \u202e');
    await dialog.getByRole('button', { name: 'Save', exact: true }).click();
    await dialog.getByRole('button', { name: /^Odd <b>floors<\/b>/ }).waitFor();
    const [saved] = await views();
    expect(saved).toMatchObject({ query: 'filter%5Bmeta.floor%5D%5Beq%5D=1&sort=-name', organizationId: null });

    const other = await Visitor.come(browser, server.url);
    await other.open('/devices');
    await other.page.getByText('7 devices').waitFor();
    dialog = await openViews(other.page);
    await dialog.getByRole('button', { name: /^Odd <b>floors<\/b>/ }).click();
    await other.page.getByText('3 devices').waitFor();
    expect(search(other.page)).toEqual({ 'filter[meta.floor][eq]': '1', sort: '-name' });
    expect(other.faults).toEqual([]);
    // Somebody else has views of its own, and finds the list by its address.
    await other.open(new URL(other.page.url()).pathname + new URL(other.page.url()).search, 'viewer', PASSWORD);
    await other.page.getByText('3 devices').waitFor();
    dialog = await openViews(other.page);
    await dialog.getByText('No views yet').waitFor();
    await other.leave();
  });

  it('are renamed, replaced and deleted', async () => {
    const { page } = visitor;
    await forgetAll();
    for (const name of ['a', 'b']) await fleet.call('POST', '/views', { name, query: 'q=Room' });
    await visitor.open('/devices?sort=-name');
    const dialog = await openViews(page);
    await dialog.getByRole('button', { name: 'Rename b' }).click();
    await dialog.getByRole('textbox', { name: 'Rename b' }).fill('a');
    await dialog.getByRole('button', { name: 'Save', exact: true }).click();
    await dialog.getByText('This is already taken.').waitFor();
    await dialog.getByRole('textbox', { name: 'Rename b' }).fill('c');
    await dialog.getByRole('button', { name: 'Save', exact: true }).click();
    await dialog.getByRole('button', { name: 'c', exact: true }).waitFor();
    await dialog.getByLabel('Save the list as it is now as').fill('c');
    await dialog.getByRole('button', { name: 'Replace' }).click();
    await expect
      .poll(async () => (await views()).map(({ name, query }) => [name, query]))
      .toEqual([
        ['a', 'q=Room'],
        ['c', 'sort=-name'],
      ]);
    const found: Found = new Map();
    await see(visitor, 'views', found);
    expect([...found]).toEqual([]);
    await dialog.getByRole('button', { name: 'Delete a' }).click();
    await dialog.getByRole('button', { name: 'a', exact: true }).waitFor({ state: 'detached' });
    expect((await views()).map(({ name }) => name)).toEqual(['c']);
  });

  it('may be of one organization, which they open', async () => {
    const { page } = visitor;
    await forgetAll();
    await visitor.open(`/devices?organization=${site}&sort=-name`);
    await page.getByText('One device', { exact: true }).waitFor();
    let dialog = await openViews(page);
    await dialog.getByLabel('Save the list as it is now as').fill('Hamburg');
    await dialog.getByLabel('Only for Hamburg').check();
    await dialog.getByRole('button', { name: 'Save', exact: true }).click();
    await dialog.getByRole('button', { name: 'Hamburg', exact: true }).waitFor();
    await visitor.page.evaluate(() => localStorage.removeItem('organization'));
    await page.goto('/devices');
    await page.getByText('7 devices').waitFor();
    dialog = await openViews(page);
    await dialog.getByRole('button', { name: 'Hamburg', exact: true }).click();
    await page.getByText('One device', { exact: true }).waitFor();
    await page.getByRole('button', { name: /Organization: Hamburg/ }).waitFor();
  });

  it('have columns of their own, whatever the role', async () => {
    const { page } = visitor;
    await visitor.open('/devices?q=Room 3', 'viewer', PASSWORD);
    await page.getByText('One device', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Columns' }).click();
    const columns = page.getByRole('dialog', { name: 'Columns' });
    await columns.getByRole('option', { name: 'floor' }).waitFor({ state: 'attached' });
    await columns.getByLabel('Add a column').selectOption({ label: 'floor' });
    for (const name of ['Created', 'Organization', 'Project', 'Last active']) {
      await columns.getByRole('button', { name: `Remove ${name}` }).click();
    }
    await columns.getByRole('button', { name: 'Show here' }).click();
    const headings = async (): Promise<string[]> =>
      (await page.getByRole('columnheader').allInnerTexts()).map((text) => text.trim()).filter(Boolean);
    await expect.poll(headings).toEqual(['Name', 'Status', 'floor']);
    expect(search(page).columns).toBe('name,statusText,meta.floor');
    let dialog = await openViews(page);
    await dialog.getByLabel('Save the list as it is now as').fill('Floors');
    await dialog.getByRole('button', { name: 'Save', exact: true }).click();
    await dialog.getByRole('button', { name: 'Floors', exact: true }).waitFor();
    await page.goto('/devices');
    await page.getByText('7 devices').waitFor();
    await page.getByRole('columnheader', { name: 'Last active' }).waitFor();
    dialog = await openViews(page);
    await dialog.getByRole('button', { name: 'Floors', exact: true }).click();
    await expect.poll(headings).toEqual(['Name', 'Status', 'floor']);
    await page.getByRole('button', { name: 'Columns' }).click();
    await columns.getByRole('button', { name: 'Back to the usual columns' }).click();
    await page.getByRole('columnheader', { name: 'Last active' }).waitFor();
    expect(search(page).columns).toBeUndefined();
  });

  it('of earlier days are carried over from the browser once', async () => {
    const { page } = visitor;
    await visitor.open('/devices', 'viewer', PASSWORD);
    await page.getByText('7 devices').waitFor();
    await page.evaluate((user) => {
      const old = [
        { name: 'Old one', search: 'q=Room 1' },
        { name: 'Floors', search: 'q=Room 2' },
      ];
      localStorage.setItem(`filters:${user}`, JSON.stringify(old));
    }, viewer);
    let dialog = await openViews(page);
    // The one of the test before has the name.
    for (const name of ['Floors', 'Floors (2)', 'Old one']) {
      await dialog.getByRole('button', { name, exact: true }).waitFor();
    }
    expect(await page.evaluate((user) => localStorage.getItem(`filters:${user}`), viewer)).toBeNull();
    await dialog.getByRole('button', { name: 'Delete Old one' }).click();
    await dialog.getByRole('button', { name: 'Old one', exact: true }).waitFor({ state: 'detached' });
    await page.reload();
    dialog = await openViews(page);
    await dialog.getByRole('button', { name: 'Floors (2)', exact: true }).click();
    await page.getByText('One device', { exact: true }).waitFor();
    dialog = await openViews(page);
    expect(await dialog.getByRole('button', { name: 'Old one', exact: true }).count()).toBe(0);
  });

  it('are fifty at most, which is said before one is lost', async () => {
    const { page } = visitor;
    await forgetAll();
    for (let index = 0; index < 50; index += 1) await fleet.call('POST', '/views', { name: `${index}`, query: '' });
    await visitor.open('/devices?sort=-name');
    const dialog = await openViews(page);
    await dialog.getByText('You have 50 views').waitFor();
    const name = dialog.getByLabel('Save the list as it is now as');
    await name.fill('more');
    expect(await dialog.getByRole('button', { name: 'Save', exact: true }).isDisabled()).toBe(true);
    await name.fill('7');
    await dialog.getByRole('button', { name: 'Replace' }).click();
    await expect.poll(async () => (await views()).find((view) => view.name === '7')?.query).toBe('sort=-name');
  });
});
