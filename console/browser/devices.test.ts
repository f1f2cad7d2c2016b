import { describe, expect, it } from 'vitest';
import { fleet, server, visitor, stage, takeAPhone, withVisitor } from './stage';

const DEVICES = 260;

let project: string;
let device: { id: string; token: string };

stage(async () => {
  project = await fleet.project('Cold chain');
  device = await fleet.device('Cold room', project, { description: 'Hall 2' });
  await fleet.event(device.token, { temperature: 9.5, door: { open: true } });
  const names = Array.from({ length: DEVICES - 1 }, (_, index) => `Sensor ${String(index).padStart(4, '0')}`);
  for (const name of names) await fleet.device(name, project);
  await fleet.user('viewer', 'basicUser');
  await fleet.user('tech', 'technician');
});
withVisitor();

describe('the overview', () => {
  it('counts the fleet, and each count leads to its devices', async () => {
    const { page } = visitor;
    await visitor.open();
    await page.getByText(`${DEVICES} devices, one of them active`).waitFor();
    const warning = page.getByRole('link', { name: '1 Warning' });
    await warning.waitFor();
    await page.getByRole('heading', { name: 'Look here first' }).waitFor();
    await page.getByRole('link', { name: 'Cold room' }).waitFor();
    expect(await warning.getAttribute('href')).toBe('/devices?status=warning');
  });
});

describe('the table of devices', () => {
  it('shows any number of devices with few rows in the document', async () => {
    const { page } = visitor;
    await visitor.open('/devices');
    await page.getByRole('link', { name: 'Cold room' }).waitFor();
    const table = page.getByRole('table', { name: 'Devices' });
    expect(await table.getAttribute('aria-rowcount')).toBe(String(DEVICES + 1));
    expect(await table.getByRole('row').count()).toBeLessThan(60);
    await table.evaluate((element) => element.scrollTo(0, element.scrollHeight));
    await page.getByRole('link', { name: `Sensor ${String(DEVICES - 2).padStart(4, '0')}` }).waitFor();
  });

  it('is searched and sorted by the server, and the address keeps both', async () => {
    const { page } = visitor;
    await visitor.open('/devices');
    await page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click();
    await page.getByRole('link', { name: `Sensor ${String(DEVICES - 2).padStart(4, '0')}` }).waitFor();
    await page.getByLabel('Search name, description, labels').fill('hall 2');
    await page.getByText('One device').waitFor();
    await page.getByRole('link', { name: 'Cold room' }).waitFor();
    expect(Object.fromEntries(new URL(page.url()).searchParams)).toEqual({ q: 'hall 2', sort: '-name' });
    await page.reload();
    await page.getByText('One device').waitFor();
    await page.getByLabel('Search name, description, labels').fill('nothing like it');
    await page.getByText('No device matches this search').waitFor();
    await page.getByRole('button', { name: 'Clear the search' }).click();
    await page.getByText(`${DEVICES} devices`).waitFor();
  });

  it('is filtered by status at the server', async () => {
    const { page } = visitor;
    await visitor.open('/');
    const asked = page.waitForRequest(
      (request) => new URL(request.url()).searchParams.get('filter[statusInt][eq]') === '3',
    );
    await page.getByRole('link', { name: '1 Warning' }).click();
    await asked;
    expect(await page.getByRole('combobox', { name: 'Status' }).inputValue()).toBe('warning');
  });

  it('begins at its top in another order', async () => {
    const { page } = visitor;
    await visitor.open('/devices');
    const table = page.getByRole('table', { name: 'Devices' });
    await page.getByRole('link', { name: 'Cold room' }).waitFor();
    await table.evaluate((element) => element.scrollTo(0, element.scrollHeight));
    const last = page.getByRole('link', { name: `Sensor ${String(DEVICES - 2).padStart(4, '0')}` });
    await last.waitFor();
    await page.getByRole('columnheader', { name: 'Created' }).getByRole('button').click();
    await page.getByRole('link', { name: 'Cold room' }).waitFor();
    await expect.poll(() => table.evaluate((element) => element.scrollTop)).toBe(0);
  });
});

