import type { Page } from 'playwright-core';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PASSWORD, designers, elements, node, open, panel, save, saved, write } from './canvas';
import { Visitor } from './pages';
import { browser, fleet, server, visitor } from './stage';

designers();

describe('unsaved work', () => {
  const DESIGN = { values: { type: 'storage' } };

  it('outlives a reload, an ended session and a server that is away; leaving asks', async () => {
    const { page } = visitor;
    const project = await fleet.project('Kept', DESIGN);
    await open(page, project);
    await page.getByRole('button', { name: 'Add Device event' }).click();
    await node(page, 'reading').waitFor();
    // Leaving asks, and one may stay.
    await page.getByRole('link', { name: 'Devices' }).click();
    await page.getByRole('button', { name: 'Stay' }).click();
    expect(new URL(page.url()).pathname).toBe(`/projects/${project}/design`);
    // The server is away.
    await page.route('**/specification', (route) =>
      route.request().method() === 'PUT' ? route.abort() : route.fallback(),
    );
    await save(page).click();
    await page.getByText('The server does not respond').waitFor();
    await page.getByText('Nothing is lost').waitFor();
    await page.unroute('**/specification');
    await page.reload();
    await page.getByText('These changes were not saved').waitFor();
    await node(page, 'reading').waitFor();
    // The session ends: whoever signs in again is back at the work.
    // What the page asks by itself is not refused: it would hear of the end before the save does.
    await page.route(/\/v2\/(auth\/refreshToken|projects\/[^/]+\/specification)$/, (route) =>
      route.request().url().endsWith('/refreshToken') || route.request().method() === 'PUT'
        ? route.fulfill({ status: 401, json: { message: 'over', errors: [] } })
        : route.fallback(),
    );
    await save(page).click();
    await page.getByText('Your session has ended').waitFor();
    await page.unrouteAll();
    await visitor.signIn();
    await node(page, 'reading').waitFor();
    await save(page).click();
    await saved(page);
    expect(Object.keys(await elements(project))).toEqual(['values', 'reading']);
    await page.reload();
    await page.getByText('Saved', { exact: true }).waitFor();
    expect(await page.getByText('These changes were not saved').count()).toBe(0);
  });

  it('is not seen by another user of the same browser', async () => {
    const { page } = visitor;
    const project = await fleet.project('Mine alone', DESIGN);
    await open(page, project);
    await page.getByRole('button', { name: 'Add Device event' }).click();
    await page.getByRole('link', { name: 'Devices' }).click();
    await page.getByRole('button', { name: 'Leave', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    await page.getByRole('button', { name: /account of/ }).click();
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    // The answer to it takes the cookie away, be it that of whoever signs in next.
    await page.getByLabel('Username or e-mail').waitFor();
    await visitor.open(`/projects/${project}/design`, 'administrator', PASSWORD);
    await node(page, 'values').waitFor();
    expect(await node(page, 'reading').count()).toBe(0);
  });
});

describe('two people on one design', () => {
  const DESIGN = { values: { type: 'storage' }, warm: { type: 'condition', properties: { expression: 'true' } } };
  let other: Visitor;

  beforeEach(async () => {
    other = await Visitor.come(browser, server.url);
  });
  afterEach(async () => {
    await other.leave();
    expect(other.faults).toEqual([]);
  });

  async function both(project: string): Promise<Page> {
    await open(visitor.page, project);
    await other.open(`/projects/${project}/design`, 'developer', PASSWORD);
    await node(other.page, 'values').waitFor();
    return other.page;
  }

  it('bring their work together, and nothing is lost', async () => {
    const { page } = visitor;
    const project = await fleet.project('Together', DESIGN);
    const second = await both(project);
    await page.getByRole('button', { name: 'Add Device event' }).click();
    await node(page, 'warm').click();
    await write(page, 'Expression', 'payload.a > 1');
    await save(page).click();
    await saved(page);

    await second.getByRole('button', { name: 'Add Interval' }).click();
    await node(second, 'warm').click();
    await write(second, 'Expression', 'payload.b > 1');
    await save(second).click();
    const dialog = second.getByRole('dialog', { name: 'Somebody else has saved in the meantime' });
    await dialog.getByText('System Administrator has saved version 3').waitFor();
    await dialog.getByRole('region', { name: 'What they have changed' }).getByText('reading').first().waitFor();
    await dialog.getByRole('region', { name: 'What you have changed' }).getByText('every').first().waitFor();
    await dialog.getByRole('combobox', { name: 'Which warm' }).selectOption('theirs');
    await dialog.getByRole('button', { name: 'Merge both' }).click();
    await node(second, 'reading').waitFor();
    await node(second, 'every').waitFor();
    await save(second).click();
    await saved(second);
    const now = await elements(project);
    expect(Object.keys(now).sort()).toEqual(['every', 'reading', 'values', 'warm']);
    expect(now.warm?.properties?.expression).toBe('payload.a > 1');
  });

  it('one may load theirs and take it back, and overwrite only knowingly', async () => {
    const { page } = visitor;
    const project = await fleet.project('Against', DESIGN);
    const second = await both(project);
    await page.getByRole('button', { name: 'Add Device event' }).click();
    await save(page).click();
    await saved(page);
    await second.getByRole('button', { name: 'Add Interval' }).click();
    await save(second).click();
    await second.getByRole('radio', { name: /Load their version/ }).check();
    await second.getByRole('button', { name: 'Load their version' }).click();
    await node(second, 'reading').waitFor();
    await node(second, 'every').waitFor({ state: 'detached' });
    await second.getByRole('button', { name: 'Undo' }).click();
    await node(second, 'every').waitFor();
    // Meanwhile the first one saves again.
    await page.getByRole('button', { name: 'Add Storage' }).click();
    await save(page).click();
    await expect.poll(async () => Object.keys(await elements(project)).length).toBe(4);
    await save(second).click();
    await second.getByRole('radio', { name: /Overwrite with mine/ }).check();
    const overwrite = second.getByRole('button', { name: 'Overwrite with mine' });
    expect(await overwrite.isDisabled()).toBe(true);
    await second.getByRole('checkbox', { name: /I have reviewed/ }).check();
    await overwrite.click();
    await saved(second);
    expect(Object.keys(await elements(project)).sort()).toEqual(['every', 'values', 'warm']);
  });
});

describe('a dry run', () => {
  it('is lit along the links with what flowed, and read step by step', async () => {
    const { page } = visitor;
    const project = await fleet.project('Tried');
    const device = await fleet.device('Cold room', project);
    await fleet.event(device.token, { temperature: 21, wrong: 1 });
    const { data: before } = await fleet.call<{ data: unknown[] }>('GET', `/devices/${device.id}/events`);
    await open(page, project);
    await page.getByRole('button', { name: 'Try it out' }).click();
    await page.getByLabel('Run as device').selectOption({ label: 'Cold room' });
    const recorded = page.getByLabel('Recorded event');
    await recorded.locator('option').nth(1).waitFor({ state: 'attached' });
    await recorded.selectOption({ index: 1 });
    await page.getByRole('textbox', { name: 'Payload (JSON)' }).getByText('21').waitFor();
    await page.getByRole('button', { name: 'Run' }).click();
    const steps = page.getByRole('list', { name: 'Steps' });
    await steps.getByRole('button', { name: /warm.*evaluate/ }).waitFor();
    await page.getByRole('list', { name: 'Effects of a real run' }).getByText('climate stores').waitFor();
    await node(page, 'warm').locator('[data-shown="passed"]').waitFor({ state: 'attached' });
    await node(page, 'broken').locator('[data-shown="failed"]').waitFor({ state: 'attached' });
    expect(await node(page, 'limit').locator('[data-shown]').count()).toBe(0);
    await expect.poll(() => page.locator('.svelte-flow__edge .link.passed').count()).toBe(4);
    await page.locator('.link-label', { hasText: '21' }).first().waitFor({ state: 'attached' });
    // A step points at its element, and shows its values.
    await steps.getByRole('button', { name: /health.*setStatus/ }).click();
    await page.locator('.svelte-flow__edge .link.now').waitFor({ state: 'attached' });
    const { data: after } = await fleet.call<{ data: unknown[] }>('GET', `/devices/${device.id}/events`);
    expect(after).toHaveLength(before.length);
    // Another design is another run.
    await node(page, 'reading').click();
    await panel(page).getByRole('button', { name: 'Delete the link to warm' }).click();
    await steps.waitFor({ state: 'detached' });
    await write(page, 'Payload (JSON)', '{"temperature": 3');
    await page.getByText('It ends too early').waitFor();
    expect(await page.getByRole('button', { name: 'Run' }).isDisabled()).toBe(true);
  });
});

describe('versions', () => {
  it('tell who has changed what, and come back', async () => {
    const { page } = visitor;
    const project = await fleet.project('Versioned', { values: { type: 'storage' } });
    await open(page, project);
    await panel(page).getByLabel('Note on this change (optional)').fill('Devices may send now');
    await page.getByRole('button', { name: 'Add Device event' }).click();
    await save(page).click();
    await saved(page);
    await page.getByRole('link', { name: 'Versions' }).click();
    await page.getByText('Devices may send now').waitFor();
    await page.getByRole('list', { name: 'What differs' }).getByText('reading').waitFor();
    await page.getByRole('button', { name: /^2/ }).click();
    await page.getByRole('button', { name: 'Restore' }).click();
    const dialog = page.getByRole('dialog', { name: 'Restore version 2?' });
    await dialog.getByText('deleted').first().waitFor();
    // Somebody saves while one looks.
    await fleet.call('PUT', `/projects/${project}/specification`, {
      name: 'x',
      planes: { cloud: { elements: { other: { type: 'storage' } } } },
    });
    await dialog.getByRole('button', { name: 'Restore' }).click();
    await dialog.getByText('Somebody has saved meanwhile').waitFor();
    await dialog.getByText('other').first().waitFor();
    await dialog.getByRole('button', { name: 'Restore' }).click();
    await page.getByRole('button', { name: /^5/ }).getByText('Active').waitFor();
    expect(Object.keys(await elements(project))).toEqual(['values']);
  });
});
