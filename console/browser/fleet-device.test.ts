import { describe, expect, it } from 'vitest';
import { fleet, visitor, stage, withVisitor } from './stage';

/** A picture of one point. */
const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);

let project: string;
let device: { id: string; token: string };

stage(async () => {
  project = await fleet.project('Cold chain');
  device = await fleet.device('Cold room', project);
  await fleet.user('viewer', 'basicUser');
});
withVisitor();

describe('an event', () => {
  it('runs again as a dry run, element by element, and changes nothing', async () => {
    const { page } = visitor;
    const id = await fleet.event(device.token, { temperature: 21, wrong: 1 });
    // Of what is so already nothing would come.
    await fleet.event(device.token, { temperature: 4 });
    await visitor.open(`/devices/${device.id}/events`);
    const row = page.locator(`[data-event="${id}"]`);
    await row.locator('summary').first().click();
    await row.getByRole('button', { name: 'Run again as a dry run' }).click();
    const trace = row.getByRole('list', { name: 'What each element received and produced' });
    await trace.getByText('climate', { exact: true }).waitFor();
    const steps = await trace.locator(':scope > li strong').allInnerTexts();
    expect(steps).toEqual(['reading', 'climate', 'warm', 'cool', 'health', 'broken']);
    // The fault stands at the element that has it.
    await trace.locator(':scope > li').last().locator('.note').waitFor();
    await row.getByText('The status would be: Critical').waitFor();
    await row.getByText(/climate would store/).waitFor();
    const { meta } = await fleet.call<{ meta: { totalDocs: number } }>(
      'GET',
      `/devices/${device.id}/events?cloudEvents=false`,
    );
    expect(meta.totalDocs).toBe(2);
  });

  it('runs again for developers alone', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/events`, 'viewer', 'cold-rooms-7');
    const row = page.locator('[data-event]').filter({ hasText: 'wrong' }).first();
    await row.locator('summary').first().click();
    await row.locator('.note').waitFor();
    expect(await row.getByRole('button', { name: 'Run again as a dry run' }).count()).toBe(0);
  });
});

describe('settings', () => {
  it('tell who has changed what, from what, and when', async () => {
    const { page } = visitor;
    const path = `/devices/${device.id}/settings/limit`;
    await fleet.call('PUT', path, 10);
    await fleet.call('PUT', path, 12);
    await visitor.open(`/devices/${device.id}/settings`);
    const history = page.getByRole('region', { name: 'History' });
    const entries = history.getByRole('listitem');
    await expect.poll(() => entries.count()).toBe(2);
    await entries.nth(0).getByText('admin').waitFor();
    expect(await entries.nth(0).innerText()).toMatch(/Alarm limit\s+10\s+→\s*to\s+12/);
    expect(await entries.nth(1).innerText()).toMatch(/Alarm limit\s+8\s+→\s*to\s+10/);
    // A change of now joins them at once.
    await page.getByRole('button', { name: 'Back to the default' }).first().click();
    await expect.poll(() => entries.count()).toBe(3);
    expect(await entries.nth(0).innerText()).toMatch(/12\s+→\s*to\s+8/);
  });
});

describe('the place of a device', () => {
  it('is its setting for places where it has one', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}`);
    const card = page.getByRole('region', { name: 'Place', exact: true });
    await card.getByText('This device has no place yet.').waitFor();
    // Until it is known where the place is kept, nobody can be so quick as to put it elsewhere.
    let goOn!: () => void;
    const hasGoneOn = new Promise<void>((resolve) => (goOn = resolve));
    await page.route('**/settings?**', async (route) => {
      await hasGoneOn;
      await route.fallback();
    });
    await card.getByRole('button', { name: 'Set' }).click();
    const dialog = page.getByRole('dialog', { name: 'Place' });
    await dialog.getByLabel('Latitude').fill('52.52');
    await dialog.getByLabel('Longitude').fill('13.405');
    expect(await dialog.getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
    goOn();
    await dialog.getByText('It is kept in the setting “Place” of this device.').waitFor();
    await dialog.getByLabel('Longitude').fill('');
    expect(await dialog.getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
    await dialog.getByLabel('Longitude').fill('13.405');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await card.getByText('13.405°').waitFor();
    const { value } = await fleet.call<{ value: unknown }>('GET', `/devices/${device.id}/settings/place`);
    expect(value).toEqual({ latitude: 52.52, longitude: 13.405 });
  });

  it('stands in its labels where it has none, which keep the others; and goes again', async () => {
    const { page } = visitor;
    const bare = await fleet.project('Doors', { knock: { type: 'deviceEvent' } });
    const door = await fleet.device('Door', bare, { meta: { floor: 3 } });
    await visitor.open(`/devices/${door.id}`);
    const card = page.getByRole('region', { name: 'Place', exact: true });
    await card.getByRole('button', { name: 'Set' }).click();
    const dialog = page.getByRole('dialog', { name: 'Place' });
    await dialog.getByLabel('Latitude').fill('-33.9');
    await dialog.getByLabel('Longitude').fill('18.4');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await card.getByText('-33.9°').waitFor();
    const { meta } = await fleet.call<{ meta: unknown }>('GET', `/devices/${door.id}`);
    expect(meta).toEqual({ floor: 3, latitude: -33.9, longitude: 18.4 });
    await card.getByRole('button', { name: 'Change' }).click();
    await dialog.getByRole('button', { name: 'Remove the place' }).click();
    await card.getByText('This device has no place yet.').waitFor();
    expect((await fleet.call<{ meta: unknown }>('GET', `/devices/${door.id}`)).meta).toEqual({ floor: 3 });
  });
});

describe('the picture of a device', () => {
  it('is put, shown and removed; what is none is refused in words', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}`);
    const card = page.getByRole('region', { name: 'Picture' });
    await card.getByText('No picture yet.').waitFor();
    const input = card.locator('input[type=file]');
    await input.setInputFiles({ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('no picture') });
    await card.getByText('A picture is a PNG, a JPEG or a WebP.').waitFor();
    await input.setInputFiles({ name: 'a.png', mimeType: 'image/png', buffer: Buffer.from('no picture') });
    await card.getByRole('alert').filter({ hasText: 'The server does not accept this' }).waitFor();
    await input.setInputFiles({ name: 'a.png', mimeType: 'image/png', buffer: PNG });
    const picture = card.getByRole('img', { name: 'Picture of Cold room' });
    await picture.waitFor();
    await expect.poll(() => picture.evaluate((image: HTMLImageElement) => image.naturalWidth)).toBe(1);
    await card.getByRole('button', { name: 'Remove' }).click();
    await card.getByText('No picture yet.').waitFor();
  });
});

describe('the token of a device', () => {
  it('is made anew and shown once; the old one ends', async () => {
    const { page } = visitor;
    const one = await fleet.device('Forgetful', project);
    await visitor.open(`/devices/${one.id}`);
    await page.getByRole('button', { name: 'More actions' }).click();
    await page.getByRole('menuitem', { name: 'New token' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'New token' }).click();
    const token = await page.getByTestId('token').innerText();
    await fleet.event(token, { temperature: 4 });
    await expect(fleet.event(one.token, { temperature: 4 })).rejects.toThrow(/: 401 /);
  });
});
