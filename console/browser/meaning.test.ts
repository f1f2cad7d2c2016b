import type { Locator } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { node, save, saved } from './canvas';
import { fleet, stage, takeAPhone, visitor, withVisitor } from './stage';

/** What a design says of its keys is said once, and seen wherever values are. */

const FIELDS = {
  'payload.temp': {
    title: { en: 'Temperature', de: 'Temperatur' },
    unit: '°C',
    decimals: 1,
    minimum: 0,
    maximum: 12,
    low: 2,
    high: 8,
  },
  'payload["front door"].open': { title: 'Door', words: { true: 'open', false: 'closed' } },
};
const DESIGN = {
  reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'climate', ability: 'store' }] } },
  climate: { type: 'storage', properties: { fields: FIELDS } },
};

let project: string;
let room: { id: string; token: string };

stage(async () => {
  project = await fleet.project('Cold chain', DESIGN);
  room = await fleet.device('Cold room', project);
  for (const temp of [4.123456, 5.5, 9.123456]) {
    await fleet.event(room.token, {
      temp,
      'front door': { open: true },
      humidity: 61.123456789,
      note: null,
      on: false,
    });
  }
  await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, {
    name: 'Board',
    options: { organizationId: fleet.organizationId },
    configuration: {
      widgets: [
        { id: 'a', type: 'value', title: 'Figure', x: 0, y: 0, w: 3, h: 3, settings: { keys: [key('temp')] } },
        { id: 'b', type: 'gauge', title: 'Gauge', x: 3, y: 0, w: 3, h: 3, settings: { keys: [key('temp')] } },
        { id: 'c', type: 'line', title: 'Line', x: 6, y: 0, w: 6, h: 4, settings: { keys: [key('temp')] } },
        {
          id: 'd',
          type: 'table',
          title: 'Table',
          x: 0,
          y: 4,
          w: 12,
          h: 4,
          settings: { elementName: 'climate', paths: ['temp', 'front door.open'] },
        },
        { id: 'f', type: 'value', title: '', x: 3, y: 8, w: 3, h: 2, settings: { keys: [key('temp')] } },
        { id: 'e', type: 'value', title: 'Own', x: 0, y: 8, w: 3, h: 2, settings: { keys: [key('temp', 'K')] } },
      ],
    },
  });
});
withVisitor();

const key = (path: string, unit?: string): object => ({
  deviceId: room.id,
  deviceName: 'Cold room',
  elementName: 'climate',
  path,
  ...(unit ? { unit } : {}),
});
const tile = (name: string): Locator =>
  visitor.page.locator('dl.values > div').filter({ has: visitor.page.getByText(name, { exact: true }) });

describe('the page of a device', () => {
  it('has titles, units, decimals and words on its tiles', async () => {
    await visitor.open(`/devices/${room.id}`);
    const temperature = tile('Temperature');
    await temperature.getByText('9.1').waitFor();
    await temperature.getByText('°C', { exact: true }).waitFor();
    expect(await temperature.locator('dd').first().getAttribute('title')).toBe('9.123456 °C');
    await temperature.getByText('above 8 °C').waitFor();
    await tile('Door').getByText('open', { exact: true }).waitFor();
  });

  it('has few digits where nothing is said, and nothing raw', async () => {
    await visitor.open(`/devices/${room.id}`);
    const humidity = tile('humidity');
    await humidity.getByText('61.1235').waitFor();
    expect(await humidity.locator('dd').first().getAttribute('title')).toBe('61.123456789');
    await tile('note').getByText('–').waitFor();
    await tile('on').getByText('No', { exact: true }).waitFor();
  });

  it('has them in its table of data, and on a phone in German', async () => {
    await visitor.open(`/devices/${room.id}/data`);
    const { page } = visitor;
    await page.getByRole('columnheader', { name: 'Temperature (°C)', exact: true }).waitFor();
    await page.getByRole('columnheader', { name: 'Door', exact: true }).waitFor();
    await page.getByRole('cell', { name: 'above 8 °C 9.1' }).waitFor();
    await page.getByRole('cell', { name: 'open' }).first().waitFor();
    await page.getByRole('cell', { name: '61.123457' }).first().waitFor();
    await takeAPhone();
    await visitor.page.addInitScript(() => localStorage.setItem('PARAGLIDE_LOCALE', 'de'));
    await visitor.open(`/devices/${room.id}/data`);
    await visitor.page.getByRole('columnheader', { name: 'Temperatur (°C)', exact: true }).waitFor();
  });

  it('has them in the headings of its export', async () => {
    await visitor.open(`/devices/${room.id}/data`);
    const { page } = visitor;
    await page.getByRole('columnheader', { name: 'Temperature (°C)', exact: true }).waitFor();
    const [saved] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'CSV' }).click(),
    ]);
    const lines = (await textOf(await saved.createReadStream())).split('\r\n');
    expect(lines[0]).toBe('createdAt,id,Temperature (°C),Door,payload.humidity,payload.note,payload.on');
    expect(lines[1]).toContain(',9.123456,true,61.123456789,');
    expect(lines).toHaveLength(5);
  });
});