describe('a device', () => {
  it('is made, and its token is shown once, ready to use', async () => {
    const { page } = visitor;
    await visitor.open('/devices');
    await page.getByRole('button', { name: 'New device' }).click();
    await page.getByLabel('Name', { exact: true }).fill('Made by hand');
    await page.getByLabel('Project').selectOption({ label: 'Cold chain' });
    await page.getByRole('button', { name: 'Create the device' }).click();
    const token = await page.getByTestId('token').innerText();
    expect(token.length).toBeGreaterThan(30);
    for (const language of ['Python', 'Arduino', 'Node.js', 'curl']) {
      await page.getByRole('button', { name: language }).click();
      expect(await page.locator('pre').innerText()).toContain(token);
    }
    // Neither Escape nor a click beside it loses the token.
    await page.keyboard.press('Escape');
    expect(await page.getByTestId('token').isVisible()).toBe(true);
    // Nor does the browser load another page unasked.
    const [asked] = await Promise.all([
      page.waitForEvent('dialog'),
      page.evaluate(() => void setTimeout(() => location.reload())),
    ]);
    expect(asked.type()).toBe('beforeunload');
    await asked.dismiss();
    expect(await page.getByTestId('token').innerText()).toBe(token);
    await fleet.event(token, { temperature: 4 });
    await page.getByRole('link', { name: 'Open the device' }).click();
    await page.getByRole('heading', { level: 1, name: 'Made by hand' }).waitFor();
    expect(await page.content()).not.toContain(token);
  });

  it('shows its events live, after those of before', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/events`);
    await page.locator('[data-event] code', { hasText: '9.5' }).first().waitFor();
    await page.getByText('Live', { exact: true }).waitFor();
    const id = await fleet.event(device.token, { temperature: 21, wrong: 1 });
    const row = page.locator(`[data-event="${id}"]`);
    await row.waitFor();
    await row.getByText('1 error').waitFor();
    await row.locator('summary').click();
    await row.locator('code', { hasText: 'broken' }).waitFor();
    // What the design has sent to the device.
    await page.getByText('cool', { exact: true }).first().waitFor();
    await page.getByText('Critical').waitFor();
    await page.getByLabel('Kind').selectOption('deviceEvent');
    await page.getByText('cool', { exact: true }).waitFor({ state: 'detached' });
  });

  it('has events that are found by what is in them, and that stand still while they are read', async () => {
    const { page } = visitor;
    const { id, token } = await fleet.device('Read', project);
    for (const temperature of [3, 17]) await fleet.event(token, { temperature });
    await visitor.open(`/devices/${id}/events`);
    const rows = page.locator('[data-event]').filter({ hasText: 'reading' });
    await expect.poll(() => rows.count()).toBe(2);
    await page.getByLabel('Filter by element or content').fill('17');
    await expect.poll(() => rows.count()).toBe(1);
    await page.getByLabel('Filter by element or content').fill('');
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    await fleet.event(token, { temperature: 4 });
    await page.getByRole('button', { name: 'Resume (1 new)' }).waitFor();
    expect(await rows.count()).toBe(2);
    await page.getByRole('button', { name: 'Resume (1 new)' }).click();
    await expect.poll(() => rows.count()).toBe(3);
  });

  it('goes on live after the connection was lost, and misses nothing', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/events`);
    await page.getByText('Live', { exact: true }).waitFor();
    await server.halt();
    await page.getByText('Interrupted').waitFor();
    await server.resume();
    const missed = await fleet.event(device.token, { temperature: 5 });
    await page.locator(`[data-event="${missed}"]`).waitFor();
    await page.getByText('Live', { exact: true }).waitFor();
  });

  it('is sent something, which waits and can be taken back', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/queue`);
    await page.getByLabel('Element').fill('greeting');
    await page.getByLabel('Payload (JSON)').fill('{"say":');
    await page.getByText('This is not valid JSON').waitFor();
    expect(await page.getByRole('button', { name: 'Send to the device' }).isDisabled()).toBe(true);
    await page.getByLabel('Payload (JSON)').fill('{"say":"hello"}');
    await page.getByRole('button', { name: 'Send to the device' }).click();
    await page.getByText('"hello"').waitFor();
    await page.getByRole('button', { name: 'Remove greeting from the queue' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('greeting').first().waitFor();
    await page.getByRole('button', { name: 'Remove greeting from the queue' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove', exact: true }).click();
    await page.getByText('"hello"').waitFor({ state: 'detached' });
    for (const say of ['one', 'two']) {
      await page.getByLabel('Payload (JSON)').fill(`{"say":"${say}"}`);
      await page.getByRole('button', { name: 'Send to the device' }).click();
      await page.getByText(`"${say}"`).waitFor();
    }
    await page.getByRole('button', { name: 'Remove all' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove', exact: true }).click();
    await page.getByText('The queue is empty').waitFor();
  });

  it('has settings, each changed by itself and set back', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/settings`);
    await page.getByLabel('Alarm limit').fill('90');
    await page.getByRole('button', { name: 'Save' }).click();
    expect(
      await page.getByLabel('Alarm limit').evaluate((input: HTMLInputElement) => input.validity.rangeOverflow),
    ).toBe(true);
    await page.getByLabel('Alarm limit').fill('12');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Default: 8').waitFor();
    await page.getByRole('switch', { name: /Quiet at night/ }).click();
    await page.getByRole('switch', { name: /On$/ }).waitFor();
    // It is shown as on before the server has answered.
    const stored = async (): Promise<unknown[]> => {
      const path = `/devices/${device.id}/settings`;
      const { data } = await fleet.call<{ data: { name: string; value: unknown }[] }>('GET', path);
      return data.filter(({ name }) => ['limit', 'quiet'].includes(name)).map(({ value }) => value);
    };
    await expect.poll(stored).toEqual([12, true]);
    await page.getByRole('button', { name: 'Back to the default' }).first().click();
    await page.getByText('Default: 8').waitFor({ state: 'detached' });
  });

  it('has its data in a table, and as CSV', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/data`);
    await page.getByRole('columnheader', { name: 'temperature' }).waitFor();
    await page.getByRole('cell', { name: '9.5', exact: true }).waitFor();
    const [saved] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'CSV' }).click(),
    ]);
    expect(saved.suggestedFilename()).toBe('Cold room climate.csv');
    const stream = await saved.createReadStream();
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk as Buffer);
    expect(Buffer.concat(chunks).toString()).toMatch(/^createdAt,id,payload/);
  });

  it('loses the data of an element only after its name was typed', async () => {
    const { page } = visitor;
    const { id, token } = await fleet.device('Emptied', project);
    await fleet.event(token, { temperature: 3 });
    await visitor.open(`/devices/${id}/data`);
    await page.getByRole('cell', { name: '3', exact: true }).waitFor();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'Delete the data of climate?' });
    expect(await dialog.getByRole('button', { name: 'Delete', exact: true }).isDisabled()).toBe(true);
    await dialog.getByLabel(/Type/).fill('climate');
    await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByText('No data yet').waitFor();
    expect((await fleet.call<{ data: unknown[] }>('GET', `/devices/${id}/data/climate`)).data).toEqual([]);
  });

  it('goes only after its name was typed', async () => {
    const { page } = visitor;
    const doomed = await fleet.device('Doomed', project);
    await visitor.open(`/devices/${doomed.id}`);
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'Delete the device' }).click();
    const remove = page.getByRole('button', { name: 'Delete', exact: true });
    await page.getByLabel(/Type/).fill('doomed');
    expect(await remove.isDisabled()).toBe(true);
    await page.getByLabel(/Type/).fill('Doomed');
    await remove.click();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    await page.goto(`/devices/${doomed.id}`);
    await page.getByText('Device not found').first().waitFor();
  });
});

describe('roles', () => {
  it('that may only look are shown nothing that they may not do', async () => {
    const { page } = visitor;
    await visitor.open('/devices', 'viewer', 'cold-rooms-7');
    await page.getByRole('link', { name: 'Cold room' }).click();
    await page.getByRole('heading', { level: 1, name: 'Cold room' }).waitFor();
    for (const name of ['Edit', 'More actions']) expect(await page.getByRole('button', { name }).count()).toBe(0);
    expect(await page.getByRole('link', { name: 'Queue' }).count()).toBe(0);
    expect(await page.getByRole('link', { name: 'API' }).count()).toBe(0);
    await page.getByRole('link', { name: 'Settings' }).click();
    expect(await page.getByLabel('Alarm limit').isDisabled()).toBe(true);
    await page.goto('/devices');
    await page.getByRole('link', { name: 'Cold room' }).waitFor();
    expect(await page.getByRole('button', { name: 'New device' }).count()).toBe(0);
  });

  it('of technicians make and change devices, and delete none', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}`, 'tech', 'cold-rooms-7');
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Description (optional)').fill('Hall 2, behind the door');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Hall 2, behind the door').waitFor();
    expect(await page.getByRole('button', { name: 'More actions' }).count()).toBe(0);
  });
});

