import type { BrowserContextOptions, Page } from 'playwright-core';
import { beforeEach, describe, expect, it } from 'vitest';
import { type Found, LOOKS, see } from './look';
import { Visitor } from './pages';
import { browser, fleet, server, stage } from './stage';

const DEVICES = 30;
const CSV = [
  'Name;Project;Floor;Serial;Lat;Lon',
  'Fridge 1;Cold chain;3;0012;52,5;13,4',
  ';Cold chain;3;0013;;',
  'Fridge 3;Warm chain;4;0014;;',
  'Fridge 4;Doors;4;0015;;',
].join('\n');
/** A picture as small as it can be. */
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

let device: { id: string; token: string };
const found: Found = new Map();

stage(async () => {
  const project = await fleet.project('Cold chain');
  await fleet.project('Doors', { knock: { type: 'deviceEvent' } });
  const meta = { floor: 2, site: 'Dairy Nord', latitude: 52.52, longitude: 13.405 };
  device = await fleet.device('Cold room A1', project, { description: 'Hall 2, behind the dock', meta });
  for (const temperature of [3.4, 5.1, 9.4]) await fleet.event(device.token, { temperature, humidity: 61 });
  await fleet.event(device.token, { temperature: 21.5, wrong: 1 });
  await fleet.event(device.token, { temperature: 4.2, humidity: 60 });
  for (const limit of [10, 12]) await fleet.call('PUT', `/devices/${device.id}/settings/limit`, limit);
  await fleet.call('PUT', `/devices/${device.id}/settings/quiet`, true);
  for (let index = 0; index < DEVICES; index += 1) {
    const labels = { floor: index % 5, site: 'Dairy Süd' };
    const { token } = await fleet.device(`Cold room B${index}`, project, { meta: labels });
    if (index % 3 > 0) await fleet.event(token, { temperature: [2, 4.5, 8.6, 24][index % 4], humidity: 50 + index });
  }
  const columns = ['name', 'statusText', 'lastActive', 'lastValues.climate.temperature', 'meta.floor', 'meta.site'];
  await fleet.call('PUT', `/organizations/${fleet.organizationId}/deviceTable`, {
    organizationId: fleet.organizationId,
    columns: columns.map((path) => ({ path })),
  });
});
beforeEach(() => found.clear());

async function visit(
  look: string,
  options: BrowserContextOptions,
  scene: (page: Page, shot: (name: string) => Promise<void>) => Promise<void>,
): Promise<void> {
  const visitor = await Visitor.come(browser, server.url, options);
  await visitor.open();
  await scene(visitor.page, async (name) => {
    await see(visitor, `${look}-fleet-${name}`, found);
    expect(await visitor.page.evaluate(() => document.documentElement.scrollWidth), name).toBeLessThanOrEqual(
      options.viewport?.width ?? 0,
    );
  });
  await visitor.leave();
  expect([visitor.strays, visitor.faults, [...found]]).toEqual([[], [], []]);
}

