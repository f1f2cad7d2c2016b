import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { Fleet } from './fleet';
import { Visitor } from './pages';
import { startServer } from './server';
import { browser, fleet, server, visitor, stage, withVisitor } from './stage';

const DEVICES = 10_000;
const FLOORS = 100;
/** Rows of the document, whatever the length of the list. */
const ROWS_MAX = 60;

let project: string;

const nameOf = (index: number) => `Sensor ${String(index).padStart(5, '0')}`;

stage(async () => {
  project = await fleet.project('Cold chain');
  const devices = Array.from({ length: DEVICES }, (_, index) => ({
    name: nameOf(index),
    projectUuid: project,
    meta: { floor: index % FLOORS, site: index % 2 === 0 ? 'Nord' : 'Süd' },
  }));
  const { data } = await fleet.call<{ data: { token: string }[] }>('POST', '/devices/bulk', devices);
  await fleet.event(data[7]?.token ?? '', { temperature: 9.5 });
  await fleet.user('viewer', 'basicUser');
  await fleet.user('manager', 'manager');
});
withVisitor();

/** Adds a condition on a label. */
async function filterByLabel(page: Page, label: string, value: string): Promise<void> {
  await page.getByRole('button', { name: 'Add a filter' }).click();
  const editor = page.getByRole('dialog', { name: 'Add a filter' });
  await editor.getByLabel('Field').selectOption({ label: 'Label …' });
  await editor.getByLabel('Name of the label').fill(label);
  await editor.getByLabel('Value').fill(value);
  await editor.getByRole('button', { name: 'Filter', exact: true }).click();
  await editor.waitFor({ state: 'detached' });
}

const search = (page: Page) => Object.fromEntries(new URL(page.url()).searchParams);

describe('ten thousand devices', () => {
  it('are scrolled, sorted and filtered with few rows in the document and few requests', async () => {
    const { page } = visitor;
    const asked: string[] = [];
    page.on('request', (request) => {
      const { pathname } = new URL(request.url());
      if (pathname === '/v2/devices') asked.push(request.url());
    });
    await visitor.open('/devices');
    await page.getByText('10,000 devices').waitFor();
    const table = page.getByRole('table', { name: 'Devices' });
    await page.getByRole('link', { name: nameOf(0) }).waitFor();
    for (const part of [0.2, 0.5, 0.8, 1]) {
      await table.evaluate((element, to) => element.scrollTo(0, element.scrollHeight * to), part);
      const first = Math.floor(DEVICES * part) - (part === 1 ? 1 : 0);
      await page.getByRole('link', { name: nameOf(first) }).waitFor();
      expect(await table.getByRole('row').count()).toBeLessThan(ROWS_MAX);
    }
    // A jump asks for the pages that it shows, and for none of those between.
    expect(asked.length).toBeLessThan(14);
    await page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click();
    await page.getByRole('link', { name: nameOf(DEVICES - 1) }).waitFor();
    await filterByLabel(page, 'floor', '3');
    await page.getByText('100 devices').waitFor();
    expect(await table.getByRole('row').count()).toBeLessThan(ROWS_MAX);
  });
});

