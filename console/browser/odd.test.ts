import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { node } from './canvas';
import { fleet, stage, takeAPhone, visitor, withVisitor } from './stage';

/** What others send and write: the console shows what can be shown of it, and what fails fails alone. */

const PLAIN = {
  reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'climate', ability: 'store' }] } },
  climate: { type: 'storage', position: { x: 0, y: 0 } },
  lost: { type: 'storage', position: { x: 1e300, y: 0 } },
};
/** Its decoder warns twice in the same words. */
const WARNING = {
  uplink: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'decode', ability: 'evaluate' }] } },
  decode: {
    type: 'function',
    properties: {
      code: "function decodeUplink() { return { data: { temp: 4 }, warnings: ['battery low', 'battery low'] }; }",
      bytesRef: '$.bytes',
    },
    triggers: { result: [{ element: 'climate', ability: 'store' }] },
  },
  climate: { type: 'storage' },
};
const LONG = 'Wolfeschlegelsteinhausenbergerdorffwelchevoralternwarengewis';

let project: string;
let odd: { id: string; token: string };
let dotted: { id: string; token: string };

stage(async () => {
  project = await fleet.project('Cold chain', PLAIN);
  odd = await fleet.device('Odd \u202eone', project);
  dotted = await fleet.device('Dotted', project);
  await fleet.event(odd.token, { 'a.b': 1, a: { b: 2 }, tiny: 1e-300, text: '\u202elive' });
  await fleet.event(dotted.token, { 'key.with.dot': 3 });
});
withVisitor();

function dashboard(widgets: unknown[]): Promise<unknown> {
  const path = `/organizations/${fleet.organizationId}/dashboard`;
  return fleet.call('PUT', path, { name: 'Theirs', options: {}, configuration: { widgets } });
}

/** The faults that were told to the browser's console, which a visitor would not forgive otherwise. */
function forgiven(): string[] {
  return visitor.faults.splice(0);
}