describe('a chart', () => {
  it('has title, unit and limits of its key, and says what lies beyond', async () => {
    await visitor.open(`/devices/${room.id}/charts?keys=climate%2Ftemp&range=hour`);
    const { page } = visitor;
    const chart = page.getByRole('slider', { name: /Temperature/ });
    await chart.waitFor();
    await page.locator('.legend').getByText('Temperature', { exact: true }).waitFor();
    await page.locator('.legend .value').getByText('°C').waitFor();
    await chart.focus();
    await page.keyboard.press('End');
    await expect.poll(() => chart.getAttribute('aria-valuetext')).toMatch(/Temperature: \d\.\d °C/);
    const limits = await page.locator('.chart canvas').evaluate(coloursOf);
    expect(limits, 'a line at each limit').toBeGreaterThan(0);
    const [saved] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'CSV' }).click(),
    ]);
    expect(await textOf(await saved.createReadStream())).toMatch(/^from,to,Temperature \(°C\) mean,/);
  });

  it('has its numbers in a table under the same heading', async () => {
    await visitor.open(`/devices/${room.id}/charts?keys=climate%2Ftemp&range=hour&table=on`);
    await visitor.page.getByRole('columnheader', { name: 'Temperature (°C)', exact: true }).waitFor();
  });
});

/** Runs in the page: how many rows of a canvas have the colour of warnings from side to side. */
function coloursOf(canvas: Element): number {
  const { width, height } = canvas as HTMLCanvasElement;
  const data = (canvas as HTMLCanvasElement).getContext('2d')?.getImageData(0, 0, width, height).data ?? [];
  let rows = 0;
  for (let y = 0; y < height; y += 1) {
    let warm = 0;
    for (let x = 0; x < width; x += 1) {
      const [red = 0, , blue = 0, alpha = 0] = data.slice(4 * (y * width + x), 4 * (y * width + x) + 4);
      if (alpha > 200 && red - blue > 100) warm += 1;
    }
    if (warm > width / 4) rows += 1;
  }
  return rows;
}

describe('a board', () => {
  it('shows values as their design says, unless a widget says otherwise', async () => {
    await visitor.open('/dashboards');
    const { page } = visitor;
    const widget = (name: string): Locator => page.getByRole('region', { name });
    await widget('Figure').getByText('9.1').waitFor();
    await widget('Figure').getByText('°C', { exact: true }).waitFor();
    await widget('Figure').getByText('above 8 °C').waitFor();
    await widget('Own').getByText('K', { exact: true }).waitFor();
    await widget('Gauge').getByRole('img', { name: '9.1 °C, on a scale from 0 to 12' }).waitFor();
    await widget('Line').getByText('Temperature').first().waitFor();
    await widget('Table').getByRole('columnheader', { name: 'Temperature (°C)', exact: true }).waitFor();
    await widget('Table').getByRole('cell', { name: 'open', exact: true }).waitFor();
    await widget('Cold room: Temperature').waitFor();
  });
});

describe('the keys to choose from', () => {
  it('are called as their design says, and found by either name', async () => {
    await visitor.open(`/devices/${room.id}/charts?keys=climate%2Ftemp`);
    const { page } = visitor;
    await page.getByRole('button', { name: 'Keys (1)' }).click();
    await page.getByRole('checkbox', { name: 'Temperature' }).waitFor();
    await page.getByLabel('Find a key').fill('humid');
    await page.getByRole('checkbox', { name: 'humidity' }).waitFor();
    await page.getByLabel('Find a key').fill('temperature');
    await page.getByRole('checkbox', { name: 'Temperature' }).waitFor();
  });
});