describe('filters', () => {
  it('stand in the address as the server takes them, come back with it, and go one by one', async () => {
    const { page } = visitor;
    await visitor.open('/devices');
    await page.getByText('10,000 devices').waitFor();
    await filterByLabel(page, 'floor', '3');
    await page.getByText('100 devices').waitFor();
    await filterByLabel(page, 'site', 'Nord');
    await page.getByText('No device matches this search').waitFor();
    expect(search(page)).toEqual({ 'filter[meta.floor][eq]': '3', 'filter[meta.site][eq]': 'Nord' });
    await page.reload();
    await page.getByText('No device matches this search').waitFor();
    await page.getByRole('button', { name: 'Remove the filter site is Nord' }).click();
    await page.getByText('100 devices').waitFor();
    // A chip is changed where it stands.
    await page.getByRole('button', { name: 'floor is 3', exact: true }).click();
    const editor = page.getByRole('dialog', { name: 'floor is 3' });
    await editor.getByLabel('Comparison').selectOption({ label: 'is one of' });
    await editor.getByLabel('Value').fill('3, 4');
    await editor.getByRole('button', { name: 'Change the filter' }).click();
    await page.getByText('200 devices').waitFor();
    expect(search(page)).toEqual({ 'filter[meta.floor][in]': '3,4' });
    await page.getByRole('button', { name: 'Clear all' }).click();
    await page.getByText('10,000 devices').waitFor();
    expect(search(page)).toEqual({});
  });

  it('find who was silent, and who was never heard', async () => {
    const { page } = visitor;
    await visitor.open('/devices');
    await page.getByText('10,000 devices').waitFor();
    await page.getByRole('button', { name: 'Add a filter' }).click();
    const editor = page.getByRole('dialog', { name: 'Add a filter' });
    await editor.getByLabel('Comparison').selectOption({ label: 'within the last' });
    await editor.getByLabel('Period').fill('2');
    await editor.getByRole('button', { name: 'Filter', exact: true }).click();
    await page.getByText('One device').waitFor();
    await page.getByRole('link', { name: nameOf(7) }).waitFor();
    expect(search(page)).toEqual({ 'filter[lastActive][gte]': '-2d' });
    await page.getByRole('button', { name: 'Last active within the last 2 days', exact: true }).click();
    const change = page.getByRole('dialog', { name: 'Last active within the last 2 days' });
    await change.getByLabel('Comparison').selectOption({ label: 'never' });
    await change.getByRole('button', { name: 'Change the filter' }).click();
    await page.getByText('9,999 devices').waitFor();
  });
});

describe('columns', () => {
  it('are chosen and ordered for the organization, and organizations beneath inherit them', async () => {
    const { page } = visitor;
    const beneath = await fleet.call<{ id: string }>('POST', '/organizations', {
      name: 'Beneath',
      parentId: fleet.organizationId,
    });
    await fleet.device('Deep fridge', project, { organizationId: beneath.id, meta: { floor: 4711 } });
    await visitor.open('/devices?filter[lastActive][ne]=null');
    await page.getByText('One device').waitFor();
    await page.getByRole('button', { name: 'Columns' }).click();
    const dialog = page.getByRole('dialog', { name: 'Columns' });
    await dialog.getByText('These are the default columns').waitFor();
    await dialog.getByRole('option', { name: 'temperature' }).waitFor({ state: 'attached' });
    await dialog.getByLabel('Add a column').selectOption({ label: 'temperature (last value of climate)' });
    await dialog.getByLabel('Add a column').selectOption({ label: 'floor' });
    await dialog.getByRole('button', { name: 'Remove Created' }).click();
    for (let step = 0; step < 5; step += 1) await dialog.getByRole('button', { name: 'Move floor forward' }).click();
    await dialog.getByRole('button', { name: 'Save for everybody' }).click();
    await dialog.waitFor({ state: 'detached' });
    await page.getByRole('cell', { name: '9.5', exact: true }).waitFor();
    const headings = await page.getByRole('columnheader').allInnerTexts();
    expect(headings.map((text) => text.trim()).filter(Boolean)).toEqual([
      'Name',
      'floor',
      'Status',
      'Last active',
      'Project',
      'Organization',
      'temperature',
    ]);
    await page.getByRole('button', { name: /Organization: Root/ }).click();
    await page.getByLabel('Find an organization').fill('Beneath');
    await page.getByRole('button', { name: /Beneath/ }).click();
    await page.goto('/devices');
    await page.getByRole('cell', { name: '4,711', exact: true }).waitFor();
    await page.getByRole('button', { name: 'Columns' }).click();
    await dialog.getByText('These columns come from Root, above.').waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await fleet.call('DELETE', `/organizations/${fleet.organizationId}/deviceTable`);
  });
});

