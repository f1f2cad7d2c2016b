import type { Locator, Page } from 'playwright-core';
import { beforeEach, describe, expect, it } from 'vitest';
import { type Found, see } from './look';
import { fleet, stage, takeAPhone, visitor, withVisitor } from './stage';
import { organization } from './tenants';

const PASSWORD = 'cold-rooms-7';
const HOSTILE = `<img src=x onerror=alert(1)> ‮${'long '.repeat(9)}`;
let fridge: string;
let site: string;

stage(async () => {
  const project = await fleet.project('Cold chain');
  site = await organization(fleet, 'Hamburg', fleet.organizationId);
  await fleet.user('viewer', 'basicUser', PASSWORD);
  fridge = (await fleet.device('Fridge of the dairy', project)).id;
  for (let index = 0; index < 12; index += 1) await fleet.device(`Sensor ${index}`, project);
  await fleet.device(HOSTILE.trim(), project, { organizationId: site });
  await fleet.device('مبرد الألبان', project);
  const board = { name: 'Cold rooms', configuration: {} };
  await fleet.call('POST', `/organizations/${fleet.organizationId}/dashboards`, board);
});
withVisitor();

const dialogOf = (page: Page): Locator => page.getByRole('dialog', { name: 'Search' });
const field = (page: Page): Locator => page.getByRole('combobox', { name: 'Devices, projects, pages …' });

async function search(page: Page, text: string): Promise<void> {
  await page.keyboard.press('Control+k');
  await field(page).fill(text);
}

