import { readFile } from 'node:fs/promises';
import type { Locator, Request } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { PHONE } from './pages';
import { fleet, visitor, stage, withVisitor } from './stage';

const VALUES = 200_000;
const DAYS = 30;
const DAY_MS = 86_400_000;
/** What a chart may be made of, however much is stored. */
const POINTS_MAX = 1_000;
const AT_ONCE = 1_000;
const SENDERS = 4;

/** A store of whatever comes. */
const PLAIN = {
  reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'climate', ability: 'store' }] } },
  climate: { type: 'storage' },
};

let project: string;
let long: { id: string; token: string };
let room: { id: string; token: string };

/** A month of readings, which tell their own time, as of a device that was without a connection. */
async function month(deviceId: string, end: number): Promise<void> {
  const batches = Array.from({ length: VALUES / AT_ONCE }, (_, batch) => batch * AT_ONCE);
  const step = (DAYS * DAY_MS) / VALUES;
  await Promise.all(
    Array.from({ length: SENDERS }, async () => {
      for (let first = batches.shift(); first !== undefined; first = batches.shift()) {
        const start = first;
        const events = Array.from({ length: AT_ONCE }, (_, index) => ({
          elementName: 'reading',
          deviceId,
          payload: {
            at: end - DAYS * DAY_MS + (start + index) * step,
            temperature: 4 + Math.sin((start + index) / 5_000) + ((start + index) % 7) / 10,
          },
        }));
        await fleet.call('POST', '/events/device/batch', events);
      }
    }),
  );
}

stage(async () => {
  project = await fleet.project('Cold chain', PLAIN);
  room = await fleet.device('Cold room', project, { meta: { latitude: 47.37, longitude: 8.54 } });
  long = await fleet.device('Long room', project);
  for (const [index, temperature] of [4, 5, 6].entries()) {
    await fleet.event(room.token, { temperature, humidity: 60 + index, door: { open: 1 }, label: 'x' });
  }
  await month(long.id, Date.now());
  await fleet.user('viewer', 'basicUser');
});
withVisitor();

/** Each question for buckets, with what it was answered. */
function questions(): { asked: Record<string, string>; points: number }[] {
  const told: { asked: Record<string, string>; points: number }[] = [];
  visitor.page.on('requestfinished', (request: Request) => {
    const url = new URL(request.url());
    if (!url.pathname.endsWith('/buckets')) return;
    void request.response().then(async (response) => {
      const body = (await response?.json().catch(() => null)) as { data?: unknown[] } | null;
      told.push({ asked: Object.fromEntries(url.searchParams), points: body?.data?.length ?? 0 });
    });
  });
  return told;
}

const chart = (): Locator => visitor.page.getByRole('slider');
const made = (): Locator => visitor.page.getByText(/points? of/);
/** Waits until what was asked last is drawn: a drag over a picture that gives way to another is lost. */
const drawn = (): Promise<void> => visitor.page.locator('.chart[aria-busy="false"]').waitFor();
const address = (): URLSearchParams => new URL(visitor.page.url()).searchParams;