describe('many devices at once', () => {
  it('all that a filter finds get a setting, and who is gone meanwhile is told', async () => {
    const { page } = visitor;
    const marked: { id: string }[] = [];
    for (let index = 0; index < 4; index += 1) {
      marked.push(await fleet.device(`Marked ${index}`, project, { meta: { batch: 'settings' } }));
    }
    await visitor.open('/devices?filter[meta.batch][eq]=settings');
    await page.getByText('4 devices').waitFor();
    await page.getByRole('checkbox', { name: 'Select all that are found' }).check();
    await page.getByText('4 devices selected').waitFor();
    await page.getByRole('region', { name: 'Selected devices' }).getByRole('button', { name: 'Settings' }).click();
    const dialog = page.getByRole('dialog', { name: 'Settings of 4 devices' });
    await dialog.getByLabel('Setting', { exact: true }).selectOption({ label: 'Alarm limit' });
    await dialog.getByLabel('Value').fill('11');
    await fleet.call('DELETE', `/devices/${marked[2]?.id}`);
    await dialog.getByRole('button', { name: 'Change 4 devices' }).click();
    await dialog.getByText('Done: 3 of 4.').waitFor();
    await dialog.getByText('One was refused').waitFor();
    await dialog.getByRole('link', { name: 'Marked 2' }).waitFor();
    const { value } = await fleet.call<{ value: number }>('GET', `/devices/${marked[0]?.id}/settings/limit`);
    expect(value).toBe(11);
    await dialog.getByRole('button', { name: 'Try the refused ones again' }).click();
    await dialog.getByText('Done: 3 of 4.').waitFor();
    await dialog.getByRole('button', { name: 'Close' }).click();
    await page.getByText('3 devices', { exact: true }).waitFor();
  });

  it('move to another project and organization, those that are there excepted, and keep a new name', async () => {
    const { page } = visitor;
    const other = await fleet.project('Doors');
    const north = await fleet.call<{ id: string }>('POST', '/organizations', {
      name: 'North',
      parentId: fleet.organizationId,
    });
    const batch = { meta: { batch: 'move' } };
    const one = await fleet.device('Mover 1', project, batch);
    await fleet.device('Mover 2', other, { ...batch, organizationId: north.id });
    await visitor.open('/devices?filter[meta.batch][eq]=move', 'manager', 'cold-rooms-7');
    for (const name of ['Mover 1', 'Mover 2']) await page.getByRole('checkbox', { name: `Select ${name}` }).check();
    await page.getByRole('button', { name: 'Move', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'Move 2 devices' });
    // Somebody else renames it while it is about to be moved.
    await fleet.call('PUT', `/devices/${one.id}`, { name: 'Renamed', projectUuid: project });
    await dialog.getByLabel('Project').selectOption({ label: 'Doors' });
    await dialog.getByLabel('Organization', { exact: true }).selectOption({ label: 'Root / North' });
    await dialog.getByText('1 of them are there already.').waitFor();
    await dialog.getByRole('button', { name: 'Move the devices' }).click();
    await dialog.getByText('Done: 1 of 1.').waitFor();
    const moved = await fleet.call<{ projectUuid: string; organizationId: string; name: string }>(
      'GET',
      `/devices/${one.id}`,
    );
    expect(moved).toMatchObject({ projectUuid: other, organizationId: north.id, name: 'Renamed' });
  });

  it('go only after their number was typed, one refused or not', async () => {
    const { page } = visitor;
    const batch = { meta: { batch: 'delete' } };
    const ids: string[] = [];
    for (let index = 0; index < 3; index += 1) ids.push((await fleet.device(`Doomed ${index}`, project, batch)).id);
    await page.clock.install();
    await visitor.open('/devices?filter[meta.batch][eq]=delete', 'manager', 'cold-rooms-7');
    await page.getByRole('checkbox', { name: 'Select all that are found' }).check();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'Delete 3 devices' });
    const remove = dialog.getByRole('button', { name: 'Delete', exact: true });
    await dialog.getByLabel(/Type 3/).fill('2');
    expect(await remove.isDisabled()).toBe(true);
    await fleet.call('DELETE', `/devices/${ids[1]}`);
    await dialog.getByLabel(/Type 3/).fill('3');
    await remove.click();
    await dialog.getByText('Done: 2 of 3.').waitFor();
    // However few are found when the list is read again, these were meant.
    await page.clock.runFor(30_000);
    await page.getByText('No device matches this search').waitFor();
    await dialog.getByText('This was not found, or you have no access to it.').waitFor();
    await dialog.getByRole('button', { name: 'Close' }).click();
    await page.getByText('No device matches this search').waitFor();
  });

  it('are exported as the server writes them: all that are found, or those that were picked', async () => {
    const { page } = visitor;
    await visitor.open('/devices?filter[meta.floor][eq]=8', 'viewer', 'cold-rooms-7');
    await page.getByText('100 devices').waitFor();
    const saved = async (): Promise<string[]> => {
      const [file] = await Promise.all([
        page.waitForEvent('download'),
        page.getByRole('button', { name: 'CSV' }).click(),
      ]);
      return (await readFile(await file.path(), 'utf8')).trimEnd().split(/\r?\n/);
    };
    await page.getByRole('checkbox', { name: 'Select all that are found' }).check();
    const all = await saved();
    const names =
      'id,name,statusText,lastActive,projectUuid,projectName,organizationName,createdAt,meta.floor,meta.site';
    expect(all[0]).toBe(`\ufeff${names}`);
    expect(all[1]).toMatch(/,Cold chain,.*,8,Nord$/);
    expect(all).toHaveLength(101);
    await page.getByRole('checkbox', { name: `Select ${nameOf(8)}` }).uncheck();
    await page.getByText('99 devices selected').waitFor();
    const most = await saved();
    expect(most).toHaveLength(100);
    expect(most.some((line) => line.includes(nameOf(8)))).toBe(false);
  });

  it('go on where they stopped when the server is back', async () => {
    const { page } = visitor;
    const batch = { meta: { batch: 'lost' } };
    for (let index = 0; index < 3; index += 1) await fleet.device(`Lost ${index}`, project, batch);
    await visitor.open('/devices?filter[meta.batch][eq]=lost', 'manager', 'cold-rooms-7');
    await page.getByRole('checkbox', { name: 'Select all that are found' }).check();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'Delete 3 devices' });
    await dialog.getByLabel(/Type 3/).fill('3');
    await server.halt();
    await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
    await dialog.getByText('Stopped: 0 of 3 are done.').waitFor();
    await dialog.getByText('The server does not respond').waitFor();
    await server.resume();
    await dialog.getByRole('button', { name: 'Continue' }).click();
    await dialog.getByText('Done: 3 of 3.').waitFor();
  });
});