describe('a device', () => {
  it('is shown with keys that have points, and charts draw these too', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${odd.id}`);
    const values = page.locator('dl.values');
    await values.getByText('"a.b"', { exact: true }).waitFor();
    await values.getByText('a.b', { exact: true }).waitFor();
    await values.getByText('1E-300').waitFor();
    await values.getByText('⟨U+202E⟩live').waitFor();
    await page.getByRole('heading', { level: 1, name: 'Odd ⟨U+202E⟩one' }).waitFor();
    await page.getByRole('link', { name: 'Data' }).click();
    await page.getByRole('columnheader', { name: 'tiny' }).waitFor();
    expect(await page.getByRole('columnheader').allInnerTexts()).toEqual(
      expect.arrayContaining(['"a.b"', 'a.b', 'tiny', 'text']),
    );
    await page.getByRole('link', { name: 'Charts' }).click();
    await page.getByRole('button', { name: 'Keys (1)' }).click();
    await page.getByRole('checkbox', { name: 'tiny' }).waitFor();
    expect(await page.getByRole('checkbox', { name: 'a.b' }).count()).toBe(2);
    await page.goto(`/devices/${dotted.id}/charts`);
    await page.getByRole('button', { name: 'Keys (1)' }).waitFor();
    await page.locator('.chart[aria-busy="false"]').waitFor();
  });

  it('whose address is broken is missing, as any other that is not there', async () => {
    const { page } = visitor;
    await visitor.open('/devices/%E0%A4%A');
    await page.getByRole('heading', { name: 'Device not found' }).first().waitFor();
  });
});

describe('a dashboard that another program has written', () => {
  it('shows each of its widgets, as far as it says what they are', async () => {
    const { page } = visitor;
    const key = { deviceId: odd.id, elementName: 'climate', path: 'a.b' };
    await dashboard([
      { id: 'same', type: 'text', title: 'One', settings: { text: 'first words' } },
      { id: 'same', type: 'text', title: 'Two', settings: { text: {} } },
      { type: 'text', title: 'Three', settings: [] },
      { id: 'widget-2', type: 'line', title: 'Four', settings: { keys: [null, key, key] } },
      { type: 'line', title: 'Five', settings: { keys: 5 } },
      { type: 'gauge', title: 'Six', settings: { keys: [key], min: 'a', max: {} } },
      { type: 'table', title: 'Seven', settings: { elementName: 'climate', paths: 'temperature' } },
      { type: 'table', title: 'Eight', settings: { elementName: 'climate', paths: ['tiny', 'tiny', 7] } },
      { type: 'toString', title: '', settings: { keys: 5 } },
    ]);
    await visitor.open('/dashboards');
    await page.getByText('first words').waitFor();
    expect(await page.locator('[data-widget]').count()).toBe(9);
    const eight = page.getByRole('region', { name: 'Eight' });
    await eight.getByRole('link', { name: /^Odd/ }).waitFor();
    expect(await eight.getByRole('columnheader', { name: 'tiny' }).count()).toBe(1);
    await page
      .getByRole('region', { name: 'Six' })
      .getByRole('img', { name: /on a scale from 0 to 100/ })
      .waitFor();
    expect(await page.locator('main').innerText()).not.toMatch(/NaN|\[object/);
  });
});

describe('what fails while it is drawn', () => {
  it('fails alone: another page goes, and so does this one when it is tried again', async () => {
    const { page } = visitor;
    const answer = `**/v2/devices/${odd.id}?*`;
    await page.route(answer, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...((await response.json()) as object), lastValues: [null] } });
    });
    await visitor.open(`/devices/${odd.id}`);
    const words = page.getByRole('alert').getByText('This page could not be shown');
    await words.waitFor();
    await page.getByRole('link', { name: 'Projects' }).first().click();
    await page.getByRole('heading', { level: 1, name: 'Projects' }).waitFor();
    expect(await words.count()).toBe(0);
    await page.goBack();
    await words.waitFor();
    await page.unroute(answer);
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.locator('dl.values').getByText('"a.b"', { exact: true }).waitFor();
    expect(forgiven().join()).toMatch(/TypeError/);
  });

  it('leaves the other widgets of a dashboard', async () => {
    const { page } = visitor;
    await dashboard([
      { type: 'table', title: 'Broken', settings: { elementName: 'climate', paths: ['tiny'] } },
      { type: 'text', title: 'Whole', settings: { text: 'still here' } },
    ]);
    const odd = { id: 'odd', name: 'Odd', lastValues: [], statusText: 'none', lastActive: 'never' };
    await page.route('**/v2/devices?*', (route) => route.fulfill({ json: { data: [odd], meta: { totalDocs: 1 } } }));
    await visitor.open('/dashboards');
    await page.getByRole('region', { name: 'Broken' }).getByText('This widget could not be shown').waitFor();
    await page.getByText('still here').waitFor();
    await page.unroute('**/v2/devices?*');
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('region', { name: 'Broken' }).getByRole('link', { name: /^Odd/ }).waitFor();
    expect(forgiven().join()).toMatch(/RangeError/);
  });
});

describe('a design', () => {
  it('with an element beyond all bounds shows it among the others', async () => {
    const { page } = visitor;
    await visitor.open(`/projects/${project}/design`);
    for (const name of ['climate', 'lost']) {
      await node(page, name).waitFor();
      await expect.poll(() => isInWindow(page, name)).toBe(true);
    }
  });

  it('shows the same warning of a trial as often as it was given', async () => {
    const { page } = visitor;
    const warning = await fleet.project('Decoder', WARNING);
    const device = await fleet.device('Battery', warning);
    await fleet.event(device.token, { bytes: '/84=' }, 'uplink');
    await visitor.open(`/projects/${warning}/design`);
    await page.getByRole('button', { name: 'Try it out' }).click();
    await page.getByLabel('Run as device').selectOption({ label: 'Battery' });
    const recorded = page.getByLabel('Recorded event');
    await recorded.locator('option').nth(1).waitFor({ state: 'attached' });
    await recorded.selectOption({ index: 1 });
    await page.getByRole('button', { name: 'Run' }).click();
    const steps = page.getByRole('list', { name: 'Steps' });
    await steps.getByText('battery low').nth(1).waitFor();
  });
});

/** Whether an element of a design is within what the window shows. */
async function isInWindow(page: Page, name: string): Promise<boolean> {
  const box = await node(page, name).boundingBox();
  const { width, height } = page.viewportSize() ?? { width: 0, height: 0 };
  return box !== null && box.x >= 0 && box.y >= 0 && box.x < width && box.y < height;
}

describe('pages', () => {
  it('whose list cannot be read show no empty one', async () => {
    const { page } = visitor;
    await page.route('**/v2/devices?*', (route) => route.fulfill({ status: 500, json: {} }));
    await visitor.open('/devices');
    await page.getByText('The server could not do this because of an internal error.').waitFor();
    expect(await page.locator('main .card').count()).toBe(0);
  });

  it('stay as wide as the screen, however long the names and however many the columns', async () => {
    const person = await fleet.user('long', 'basicUser');
    const named = { firstName: 'Ada', lastName: LONG, company: 'Cold Chain', role: 'basicUser' };
    await fleet.call('PUT', `/users/${person.id}`, named);
    const columns = Array.from({ length: 80 }, (_, index) => ({ path: `meta.label${index}` }));
    const body = { organizationId: fleet.organizationId, columns };
    await fleet.call('PUT', `/organizations/${fleet.organizationId}/deviceTable`, body);
    const beyond = async (): Promise<number> =>
      visitor.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    for (const isPhone of [false, true]) {
      if (isPhone) await takeAPhone();
      const { page } = visitor;
      await visitor.open('/users');
      await page.getByRole('link', { name: LONG }).waitFor();
      if (!isPhone) await page.getByText('long · long@example.com', { exact: true }).waitFor();
      expect(await beyond(), 'users').toBeLessThanOrEqual(0);
      await page.goto('/devices');
      await page.getByRole('link', { name: /^Odd/ }).waitFor();
      expect(await beyond(), 'devices').toBeLessThanOrEqual(0);
    }
  });
});

describe('what cannot be had', () => {
  it('is not waited for for ever', async () => {
    const { page } = visitor;
    const gone = '01981c30-0a00-7b21-a001-1122334455aa';
    await visitor.open(`/devices?filter[projectUuid][eq]=${gone}`);
    await page
      .getByRole('button', { name: /Project not found$/ })
      .first()
      .waitFor();
    const failure = { message: 'an internal error', errors: [] };
    await page.route('**/v2/devices/summary?**', (route) => route.fulfill({ status: 500, json: failure }));
    await page.goto('/projects');
    await page.getByRole('link', { name: '–', exact: true }).first().waitFor();
  });
});