describe('the search', () => {
  beforeEach(() => visitor.open('/about'));

  it('opens by keys, finds a device by a part of its name, and leads there', async () => {
    const { page } = visitor;
    await page.getByRole('heading', { name: 'About this server' }).waitFor();
    await search(page, 'of the DAI');
    const option = page.getByRole('option', { name: /^Fridge of the dairy/ });
    await option.waitFor();
    expect(await option.getAttribute('aria-selected')).toBe('true');
    expect(await field(page).getAttribute('aria-activedescendant')).toBe(await option.getAttribute('id'));
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Fridge of the dairy' }).waitFor();
    expect(new URL(page.url()).pathname).toBe(`/devices/${fridge}`);
    expect(await dialogOf(page).count()).toBe(0);
  });

  it('leads to pages, projects, dashboards and organizations by keys alone', async () => {
    const { page } = visitor;
    await search(page, 'alarm');
    await page.getByRole('option', { name: 'Alarms' }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Alarms', level: 1 }).waitFor();
    await search(page, 'cold');
    await page
      .getByRole('group', { name: 'Dashboards' })
      .getByRole('option', { name: /^Cold rooms/ })
      .waitFor();
    await page
      .getByRole('group', { name: 'Projects' })
      .getByRole('option', { name: /^Cold chain/ })
      .waitFor();
    await page.keyboard.press('Enter');
    await expect.poll(() => new URL(page.url()).pathname).toBe('/dashboards');
    await search(page, 'cold');
    await page.getByRole('option', { name: /^Cold chain/ }).waitFor();
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    await expect.poll(() => new URL(page.url()).pathname).toMatch(/^\/projects\/.*\/design$/);
    await search(page, 'hambur');
    await page
      .getByRole('group', { name: 'Organizations' })
      .getByRole('option', { name: /^Hamburg/ })
      .waitFor();
    await page.keyboard.press('Enter');
    await expect.poll(() => new URL(page.url()).pathname).toBe(`/organizations/${site}`);
  });

  it('begins what is to be made, on its own page too', async () => {
    const { page } = visitor;
    await page.getByRole('link', { name: 'Devices', exact: true }).first().click();
    await page.getByText('15 devices').waitFor();
    for (let turn = 0; turn < 2; turn += 1) {
      await search(page, 'new dev');
      await page.getByRole('option', { name: 'New device' }).waitFor();
      await page.keyboard.press('Enter');
      const dialog = page.getByRole('dialog', { name: 'New device' });
      await dialog.waitFor();
      // What a dialog shows is not to be lost.
      await page.keyboard.press('Control+k');
      expect(await dialogOf(page).count()).toBe(0);
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
      await expect.poll(() => new URL(page.url()).search).toBe('');
    }
  });

  it('says when nothing is found, and shows eight devices at most', async () => {
    const { page } = visitor;
    await search(page, 'nothing is called so');
    await page.getByText('Nothing found for “nothing is called so”.').waitFor();
    await page.keyboard.press('Enter');
    await field(page).fill('sensor');
    await page.getByText('8 hits').waitFor();
    expect(await page.getByRole('option').count()).toBe(8);
    await page.keyboard.press('Escape');
    await dialogOf(page).waitFor({ state: 'detached' });
  });

  it('shows hostile names as they are', async () => {
    const { page } = visitor;
    await search(page, '<img');
    await page.getByRole('option', { name: /^<img src=x onerror=alert\(1\)>/ }).waitFor();
    await field(page).fill('الألبان');
    await page.getByRole('option', { name: /^مبرد الألبان/ }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'مبرد الألبان' }).waitFor();
  });

  it('never shows an older answer in place of a newer one', async () => {
    const { page } = visitor;
    let answerOld = (): void => undefined;
    const isHeld = new Promise<void>((resolve) => (answerOld = resolve));
    await page.route('**/v2/devices?*searchText=Sen*', async (route) => {
      await isHeld;
      await route.continue().catch(() => undefined);
    });
    const asked = page.waitForRequest(/searchText=Sen/);
    await search(page, 'Sen');
    await asked;
    const given = page.waitForEvent('requestfailed', (request) => request.url().includes('searchText=Sen'));
    await field(page).fill('Fridge');
    await page.getByRole('option', { name: /^Fridge of the dairy/ }).waitFor();
    // It was given up; what still comes of it changes nothing.
    await given;
    answerOld();
    await field(page).fill('Fridge of');
    await page.getByText('One hit').waitFor();
    expect(await page.getByRole('option').allInnerTexts()).toEqual([expect.stringContaining('Fridge of the dairy')]);
  });

  it('asks for nothing before it is opened, and is free of faults for who does not see', async () => {
    const { page } = visitor;
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    await page.getByRole('heading', { name: 'About this server' }).waitFor();
    expect(asked.filter((path) => path.includes('Search-'))).toEqual([]);
    await page.getByRole('button', { name: 'Search', exact: true }).click();
    await page.getByRole('option', { name: 'Overview' }).waitFor();
    const found: Found = new Map();
    await see(visitor, 'desk-search', found);
    await field(page).fill('cold');
    await page.getByRole('option', { name: /^Cold chain/ }).waitFor();
    await see(visitor, 'desk-search-found', found);
    expect([...found]).toEqual([]);
  });
});

describe('the search of a viewer', () => {
  it('offers nothing that its role may not do', async () => {
    const { page } = visitor;
    await visitor.open('/about', 'viewer', PASSWORD);
    await search(page, '');
    await page.getByRole('option', { name: 'Overview' }).waitFor();
    for (const name of ['New device', 'New project', 'Users', 'Organizations', 'Branding', 'Guided start']) {
      expect(await page.getByRole('option', { name }).count(), name).toBe(0);
    }
    await field(page).fill('Hamburg');
    await page.getByText('Nothing found').or(page.getByText('hit')).first().waitFor();
    expect(await page.getByRole('group', { name: 'Organizations' }).count()).toBe(0);
  });

  it('is there on a phone, by its button', async () => {
    await takeAPhone();
    const { page } = visitor;
    await visitor.open('/about', 'viewer', PASSWORD);
    await page.getByRole('button', { name: 'Search', exact: true }).tap();
    await field(page).fill('fridge');
    const found: Found = new Map();
    await page.getByRole('option', { name: /^Fridge of the dairy/ }).waitFor();
    await see(visitor, 'phone-search', found);
    expect([...found]).toEqual([]);
    await page.getByRole('option', { name: /^Fridge of the dairy/ }).tap();
    await page.getByRole('heading', { name: 'Fridge of the dairy' }).waitFor();
  });
});
