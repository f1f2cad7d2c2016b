import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { fleet, stage, visitor, withVisitor } from './stage';
import { organization } from './tenants';

const DEVICES = 600;
const nameOf = (index: number) => `Sensor ${String(index).padStart(5, '0')}`;
let project: string;
let site: string;

stage(async () => {
  project = await fleet.project('Cold chain');
  site = await organization(fleet, 'Hamburg', fleet.organizationId);
  const devices = Array.from({ length: DEVICES }, (_, index) => ({
    name: nameOf(index),
    projectUuid: project,
    meta: { floor: index % 2 },
  }));
  await fleet.call('POST', '/devices/bulk', devices);
  await fleet.device('Kühlraum', project, { organizationId: site, meta: { depth: -2.5 } });
});
withVisitor();

describe('the list of devices', () => {
  it('is where it was when one comes back from a device', async () => {
    const { page } = visitor;
    await visitor.open('/devices?filter[meta.floor][eq]=1');
    await page.getByText('300 devices').waitFor();
    const table = page.getByRole('table', { name: 'Devices' });
    await table.evaluate((element) => element.scrollTo(0, 46 * 200));
    const device = page.getByRole('link', { name: nameOf(407) });
    await device.waitFor();
    const top = await table.evaluate((element) => element.scrollTop);
    for (const back of [
      () => page.goBack(),
      () => page.getByRole('main').getByRole('link', { name: 'Devices' }).click(),
    ]) {
      await device.click();
      await page.getByRole('heading', { name: nameOf(407) }).waitFor();
      await back();
      await page.getByText('300 devices').waitFor();
      await device.waitFor();
      await expect.poll(() => table.evaluate((element) => element.scrollTop)).toBe(top);
    }
    await page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click();
    await page.getByRole('link', { name: nameOf(599) }).waitFor();
    expect(await table.evaluate((element) => element.scrollTop)).toBe(0);
  });

  it('names the organization that is looked at in its address, for others too', async () => {
    const { page } = visitor;
    await visitor.open(`/devices?organization=${site}`);
    await page.getByText('One device', { exact: true }).waitFor();
    await page.getByRole('link', { name: 'Kühlraum' }).waitFor();
    await page.goto('/devices');
    await expect.poll(() => new URL(page.url()).searchParams.get('organization')).toBe(site);
    await page.getByText('One device', { exact: true }).waitFor();
  });

  it('is exported without a selection, as spreadsheets read it', async () => {
    const { page } = visitor;
    await visitor.open('/devices?q=Kühl');
    await page.getByRole('link', { name: 'Kühlraum' }).waitFor();
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Export' }).click(),
    ]);
    const [head = '', row = ''] = (await readFile(await file.path(), 'utf8')).split('\r\n');
    expect(head.startsWith('\ufeffid,name,')).toBe(true);
    expect(head.endsWith(',meta.depth')).toBe(true);
    expect(row).toMatch(/,Kühlraum,.*,Cold chain,Hamburg,.*,-2\.5$/);
  });

  it('offers labels to filter by that only the last device has', async () => {
    const { page } = visitor;
    await visitor.open('/devices?sort=-name');
    await page.getByText('601 devices').waitFor();
    await page.getByRole('button', { name: 'Add a filter' }).click();
    const editor = page.getByRole('dialog', { name: 'Add a filter' });
    await editor.getByLabel('Field').selectOption({ label: 'Label …' });
    await editor.getByLabel('Name of the label').fill('depth');
    const offered = () =>
      editor.locator('datalist option').evaluateAll((all) => all.map((one) => one.getAttribute('value')));
    await expect.poll(offered).toEqual(['depth', 'floor', '-2.5']);
  });

  it('does not count what is selected and gone', async () => {
    const { page } = visitor;
    const ids: string[] = [];
    for (const name of ['Gone', 'Kept']) ids.push((await fleet.device(name, project, { meta: { batch: 'gone' } })).id);
    await page.clock.install();
    await visitor.open('/devices?filter[meta.batch][eq]=gone');
    for (const name of ['Gone', 'Kept']) await page.getByRole('checkbox', { name: `Select ${name}` }).check();
    await page.getByText('2 devices selected').waitFor();
    await fleet.call('DELETE', `/devices/${ids[0]}`);
    await page.clock.runFor(31_000);
    await page.getByText('One device selected').waitFor();
  });
});