describe.each(Object.entries(LOOKS))('in the look %s', (look, options) => {
  it(
    'the table of devices and what is done with many are free of faults',
    () =>
      visit(look, options, async (page, shot) => {
        await page.goto('/devices?filter[meta.site][eq]=Dairy Süd&filter[lastActive][gte]=-2d');
        await page.getByText('20 devices').waitFor();
        await page.getByRole('cell', { name: '4.5', exact: true }).first().waitFor();
        await page.getByRole('checkbox', { name: 'Select Cold room B1', exact: true }).check();
        await page.getByRole('checkbox', { name: 'Select Cold room B10', exact: true }).check();
        await shot('table');
        await page.getByRole('button', { name: 'Add a filter' }).click();
        await page.getByLabel('Period').waitFor();
        await shot('filter');
        await page.keyboard.press('Escape');
        await page.getByRole('button', { name: 'Views' }).click();
        await page.getByLabel('Save the list as it is now as').waitFor();
        await shot('views');
        await page.keyboard.press('Escape');
        await page.getByRole('button', { name: 'Columns' }).click();
        await page.getByRole('button', { name: 'Remove floor' }).waitFor();
        await shot('columns');
        await page.keyboard.press('Escape');
        const bar = page.getByRole('region', { name: 'Selected devices' });
        await bar.getByRole('button', { name: 'Settings' }).click();
        await page.getByLabel('Value').waitFor();
        await shot('bulk-settings');
        await page.getByRole('button', { name: 'Cancel' }).click();
        await bar.getByRole('button', { name: 'Move' }).click();
        await page.getByRole('dialog').getByLabel('Organization').waitFor();
        await shot('bulk-move');
        await page.getByRole('button', { name: 'Cancel' }).click();
        await bar.getByRole('button', { name: 'Delete' }).click();
        await page.getByLabel(/Type 2/).waitFor();
        await shot('bulk-delete');
        await page.route('**/v2/devices/*', (route) =>
          route.fulfill({ status: 403, json: { message: 'your role does not allow it', errors: [] } }),
        );
        await page.getByLabel(/Type 2/).fill('2');
        await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
        await page.getByText('2 were refused').waitFor();
        await shot('bulk-refused');
      }),
    120_000,
  );

  it(
    'devices from a file are free of faults',
    () =>
      visit(look, options, async (page, shot) => {
        await page.goto('/devices/import');
        await page.getByText('Drop a CSV file here').waitFor();
        await shot('import');
        await page
          .locator('input[type=file]')
          .setInputFiles({ name: 'fridges.csv', mimeType: 'text/csv', buffer: Buffer.from(CSV) });
        await page.getByText('2 lines have faults').waitFor();
        await page.getByRole('button', { name: 'Check the lines' }).click();
        await page.getByText('2 of 4 lines can become devices.').waitFor();
        await shot('import-checked');
        await page.getByRole('button', { name: 'Create 2 devices' }).click();
        await page.getByText('Done: 2 of 2.').waitFor();
        await shot('import-tokens');
        page.on('dialog', (dialog) => void dialog.accept());
      }),
    120_000,
  );

  it(
    'a device’s place, picture, history and dry run are free of faults',
    () =>
      visit(look, options, async (page, shot) => {
        await page.goto(`/devices/${device.id}`);
        const picture = page.getByRole('region', { name: 'Picture' });
        await picture
          .locator('input[type=file]')
          .setInputFiles({ name: 'a.png', mimeType: 'image/png', buffer: Buffer.from(PNG, 'base64') });
        await picture.getByRole('img').waitFor();
        await page.getByRole('region', { name: 'Place', exact: true }).getByText('13.405°').waitFor();
        await picture.scrollIntoViewIfNeeded();
        await shot('device');
        await page.getByRole('region', { name: 'Place', exact: true }).getByRole('button', { name: 'Change' }).click();
        await page.getByRole('dialog', { name: 'Place' }).getByLabel('Latitude').waitFor();
        await shot('place');
        await page.goto(`/devices/${device.id}/settings`);
        const history = page.getByRole('region', { name: 'History' });
        await history.getByRole('listitem').first().waitFor();
        await history.scrollIntoViewIfNeeded();
        await shot('history');
        await page.goto(`/devices/${device.id}/events`);
        const row = page.locator('[data-event]').filter({ hasText: 'wrong' }).first();
        await row.locator('summary').first().click();
        await row.getByRole('button', { name: 'Run again as a dry run' }).click();
        await row.getByText('The status would be: Critical').waitFor();
        await shot('dry-run');
      }),
    120_000,
  );

  it(
    'integrations are free of faults',
    () =>
      visit(look, options, async (page, shot) => {
        await page.goto('/integrations');
        await page.getByRole('heading', { level: 1, name: 'Integrations' }).waitFor();
        await page
          .getByText(/No integration yet|Sigfox/)
          .first()
          .waitFor();
        await shot('integrations');
        await page.goto('/integrations/new');
        await page.getByText('Callbacks of the Sigfox backend.').waitFor();
        await shot('integration-platforms');
        await page.goto('/integrations/new?kind=sigfox');
        await page.getByLabel('Project', { exact: true }).selectOption({ label: 'Doors' });
        await page.getByText('has no element that receives').waitFor();
        await shot('integration-project');
        await page.getByRole('button', { name: 'Create the key' }).click();
        await page.getByText('As soon as the platform posts').waitFor();
        await page.getByText('Try it from a terminal').click();
        await shot('integration-setup');
        await page.getByRole('button', { name: 'Send a sample message' }).click();
        await page.getByText('The server accepted the sample and reports:').scrollIntoViewIfNeeded();
        await shot('integration-problem');
      }),
    120_000,
  );

  it(
    'the guided start is free of faults',
    () =>
      visit(look, options, async (page, shot) => {
        await page.goto('/start');
        await page.getByRole('button', { name: 'Begin' }).waitFor();
        await shot('start');
        await page.getByRole('button', { name: 'Begin' }).click();
        await page.getByText('The first value has arrived').waitFor();
        await page.getByLabel(/Warm it up/).fill('40');
        await page.getByText('The alarm was raised').waitFor();
        await page
          .getByLabel(/Temperature of My first device/)
          .first()
          .waitFor();
        await shot('started');
        await page.getByRole('heading', { name: 'What next' }).scrollIntoViewIfNeeded();
        await page.getByText('Send as this device from elsewhere').click();
        await shot('next');
        await page.getByRole('button', { name: 'Remove all of it' }).click();
        await page.getByText('Everything that the guided start created has been removed.').waitFor();
      }),
    120_000,
  );
});
