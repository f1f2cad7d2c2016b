import { readFile } from 'node:fs/promises';
import type { Locator, Page } from 'playwright-core';
import { beforeEach, describe, expect, it } from 'vitest';
import { fleet, stage, visitor, withVisitor } from './stage';

/** Several dashboards of an organization: chosen, made, copied, carried away, shown on the pages of devices. */

const PASSWORD = 'cold-rooms-7';
let project: string;
let fridge: { id: string; token: string };
let freezer: { id: string; token: string };

interface Head {
  id: string;
  name: string | null;
  projectUuid: string | null;
}
interface Whole extends Head {
  configuration: { widgets: { type: string; title: string; settings: object }[] };
}

stage(async () => {
  const to = (element: string, ability: string) => ({ element, ability });
  project = await fleet.project('Cold chain', {
    reading: { type: 'deviceEvent', triggers: { eventReceived: [to('climate', 'store')] } },
    climate: { type: 'storage' },
    command: { type: 'cloudEvent' },
    cooling: {
      type: 'deviceSetting',
      properties: { inputType: 'toggle', title: 'Cooling', defaultValue: false },
    },
  });
  fridge = await fleet.device('Fridge', project, { meta: { site: 'Hall 1' } });
  freezer = await fleet.device('Freezer', project);
  await fleet.event(fridge.token, { temperature: 4 });
  await fleet.event(freezer.token, { temperature: -18 });
  await fleet.user('viewer', 'basicUser', PASSWORD);
});
withVisitor();

const path = (): string => `/organizations/${fleet.organizationId}/dashboards`;
const widget = (name: string): Locator => visitor.page.getByRole('region', { name });
const heads = async (): Promise<Head[]> => (await fleet.call<{ data: Head[] }>('GET', path())).data;
const make = (name: string, widgets: object[], options: object = {}): Promise<Whole> =>
  fleet.call('POST', path(), { name, options, configuration: { widgets } });
const words = (id: string, text: string): object => ({ id, type: 'text', title: id, w: 4, h: 2, settings: { text } });
const more = async (item: string): Promise<void> => {
  await visitor.page.getByRole('button', { name: 'More actions for dashboards' }).click();
  await visitor.page.getByRole('menuitem', { name: item }).click();
};

/** Draws a picture larger than one that is kept. */
async function plan(page: Page): Promise<Buffer> {
  const address = await page.evaluate(() => {
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [2_000, 1_200];
    const context = canvas.getContext('2d');
    context?.fillRect(100, 100, 600, 400);
    return canvas.toDataURL('image/png');
  });
  return Buffer.from(address.split(',')[1] ?? '', 'base64');
}

beforeEach(async () => {
  for (const { id } of await heads()) await fleet.text('DELETE', `${path()}/${id}`);
});

describe('the dashboards of an organization', () => {
  it('are chosen by tabs, and the address names the one that is looked at', async () => {
    const first = await make('North', [words('Told', 'about the north')]);
    const second = await make('South', [words('Told', 'about the south')]);
    const { page } = visitor;
    await visitor.open('/dashboards', 'viewer', PASSWORD);
    await page.getByRole('heading', { level: 1, name: 'North' }).waitFor();
    await page.getByRole('link', { name: 'South' }).click();
    await page.getByText('about the south').waitFor();
    expect(new URL(page.url()).searchParams.get('board')).toBe(second.id);
    await page.reload();
    await page.getByText('about the south').waitFor();
    await page.goBack();
    await page.getByText('about the north').waitFor();
    expect(await page.getByRole('button', { name: 'Arrange' }).count()).toBe(0);
    await page.goto(`/dashboards?board=${first.id}`);
    await page.getByText('about the north').waitFor();
  });

  it('are made, duplicated and deleted', async () => {
    await make('North', [words('Told', 'about the north')]);
    const { page } = visitor;
    await visitor.open('/dashboards');
    await more('New dashboard');
    await page.getByRole('dialog').getByLabel('Name').fill('East');
    await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { level: 1, name: 'East' }).waitFor();
    await page.getByRole('link', { name: 'North' }).click();
    await page.getByText('about the north').waitFor();
    await more('Duplicate');
    await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { level: 1, name: 'Copy of North' }).waitFor();
    await page.getByText('about the north').waitFor();
    expect((await heads()).map(({ name }) => name)).toEqual(['North', 'East', 'Copy of North']);
    await more('Delete the dashboard');
    await page.getByRole('dialog').getByRole('textbox').fill('Copy of North');
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('heading', { level: 1, name: 'North', exact: true }).waitFor();
    expect((await heads()).map(({ name }) => name)).toEqual(['North', 'East']);
  });

  it('leave as files and come back, and what is no dashboard is refused', async () => {
    await make('North', [words('Told', 'about the north')]);
    const { page } = visitor;
    await visitor.open('/dashboards');
    await page.getByText('about the north').waitFor();
    const coming = page.waitForEvent('download');
    await more('Export as a file');
    const file = await coming;
    expect(file.suggestedFilename()).toBe('North.json');
    const buffer = await readFile(await file.path());
    const give = (name: string, content: Buffer) =>
      page.setInputFiles('input[type=file]', { name, mimeType: 'application/json', buffer: content });
    await give('odd.json', Buffer.from('{"widgets":[]}'));
    await page.getByText('odd.json holds no dashboard.').waitFor();
    await give('North.json', buffer);
    await page.getByRole('dialog').getByLabel('Name').fill('North again');
    await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { level: 1, name: 'North again' }).waitFor();
    await page.getByText('about the north').waitFor();
  });
});