describe('roles', () => {
  it('that may only look export, and are shown nothing else', async () => {
    const { page } = visitor;
    await visitor.open('/devices', 'viewer', 'cold-rooms-7');
    await page.getByRole('checkbox', { name: `Select ${nameOf(0)}` }).check();
    const bar = page.getByRole('region', { name: 'Selected devices' });
    await bar.getByRole('button', { name: 'CSV' }).waitFor();
    for (const name of ['Settings', 'Move', 'Delete']) expect(await bar.getByRole('button', { name }).count()).toBe(0);
    await page.getByRole('button', { name: 'Columns' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Show here' }).waitFor();
    expect(await page.getByRole('button', { name: 'Save for everybody' }).count()).toBe(0);
    await page.keyboard.press('Escape');
    expect(await page.getByRole('link', { name: 'From a file' }).count()).toBe(0);
    for (const path of ['/devices/import', '/integrations', '/integrations/new', '/start']) {
      await page.goto(path);
      await page.getByText('Your role does not allow this.').waitFor();
    }
  });
});

describe('the limit of requests', () => {
  it('is waited for, with its seconds, and what is left can be stopped', async () => {
    const slow = await startServer({ ISOBAR_RATE_LIMIT__USER: '120' });
    const patient = await Visitor.come(browser, slow.url);
    try {
      const { page } = patient;
      const few = await Fleet.of(slow.url);
      const projectUuid = await few.project('Cold chain');
      // So many that they exceed the limit of two minutes.
      const devices = Array.from({ length: 400 }, (_, index) => ({ name: nameOf(index), projectUuid }));
      await few.call('POST', '/devices/bulk', devices);
      await patient.open('/devices');
      await page.getByRole('checkbox', { name: 'Select all that are found' }).check();
      await page.getByRole('button', { name: 'Delete', exact: true }).click();
      const dialog = page.getByRole('dialog', { name: 'Delete 400 devices' });
      await dialog.getByLabel(/Type 400/).fill('400');
      await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
      await dialog.getByText(/Request limit reached\. It continues by itself in \d+ s\./).waitFor();
      await dialog.getByRole('button', { name: 'Stop' }).click();
      await dialog.getByText(/Stopped: \d+ of 400 are done\./).waitFor();
      await dialog.getByRole('button', { name: 'Continue' }).waitFor();
      expect(patient.faults).toEqual([]);
    } finally {
      await patient.leave();
      await slow.stop();
    }
  });
});