describe('organizations', () => {
  it('are switched, and everything follows', async () => {
    const { page } = visitor;
    const north = await fleet.call<{ id: string }>('POST', '/organizations', {
      name: 'North',
      parentId: fleet.organizationId,
    });
    await fleet.device('Northern fridge', project, { organizationId: north.id });
    await visitor.open('/devices');
    await page.getByRole('button', { name: /Organization: Root/ }).click();
    await page.getByLabel('Find an organization').fill('nor');
    await page.getByRole('button', { name: /North/ }).click();
    await page.getByText('One device').waitFor();
    await page.getByRole('link', { name: 'Northern fridge' }).waitFor();
    await page.reload();
    await page.getByText('One device').waitFor();
  });
});

describe('on a phone', () => {
  it('nothing is wider than the screen, and all can be reached', async () => {
    await takeAPhone();
    const { page } = visitor;
    await visitor.open();
    const pages = {
      '/': 'Devices by status',
      '/devices': 'Cold room',
      [`/devices/${device.id}`]: 'door.open',
      [`/devices/${device.id}/events`]: 'reading',
      [`/devices/${device.id}/settings`]: 'Alarm limit',
      [`/devices/${device.id}/data`]: 'door.open',
    };
    for (const [path, ready] of Object.entries(pages)) {
      await page.goto(path);
      await page.getByText(ready).first().waitFor();
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(width, path).toBeLessThanOrEqual(390);
    }
    await page.getByRole('link', { name: 'Overview' }).first().click();
    await page.getByRole('navigation', { name: 'Main navigation' }).getByRole('link', { name: 'Devices' }).tap();
    await page.getByRole('link', { name: 'Cold room' }).tap();
    await page.getByRole('heading', { level: 1, name: 'Cold room' }).waitFor();
  });
});