describe('the canvas', () => {
  it('has a row for each path, and a fault stands beside the row', async () => {
    const id = await fleet.project('Edited', DESIGN);
    const { token, id: deviceId } = await fleet.device('Edited room', id);
    await fleet.event(token, { temp: 4, level: 0.5 });
    await visitor.open(`/projects/${id}/design`);
    const { page } = visitor;
    await node(page, 'climate').click();
    await page.getByText('Meaning of keys').waitFor();
    await page.getByText('payload.temp', { exact: true }).waitFor();
    // The path that is added is the first that a device has sent: what was sent has arrived once it can be chosen.
    await page.locator('datalist option[value="payload.level"]').waitFor({ state: 'attached' });
    await page.getByRole('button', { name: 'Add a key' }).click();
    const row = page.locator('details').filter({ hasText: 'payload.level' });
    expect(await row.getByLabel('Path').inputValue()).toBe('payload.level');
    await row.getByLabel('Unit').fill('m');
    await row.getByLabel('Limit below').fill('9');
    await row.getByLabel('Limit above').fill('8');
    await row.getByLabel('Words').fill('0 = empty');
    await row.getByLabel('Words').blur();
    await save(page).click();
    await row.getByText('The lower one must not be above the upper one.').waitFor();
    await row.getByLabel('Path').fill('level');
    await row.getByLabel('Path').blur();
    await row.getByText(/A path is needed here/).waitFor();
    await row.getByLabel('Limit above').fill('10');
    await save(page).click();
    await saved(page);
    const { fields } = await fleet.call<{ fields: Record<string, unknown> }>(
      'GET',
      `/devices/${deviceId}/storage/climate`,
    );
    expect(fields['payload.level']).toEqual({ unit: 'm', low: 9, high: 10, words: { '0': 'empty' } });
    // What was saved is seen at once.
    await page.getByRole('link', { name: 'Devices' }).first().click();
    await page.getByRole('link', { name: 'Edited room' }).click();
    await tile('level').getByText('below 9 m').waitFor();
  });
});

describe('a row of the canvas that was opened', () => {
  it('stays open while it is changed', async () => {
    await visitor.open(`/projects/${await fleet.project('Opened', DESIGN)}/design`);
    const { page } = visitor;
    await node(page, 'climate').click();
    await page.getByText('payload.temp', { exact: true }).click();
    const row = page.locator('details').filter({ hasText: 'payload.temp' }).first();
    await row.getByLabel('Unit').fill('K');
    await page.getByText('Unsaved changes').waitFor();
    expect(await row.getByLabel('Unit').isVisible()).toBe(true);
  });

  it('stays open where it is changed before the browser tells that it is open', async () => {
    await visitor.open(`/projects/${await fleet.project('Opened and typed', DESIGN)}/design`);
    const { page } = visitor;
    await node(page, 'climate').click();
    const row = page.locator('details').filter({ hasText: 'payload.temp' }).first();
    const unit = await row.locator('label', { hasText: 'Unit' }).getAttribute('for');
    // One task of the browser: what it has to tell comes after it.
    await row.evaluate((details, id) => {
      details.querySelector('summary')?.click();
      const input = details.ownerDocument.getElementById(id ?? '') as HTMLInputElement;
      input.value = 'K';
      input.dispatchEvent(new Event('input', { bubbles: true }));
    }, unit);
    await page.getByText('Unsaved changes').waitFor();
    expect(await row.getByLabel('Unit').isVisible()).toBe(true);
    await row.locator('summary').click();
    await row.getByLabel('Unit').waitFor({ state: 'hidden' });
  });
});

describe('the first snippet of a device', () => {
  it('carries the keys that its design reads', async () => {
    await visitor.open('/devices?new');
    const { page } = visitor;
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill('New room');
    await dialog.getByLabel('Project').selectOption({ label: 'Cold chain' });
    await dialog.getByRole('button', { name: 'Create the device' }).click();
    await dialog.getByText('{"temp": 5, "front door": {"open": true}}').waitFor();
  });
});

async function textOf(stream: AsyncIterable<unknown>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}
