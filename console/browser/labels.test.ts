import { describe, expect, it } from 'vitest';
import { fleet, stage, visitor, withVisitor } from './stage';

let project: string;
let device: { id: string; token: string };
/** A number that no double gives back. */
const SERIAL = '9007199254740993';

stage(async () => {
  project = await fleet.project('Cold chain');
  device = await fleet.device('Cold room A1', project, { protocol: 'http' });
  await fleet.text('PATCH', `/devices/${device.id}/meta`, `{"serial":${SERIAL},"site":"Nord","floor":1.0}`);
  for (const name of ['B1', 'B2', 'B3']) await fleet.device(name, project, { meta: { site: 'Süd', owner: 'Kim' } });
  await fleet.user('viewer', 'basicUser');
});
withVisitor();

const meta = async () => {
  const text = await fleet.text('GET', `/devices/${device.id}`);
  return text.slice(text.indexOf('"meta":'), text.indexOf('}', text.indexOf('"meta":')) + 1);
};

describe('labels of a device', () => {
  it('are changed one by one, and leave alone what others write meanwhile', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}`);
    const labels = page.getByRole('region', { name: 'Labels' });
    await labels.getByText(SERIAL).waitFor();
    await labels.getByRole('button', { name: 'Change site' }).click();
    const dialog = page.getByRole('dialog');
    await expect
      .poll(() =>
        dialog.locator('datalist option').evaluateAll((all) => all.map((one) => (one as HTMLOptionElement).value)),
      )
      .toEqual(['Süd', 'Nord']);
    await fleet.call('PATCH', `/devices/${device.id}/meta`, { owner: 'Ada', floor: 2 });
    await dialog.getByLabel('Value').fill('West');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await labels.getByText('West').waitFor();
    await labels.getByText('Ada').waitFor();
    expect(JSON.parse((await meta()).replace('"meta":', ''))).toEqual({
      serial: Number(SERIAL),
      site: 'West',
      floor: 2,
      owner: 'Ada',
    });
    expect(await meta()).toContain(SERIAL);
  });

  it('are added with the kind of their value, and removed', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}`);
    const labels = page.getByRole('region', { name: 'Labels' });
    await labels.getByRole('button', { name: 'Add a label' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name of the label').fill('site');
    await dialog.getByText('The device has this label already.').waitFor();
    await dialog.getByLabel('Name of the label').fill('depth');
    await dialog.getByLabel('Value').fill('2.50');
    await dialog.getByText('Saved as a number').waitFor();
    await dialog.getByRole('button', { name: 'Save' }).click();
    await labels.getByText('2.50').waitFor();
    expect(await meta()).toContain('"depth":2.50');
    await labels.getByRole('button', { name: 'Change depth' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove the label' }).click();
    await labels.getByText('2.50').waitFor({ state: 'detached' });
    expect(await meta()).not.toContain('depth');
  });

  it('stay as they are when a place is set on the map', async () => {
    const { page } = visitor;
    // One whose design has no setting for places.
    const plain = await fleet.project('Plain', { reading: { type: 'deviceEvent' } });
    const { id } = await fleet.device('Placed', plain);
    await fleet.text('PATCH', `/devices/${id}/meta`, `{"serial":${SERIAL},"latitude":1.0,"longitude":2.00}`);
    await visitor.open(`/devices/${id}`);
    const card = page.getByRole('region', { name: 'Place', exact: true });
    await card.getByRole('button', { name: 'Change', exact: true }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Latitude').waitFor();
    await fleet.call('PATCH', `/devices/${id}/meta`, { owner: 'Ada' });
    await dialog.getByLabel('Latitude').fill('52.52');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.waitFor({ state: 'detached' });
    const text = await fleet.text('GET', `/devices/${id}`);
    expect([text.includes(SERIAL), text.includes('"longitude":2.00')]).toEqual([true, true]);
    const after = await fleet.call<{ meta: Record<string, unknown> }>('GET', `/devices/${id}`);
    expect(after.meta).toMatchObject({ owner: 'Ada', latitude: 52.52, longitude: 2 });
  });

  it('are only looked at by who may not change them', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}`, 'viewer', 'cold-rooms-7');
    const labels = page.getByRole('region', { name: 'Labels' });
    await labels.getByText('West').waitFor();
    expect(await labels.getByRole('button').count()).toBe(0);
  });
});

describe('labels of many devices', () => {
  it('are set and removed together, and the others stay', async () => {
    const { page } = visitor;
    await visitor.open('/devices?q=Kim');
    await page.getByText('3 devices').waitFor();
    await page.getByLabel('Select all').click();
    const bar = page.getByRole('region', { name: 'Selected devices' });
    await bar.getByRole('button', { name: 'Labels' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name of the label').fill('site');
    await dialog.getByLabel('Value').fill('Ost');
    await dialog.getByRole('button', { name: 'Set the label' }).click();
    await dialog.getByText('3 of 3').waitFor();
    await dialog.getByRole('button', { name: 'Close' }).click();
    const list = () => fleet.call<{ data: { meta: unknown }[] }>('GET', '/devices?filter[meta.site][eq]=Ost');
    expect((await list()).data.map((one) => one.meta)).toEqual(Array(3).fill({ site: 'Ost', owner: 'Kim' }));
    await page.getByLabel('Select all').click();
    await bar.getByRole('button', { name: 'Labels' }).click();
    await dialog.getByLabel('Remove the label').check();
    await dialog.getByLabel('Name of the label').fill('owner');
    await dialog.getByRole('button', { name: 'Remove the label' }).click();
    await dialog.getByText('3 of 3').waitFor();
    expect((await list()).data.map((one) => one.meta)).toEqual(Array(3).fill({ site: 'Ost' }));
  });
});

describe('a device', () => {
  it('has its address and its protocol changed', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}`);
    await page.getByRole('button', { name: 'Edit' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Protocol').fill('lorawan');
    await dialog.getByLabel('Street and number').fill('Kaiweg 4');
    await dialog.getByLabel('Postal code').fill('04109');
    await dialog.getByLabel('City').fill('Leipzig');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Kaiweg 4, 04109 Leipzig').waitFor();
    await page.getByText('lorawan').waitFor();
  });
});