describe('a chart', () => {
  it('shows the stored keys that one chooses, and the address brings the same picture back', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${room.id}`);
    await page.getByRole('link', { name: 'Charts' }).click();
    await page.getByRole('button', { name: 'Keys (1)' }).click();
    await page.getByLabel('Find a key').fill('hum');
    await page.getByRole('checkbox', { name: 'humidity' }).check();
    await page.getByLabel('Find a key').fill('');
    // Texts are no numbers.
    expect(await page.getByRole('checkbox', { name: 'label' }).count()).toBe(0);
    await page.keyboard.press('Escape');
    await page.getByRole('combobox', { name: 'Range' }).selectOption('hour');
    await page.getByRole('button', { name: 'Separate charts' }).click();
    await expect
      .poll(() => Object.fromEntries(address()))
      .toEqual({
        keys: 'climate/temperature,climate/humidity',
        range: 'hour',
        view: 'split',
      });
    await expect.poll(() => page.locator('.uplot').count()).toBe(2);
    await page.reload();
    await expect.poll(() => page.locator('.uplot').count()).toBe(2);
    expect(await page.getByRole('combobox', { name: 'Range' }).inputValue()).toBe('hour');
    await page.getByRole('button', { name: 'Keys (2)' }).waitFor();
    await page.getByText(/points of 6 values/).waitFor();
  });

  it('stands still under the mouse', async () => {
    const { page } = visitor;
    for (const width of [360, 800, 1360]) {
      await page.setViewportSize({ width, height: 850 });
      await visitor.open(`/devices/${long.id}/charts?range=month`);
      const plots = page.locator('.plots');
      await page.locator('.legend').getByText('Newest').waitFor();
      const before = await plots.boundingBox();
      if (!before) throw new Error('no chart');
      for (const part of [0.3, 0.6, 0.9]) {
        await page.mouse.move(before.x + before.width * part, before.y + 60);
        await expect.poll(() => page.locator('.legend').innerText()).not.toContain('Newest');
        expect((await plots.boundingBox())?.y, `${width}`).toBe(before.y);
      }
      await page.mouse.move(0, 0);
    }
  });

  it('is read by keys, moment by moment, in words', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${long.id}/charts?keys=climate%2Ftemperature&range=month&time=at`);
    await made().waitFor();
    await chart().focus();
    await page.keyboard.press('End');
    await page.keyboard.press('ArrowLeft');
    await expect.poll(() => chart().getAttribute('aria-valuetext')).toMatch(/20\d\d.*temperature: [345]/);
    const before = await chart().getAttribute('aria-valuetext');
    await page.keyboard.press('ArrowLeft');
    await expect.poll(() => chart().getAttribute('aria-valuetext')).not.toBe(before);
    await page.keyboard.press('+');
    await page.getByRole('button', { name: 'Back to: Last 30 days' }).waitFor();
    const width = Date.parse(address().get('to') ?? '') - Date.parse(address().get('from') ?? '');
    expect(width).toBeLessThan(15.1 * DAY_MS);
    await page.getByRole('button', { name: 'Back to: Last 30 days' }).click();
    await expect.poll(() => address().has('from')).toBe(false);
  });

  it('stays small over a long series, and asks again for what is zoomed into', async () => {
    const { page } = visitor;
    await page.addInitScript(() => {
      const tasks: number[] = [];
      Object.assign(window, { longTasks: tasks });
      new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({
        entryTypes: ['longtask'],
      });
    });
    const told = questions();
    await visitor.open(`/devices/${long.id}/charts?keys=climate%2Ftemperature&range=month&time=at&live=off`);
    await page.getByText(/points of (199|200),\d{3} values/).waitFor();
    const longTasks = (): Promise<number[]> =>
      page.evaluate(() => (window as unknown as { longTasks: number[] }).longTasks.splice(0).map(Math.round));
    const opening = await longTasks();
    for (let zoom = 1; zoom <= 4; zoom += 1) {
      const plot = page.locator('.u-over');
      const box = await plot.boundingBox();
      if (!box) throw new Error('there is no plot');
      const before = page.url();
      await page.mouse.move(box.x + box.width * 0.3, box.y + 40);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * 0.5, box.y + 60, { steps: 4 });
      await page.mouse.up();
      await expect.poll(() => page.url()).not.toBe(before);
      await expect.poll(() => told.length).toBe(zoom + 1);
      expect(told[zoom]?.asked.from).toBe(address().get('from'));
      expect(told[zoom]?.asked.to).toBe(address().get('to'));
      await drawn();
    }
    for (const { points, asked } of told) {
      expect(points).toBeGreaterThan(0);
      expect(points).toBeLessThanOrEqual(POINTS_MAX);
      expect(Number(asked.points)).toBeLessThanOrEqual(POINTS_MAX);
    }
    const [first, zooms] = [opening, await longTasks()].map((tasks) => tasks.join(', ') || 'none');
    // eslint-disable-next-line no-console
    console.log(`tasks over 50 ms with ${VALUES} values: opening ${first}; four zooms ${zooms}`);
    // Without the crosshair, which stands where the mouse was.
    await page.mouse.move(0, 0);
    await page.locator('.legend').getByText('Newest').waitFor();
    const legend = await page.locator('.legend').innerText();
    const [from, to] = [address().get('from'), address().get('to')];
    await page.reload();
    await expect.poll(() => page.locator('.legend').innerText()).toBe(legend);
    expect([address().get('from'), address().get('to')]).toEqual([from, to]);
    // The way back is that of the browser too.
    await page.goBack();
    await expect.poll(() => address().get('from')).toBe(told[3]?.asked.from);
  });

  it('gives up a question that nobody waits for any more', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${long.id}/charts?keys=climate%2Ftemperature&range=hour&live=off`);
    await made().waitFor();
    const givenUp: string[] = [];
    page.on('requestfailed', (request) => {
      const url = new URL(request.url());
      if (url.pathname.endsWith('/buckets')) givenUp.push(request.failure()?.errorText ?? '');
    });
    let isHeld = true;
    await page.route('**/buckets?**', async (route) => {
      if (!isHeld) return route.fallback();
      isHeld = false;
      await new Promise((resolve) => page.once('requestfailed', resolve));
      return route.abort().catch(() => undefined);
    });
    await page.getByRole('combobox', { name: 'Range' }).selectOption('week');
    await expect.poll(() => isHeld).toBe(false);
    const answered = page.waitForResponse('**/buckets?**');
    await page.getByRole('combobox', { name: 'Range' }).selectOption('day');
    await expect.poll(() => givenUp).toEqual(['net::ERR_ABORTED']);
    await answered;
    await drawn();
    await made().waitFor();
  });

  it('follows what comes, and asks for its newest part alone', async () => {
    const { page } = visitor;
    const device = await fleet.device('Live room', project);
    await fleet.event(device.token, { temperature: 3 });
    const told = questions();
    await visitor.open(`/devices/${device.id}/charts?range=hour`);
    const legend = page.locator('.legend');
    await expect.poll(() => legend.innerText()).toContain('temperature');
    await fleet.event(device.token, { temperature: 41 });
    await expect.poll(() => legend.innerText()).toMatch(/22|41/);
    expect(told[0]?.asked.points).toBeDefined();
    await expect.poll(() => told.at(-1)?.asked.every).toBeDefined();
    expect(told.at(-1)?.asked.points).toBeUndefined();
    await page.getByRole('button', { name: 'Live' }).click();
    await expect.poll(() => address().get('live')).toBe('off');
  });

  it('has its numbers as a table and as a file', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${room.id}/charts?range=hour&keys=climate%2Ftemperature,climate%2Fdoor.open`);
    await page.getByRole('button', { name: 'Table' }).click();
    const table = page.getByRole('table');
    await table.getByRole('columnheader', { name: 'door.open' }).waitFor();
    await expect.poll(() => table.getByRole('row').count()).toBeGreaterThan(1);
    const saved = page.waitForEvent('download');
    await page.getByRole('button', { name: 'CSV' }).click();
    const file = await saved;
    expect(file.suggestedFilename()).toBe('Cold room temperature door.open.csv');
    const [head, ...rows] = (await readFile(await file.path(), 'utf8')).trim().split('\r\n');
    expect(head).toBe(
      'from,to,temperature mean,temperature min,temperature max,temperature count,door.open mean,door.open min,door.open max,door.open count',
    );
    expect(rows.map((row) => Number(row.split(',')[5])).reduce((sum, count) => sum + count, 0)).toBe(3);
  });

  it('keeps its picture and says why when it cannot be read, and where there is nothing', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${room.id}/charts?range=hour&live=off`);
    await page.getByText(/points? of 3 values/).waitFor();
    await page.route('**/buckets?**', (route) => route.fulfill({ status: 503, json: { message: 'busy', errors: [] } }));
    await page.getByRole('combobox', { name: 'Range' }).selectOption('week');
    await page.getByText('The server is busy').waitFor();
    expect(await page.locator('.uplot').count()).toBe(1);
    await page.unroute('**/buckets?**');
    await page.getByRole('button', { name: 'Try again' }).click();
    await expect.poll(() => page.getByText('The server is busy').count()).toBe(0);
    await page.goto(`/devices/${room.id}/charts?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z`);
    await page.getByText('Nothing in this range').waitFor();
    // Keys that are not there are told where they stand.
    await page.goto(`/devices/${room.id}/charts?keys=none%2Fx,climate%2Ftemperature&range=hour`);
    await page.getByText('This was not found, or you have no access to it.').waitFor();
    await page.getByText(/points? of 3 values/).waitFor();
  });
});

describe('last values', () => {
  it('have their course beside them, with one question for an element', async () => {
    const { page } = visitor;
    const told = questions();
    await visitor.open(`/devices/${room.id}`);
    await page.getByText('humidity', { exact: true }).waitFor();
    await expect.poll(() => told.length).toBe(1);
    expect(told[0]?.asked.fields?.split(',').sort()).toEqual([
      'payload.door.open',
      'payload.humidity',
      'payload.temperature',
    ]);
  });
});

describe('the overview', () => {
  it('counts events as they come, and shows where devices are', async () => {
    const { page } = visitor;
    await visitor.open('/');
    const rate = page.locator('.rate');
    await expect.poll(() => rate.innerText()).toContain('events in the last');
    for (let index = 0; index < 3; index += 1) await fleet.event(room.token, { temperature: 5 });
    await expect.poll(async () => Number((await rate.locator('.figure').innerText()).trim())).toBeGreaterThanOrEqual(3);
    await page.getByRole('button', { name: 'Cold room: No status' }).click();
    await page.getByRole('heading', { level: 1, name: 'Cold room' }).waitFor();
  });

  it('has a map that is steered by keys', async () => {
    const { page } = visitor;
    await visitor.open('/');
    const mark = page.getByRole('button', { name: 'Cold room: No status' });
    const before = await mark.boundingBox();
    await page.getByRole('application', { name: /Map of the devices/ }).focus();
    await page.keyboard.press('ArrowRight');
    await expect.poll(async () => ((await mark.boundingBox())?.x ?? 0) - (before?.x ?? 0)).toBeLessThan(-40);
    await page.keyboard.press('0');
    await expect.poll(async () => Math.round((await mark.boundingBox())?.x ?? 0)).toBe(Math.round(before?.x ?? 0));
    await page.keyboard.press('Tab');
    expect(await mark.evaluate((element) => element === document.activeElement)).toBe(true);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Cold room' }).waitFor();
  });
});

interface Kept {
  name: string | null;
  configuration: { widgets: { type: string; x: number; y: number; w: number; h: number }[] };
}
const kept = (id = fleet.organizationId): Promise<Kept> => fleet.call('GET', `/organizations/${id}/dashboard`);
const widget = (name: string): Locator => visitor.page.getByRole('region', { name });

describe('a dashboard', () => {
  it('begins with what is ready, is added to by a form with a preview, and is kept by the server', async () => {
    const { page } = visitor;
    await visitor.open('/dashboards');
    await page.getByRole('heading', { name: 'Add your first widget' }).waitFor();
    await page.getByRole('button', { name: 'Devices by status' }).click();
    await widget('Devices by status').getByText('No status').waitFor();
    await page.getByRole('button', { name: 'Add a widget' }).click();
    const form = page.getByRole('dialog');
    expect(await form.getByRole('button', { name: 'Add', exact: true }).isDisabled()).toBe(true);
    await form.getByLabel('Title (optional)').fill('Temperatures');
    await form.getByRole('button', { name: 'Cold room' }).click();
    await form.getByRole('checkbox', { name: 'temperature' }).check();
    await form.getByLabel('Unit of temperature').fill('°C');
    await form.getByRole('region', { name: 'Preview' }).getByText('°C').waitFor();
    await form.getByRole('button', { name: 'Add', exact: true }).click();
    await widget('Temperatures').locator('.uplot').waitFor();
    for (const kind of ['Value', 'Gauge']) {
      await page.getByRole('button', { name: 'Add a widget' }).click();
      await form.getByLabel('Widget type').selectOption({ label: kind });
      await form.getByLabel('Title (optional)').fill(`${kind} now`);
      await form.getByRole('button', { name: 'Cold room' }).click();
      await form.getByRole('radio', { name: 'temperature' }).check();
      await form.getByRole('button', { name: 'Add', exact: true }).click();
      await widget(`${kind} now`).getByText('Cold room').waitFor();
    }
    await page.getByRole('button', { name: 'Add a widget' }).click();
    await form.getByLabel('Widget type').selectOption({ label: 'Table of devices' });
    await form.getByRole('checkbox', { name: 'temperature' }).check();
    await form.getByRole('button', { name: 'Add', exact: true }).click();
    await widget('Table of devices').first().getByRole('link', { name: 'Cold room' }).waitFor();
    await page.getByRole('button', { name: 'Settings of the dashboard' }).click();
    await form.getByLabel('Name').fill('Cold rooms');
    await form.getByRole('button', { name: 'Apply' }).click();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Arrange' }).waitFor();
    const { name, configuration } = await kept();
    expect(name).toBe('Cold rooms');
    expect(configuration.widgets.map(({ type }) => type).sort()).toEqual(['gauge', 'line', 'status', 'table', 'value']);
    await page.reload();
    await page.getByRole('heading', { level: 1, name: 'Cold rooms' }).waitFor();
    await widget('Temperatures').locator('.uplot').waitFor();
  });

  it('is arranged by pointer and by keys', async () => {
    const { page } = visitor;
    await visitor.open('/dashboards');
    await page.getByRole('button', { name: 'Arrange' }).click();
    const before = (await kept()).configuration.widgets.find(({ type }) => type === 'line');
    await page.getByRole('button', { name: /^Size Temperatures/ }).focus();
    await page.keyboard.press('ArrowDown');
    await page.getByText(`${before?.w} wide, ${(before?.h ?? 0) + 1} high`).waitFor();
    await page.getByRole('button', { name: /^Move Temperatures/ }).focus();
    await page.keyboard.press('ArrowDown');
    // Whoever moves it keeps it in hand.
    await expect
      .poll(() => page.evaluate(() => document.activeElement?.getAttribute('aria-label')))
      .toContain('Move Temperatures');
    const grip = page.getByRole('button', { name: /^Move Value now/ });
    // What is taken into hand comes into view: only when the page stands still it is where it is measured.
    await grip.scrollIntoViewIfNeeded();
    const box = await grip.boundingBox();
    if (!box) throw new Error('there is no handle');
    await page.mouse.move(box.x + 8, box.y + 8);
    await page.mouse.down();
    await page.mouse.move(box.x + 8, box.y + 600, { steps: 8 });
    await page.mouse.up();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Arrange' }).waitFor();
    const after = (await kept()).configuration.widgets;
    expect(after.find(({ type }) => type === 'line')).toMatchObject({ w: before?.w, h: (before?.h ?? 0) + 1 });
    for (const one of after) {
      for (const other of after) {
        const isApart =
          one === other ||
          one.x + one.w <= other.x ||
          other.x + other.w <= one.x ||
          one.y + one.h <= other.y ||
          other.y + other.h <= one.y;
        expect(isApart, `${one.type} and ${other.type} do not overlap`).toBe(true);
      }
    }
  });

  it('loses nothing when saving fails, nor when one looks elsewhere in between', async () => {
    const { page } = visitor;
    await visitor.open('/dashboards');
    await page.getByRole('button', { name: 'Arrange' }).click();
    await page.getByRole('button', { name: 'Remove Value now' }).click();
    await page.route('**/dashboards/*', (route) =>
      route.request().method() === 'PUT' ? route.abort('connectionfailed') : route.fallback(),
    );
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Your unsaved changes are still here.').waitFor();
    await page.getByText('The server does not respond.').waitFor();
    await page.getByRole('link', { name: 'Devices', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    await page.getByRole('link', { name: 'Dashboard' }).click();
    await page.getByRole('button', { name: 'Remove Gauge now' }).waitFor();
    expect(await widget('Value now').count()).toBe(0);
    await page.unroute('**/dashboards/*');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Arrange' }).waitFor();
    expect((await kept()).configuration.widgets.map(({ type }) => type)).not.toContain('value');
  });

  it('does not overwrite what somebody else has saved meanwhile, unless told to', async () => {
    const { page } = visitor;
    await visitor.open('/dashboards');
    await page.getByRole('button', { name: 'Arrange' }).click();
    await page.getByRole('button', { name: 'Remove Gauge now' }).click();
    const theirs = await kept();
    await fleet.call('PUT', `/organizations/${fleet.organizationId}/dashboard`, { ...theirs, name: 'Theirs' });
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Somebody else has changed this dashboard').waitFor();
    expect((await kept()).name).toBe('Theirs');
    await page.getByRole('button', { name: 'Load theirs, discard mine' }).click();
    await page.getByRole('heading', { level: 1, name: 'Theirs' }).waitFor();
    await widget('Gauge now').waitFor();
  });

  it('is only looked at by roles that may not change it, on a phone in one column', async () => {
    const { page } = visitor;
    await visitor.page.setViewportSize(PHONE.viewport ?? { width: 390, height: 844 });
    await visitor.open('/dashboards', 'viewer', 'cold-rooms-7');
    await widget('Temperatures').waitFor();
    for (const name of ['Arrange', 'Add a widget', 'Save']) {
      expect(await page.getByRole('button', { name }).count()).toBe(0);
    }
    const lefts = await page
      .locator('[data-widget]')
      .evaluateAll((all) => all.map((one) => one.getBoundingClientRect().left));
    expect(new Set(lefts).size).toBe(1);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  });

  it('is inherited by organizations beneath, which may make an own one of it', async () => {
    const { page } = visitor;
    const low = await fleet.call<{ id: string }>('POST', '/organizations', {
      name: 'Hall 2',
      parentId: fleet.organizationId,
    });
    await visitor.open('/dashboards');
    await page.getByRole('button', { name: 'Arrange' }).click();
    await page.getByRole('button', { name: 'Settings of the dashboard' }).click();
    await page.getByRole('checkbox', { name: /organizations beneath/ }).check();
    await page.getByRole('button', { name: 'Apply' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Arrange' }).waitFor();
    await page.getByRole('button', { name: /Organization:/ }).click();
    await page.getByRole('button', { name: /Hall 2/ }).click();
    await page.getByText('Inherited from Root').waitFor();
    await page.getByRole('button', { name: 'Customize a copy' }).click();
    await page.getByRole('button', { name: 'Remove Gauge now' }).click();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Arrange' }).waitFor();
    expect(await page.getByText('Inherited from Root').count()).toBe(0);
    const types = async (id?: string) => (await kept(id)).configuration.widgets.map(({ type }) => type);
    expect(await types(low.id)).not.toContain('gauge');
    expect(await types()).toContain('gauge');
  });
});