describe('a widget', () => {
  const device = () => ({ id: fridge.id, name: 'Fridge' });
  const key = (one: { id: string }, deviceName: string) => ({
    deviceId: one.id,
    deviceName,
    elementName: 'climate',
    path: 'temperature',
    unit: '°C',
  });
  const put = (type: string, settings: object, more: object = {}): object => ({
    id: type,
    type,
    title: type,
    w: 4,
    h: 3,
    settings,
    ...more,
  });

  it('tells events, sends a command and changes a setting', async () => {
    await make('Controls', [
      put('events', { device: device() }),
      put('button', { device: device(), elementName: 'command', payload: '{"defrost":true}', text: 'Defrost' }),
      put('switch', { device: device(), settingName: 'cooling' }),
    ]);
    const { page } = visitor;
    await visitor.open('/dashboards');
    await widget('events').getByText('"temperature":4').waitFor();
    await widget('button').getByRole('button', { name: 'Defrost' }).click();
    await widget('events').getByText('"defrost":true').waitFor();
    const queue = `/events/cloud?deviceId=${fridge.id}&peek=true`;
    expect(await fleet.text('GET', queue)).toContain('"defrost":true');
    await widget('switch').getByRole('switch', { name: 'Cooling' }).click();
    await page.getByText('Cooling').first().waitFor();
    const setting = `/devices/${fridge.id}/settings/cooling`;
    await expect.poll(() => fleet.text('GET', setting)).toContain('"value":true');
  });

  it('does nothing for those whose role is too low', async () => {
    await make('Controls', [
      put('button', { device: device(), elementName: 'command', payload: '1', text: 'Defrost' }),
    ]);
    await visitor.open('/dashboards', 'viewer', PASSWORD);
    expect(await widget('button').getByRole('button', { name: 'Defrost' }).isDisabled()).toBe(true);
    await widget('button').getByText('Sending needs the role').waitFor();
  });

  it('draws bars, reckons over a selection, and shows Markdown without HTML', async () => {
    // Their mean has more digits than anybody reads at a glance.
    await fleet.event(fridge.token, { temperature: 4.67775 });
    const keys = [key(fridge, 'Fridge')];
    await make('Figures', [
      put('bar', { keys: [key(fridge, 'Fridge'), key(freezer, 'Freezer')] }),
      put('count', { projectUuid: project, label: 'site', labelValue: 'Hall 1' }, { type: 'selection' }),
      put('mean', { figure: 'mean', keys, projectUuid: project }, { type: 'selection' }),
      put('worst', { figure: 'highest', keys, projectUuid: project }, { type: 'selection' }),
      put('markdown', { text: '# On call\n- **Ada**\n- <b>HTML</b> [site](https://example.com) [no](javascript:x)' }),
    ]);
    await visitor.open('/dashboards');
    await widget('bar').getByText('Freezer temperature').waitFor();
    await widget('count').getByText('1', { exact: true }).waitFor();
    await widget('bar').getByText('4.6778').waitFor();
    await widget('mean')
      .getByText(/-6\.6611(?!\d)/)
      .waitFor();
    await widget('mean').getByText('over 2 devices').waitFor();
    await widget('worst').getByRole('link', { name: 'Fridge' }).waitFor();
    await widget('markdown').getByText('On call').waitFor();
    await widget('markdown').getByText('<b>HTML</b>').waitFor();
    expect(await widget('markdown').getByRole('link').count()).toBe(1);
  });

  it('shows devices where they stand on a picture, which is made small enough to be kept', async () => {
    await make('Hall', [words('Told', 'the hall')]);
    const { page } = visitor;
    await visitor.open('/dashboards');
    await page.getByRole('button', { name: 'Arrange' }).click();
    await page.getByRole('button', { name: 'Add a widget' }).click();
    const form = page.getByRole('dialog');
    await form.getByLabel('Widget type').selectOption({ label: 'Picture or floor plan' });
    await form.getByLabel('Title (optional)').fill('Plan');
    const file = form.getByLabel('Picture', { exact: true });
    await file.setInputFiles({ name: 'x.png', mimeType: 'image/png', buffer: Buffer.from('no picture') });
    await form.getByText('This is not a picture').waitFor();
    await file.setInputFiles({ name: 'plan.png', mimeType: 'image/png', buffer: await plan(page) });
    await form.getByRole('button', { name: 'Fridge' }).click();
    await form.getByLabel('Fridge: from the left, in percent').fill('20');
    await form.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Arrange' }).waitFor();
    await widget('Plan').getByRole('img', { name: 'Picture or floor plan' }).waitFor();
    await widget('Plan')
      .getByRole('link', { name: /Fridge/ })
      .waitFor();
    const [head] = await heads();
    const { configuration } = await fleet.call<Whole>('GET', `${path()}/${head?.id}`);
    const plans = configuration.widgets.filter(({ type }) => type === 'picture');
    expect(plans[0]?.settings).toMatchObject({ places: [{ id: fridge.id, name: 'Fridge', x: 20, y: 50 }] });
  });

  it('is set up by a form, and bound to the device on whose page it is shown', async () => {
    const board = await make('Of each fridge', [words('Told', 'all fridges')]);
    const { page } = visitor;
    await visitor.open('/dashboards');
    await page.getByRole('button', { name: 'Arrange' }).click();
    await page.getByRole('button', { name: 'Add a widget' }).click();
    const form = page.getByRole('dialog');
    await form.getByLabel('Widget type').selectOption({ label: 'Value' });
    await form.getByLabel('Title (optional)').fill('Now');
    await form.getByRole('button', { name: 'Fridge' }).click();
    await form.getByRole('radio', { name: 'temperature' }).check();
    await form.getByRole('checkbox', { name: /On a device page/ }).check();
    await form.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('button', { name: 'Add a widget' }).click();
    await form.getByLabel('Widget type').selectOption({ label: 'Button that sends an event' });
    await form.getByLabel('Title (optional)').fill('Send');
    await form.getByRole('button', { name: 'Fridge' }).click();
    await form.getByLabel('Element').fill('command');
    await form.getByLabel('Payload (JSON)').fill('{');
    await form.getByText('This must be valid JSON other than null.').waitFor();
    expect(await form.getByRole('button', { name: 'Add', exact: true }).isDisabled()).toBe(true);
    await form.getByLabel('Payload (JSON)').fill('{"on":1}');
    await form.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('button', { name: 'Settings of the dashboard' }).click();
    await form.getByLabel('Show it on device pages of the project').selectOption({ label: 'Cold chain' });
    await form.getByRole('button', { name: 'Apply' }).click();
    await form.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Arrange' }).waitFor();
    expect((await heads())[0]?.projectUuid).toBe(project);
    await widget('Now').getByText('Fridge').waitFor();
    await page.goto(`/devices/${freezer.id}`);
    // The page of all dashboards is called so, too.
    await page.locator(`a[href="/devices/${freezer.id}/board"]`).click();
    await widget('Now').getByText('-18').waitFor();
    await widget('Now').getByRole('link', { name: 'Freezer' }).waitFor();
    expect(new URL(page.url()).pathname).toBe(`/devices/${freezer.id}/board`);
    await fleet.text('DELETE', `${path()}/${board.id}`);
  });
});
