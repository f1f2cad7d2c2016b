import type { Locator, Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { fleet, server, visitor, stage, withVisitor } from './stage';

/** Events of devices that are not meant. */
const NOISE = 60;

let noisy: { token: string };

stage(async () => {
  const deaf = await fleet.project('Deaf', { reading: { type: 'deviceEvent' } });
  noisy = await fleet.device('Noisy', deaf);
  const properties = { integration: 'custom' };
  await fleet.project('Forgetful', { reading: { type: 'deviceEvent', properties } });
});
withVisitor();

/** Goes through the wizard up to what is to be pasted. */
async function setUp(page: Page, platform: string, project: string): Promise<void> {
  await page.goto('/integrations/new');
  await page.getByRole('main').getByRole('link', { name: platform }).click();
  await page.getByLabel('Project', { exact: true }).selectOption({ label: 'A new project …' });
  await page.getByLabel('Name of the project').fill(project);
  // What is delivered before somebody listens is not shown: no platform is as quick as a test.
  const listening = page.waitForResponse('**/v2/events/stream?**');
  await page.getByRole('button', { name: 'Create the key' }).click();
  await page.getByRole('heading', { name: 'What to paste where' }).waitFor();
  await listening;
}

/** What the page says is to be pasted: the address, and the headers by their names. */
async function pasted(page: Page): Promise<{ url: string; headers: Record<string, string> }> {
  const all: Locator = page.locator('.paste');
  const headers: Record<string, string> = {};
  let url = '';
  for (const one of await all.all()) {
    const label = await one.locator('span').first().innerText();
    if (!(await one.locator('code').count())) continue;
    const text = await one.locator('code').innerText();
    if (label.startsWith('Header ')) headers[label.slice('Header '.length)] = text;
    else if (label.endsWith('URL')) url = text;
  }
  return { url, headers };
}

async function deliver(page: Page, body: unknown): Promise<Response> {
  const { url, headers } = await pasted(page);
  return fetch(url, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
}

describe('the wizard', () => {
  it('for The Things Stack shows what to paste, and then the first delivery', async () => {
    const { page } = visitor;
    await visitor.open('/integrations');
    await page.getByText('No integration yet').waitFor();
    await setUp(page, 'The Things Stack', 'Freezers');
    await page.getByText('As soon as the platform posts').waitFor();
    const { url, headers } = await pasted(page);
    // A path is appended to the base address, which must therefore be bare.
    expect(url).toBe(`${server.url}/v2/events/integrations`);
    expect(Object.keys(headers)).toEqual([
      'authorization',
      'integration',
      'deviceTag',
      'deviceTagValueRef',
      'deviceTagCase',
      'projectUuid',
    ]);
    // Whatever else the organization's devices send costs next to nothing while the first delivery is waited for.
    const asked: string[] = [];
    page.on('request', (request) => {
      if (/^\/v2\/devices(\/|$)/.test(new URL(request.url()).pathname)) asked.push(request.url());
    });
    for (let sent = 0; sent < NOISE; sent += 1) await fleet.event(noisy.token, { sent });
    const answer = await deliver(page, {
      end_device_ids: { device_id: 'freezer-12', dev_eui: '70B3D57ED0051234' },
      uplink_message: { f_port: 2, decoded_payload: { temperature: -18.2 } },
    });
    expect(answer.status).toBe(200);
    await page.getByText('It works: the first delivery has arrived.').waitFor();
    expect(asked.length).toBeLessThan(NOISE / 2);
    const delivery = page.getByRole('article');
    await delivery.getByRole('link', { name: '70B3D57ED0051234' }).waitFor();
    await delivery.getByText('new device').waitFor();
    await delivery.getByText('-18.2').first().waitFor();
    await page.getByRole('link', { name: 'Done' }).click();
    const row = page.getByRole('row').filter({ hasText: 'Freezers' });
    await row.getByText('The Things Stack').waitFor();
    expect(await row.getByText('None yet').count()).toBe(0);
    const key = headers.authorization ?? '';
    expect(await page.content()).not.toContain(key);
    await row.getByRole('button', { name: 'Remove The Things Stack: Freezers' }).click();
    await page.getByLabel(/Type/).fill('Freezers');
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByText('No integration yet').waitFor();
    expect(
      (await fetch(url, { method: 'POST', headers: { ...headers, 'content-type': 'application/json' } })).status,
    ).toBe(401);
  });

  it.each([
    ['ChirpStack', { deviceInfo: { devEui: 'a84041ffff1851a2' }, object: { temperature: 4.8 } }, 'a84041ffff1851a2'],
    ['Sigfox', { device: '1A2B3C', time: 1795159977, data: '01e4', seqNumber: 1 }, '1A2B3C'],
  ])('for %s hears what it posts', async (platform, body, name) => {
    const { page } = visitor;
    await visitor.open();
    await setUp(page, platform, `Project of ${platform}`);
    expect((await deliver(page, body)).status).toBe(200);
    await page.getByRole('article').getByRole('link', { name }).waitFor();
  });

  it('says what to mend when a delivery makes no event, and sends a sample itself', async () => {
    const { page } = visitor;
    await visitor.open();
    await setUp(page, 'Something else', 'Anything');
    expect((await deliver(page, { without: 'a device' })).status).toBe(200);
    await page.getByText(/A delivery arrived with this key at .*, but resulted in no event/).waitFor();
    await page.getByText('The message must name the device at $.device.id.').waitFor();
    await page.getByRole('button', { name: 'Send a sample message' }).click();
    await page
      .getByRole('article')
      .getByRole('link', { name: /^sample-/ })
      .waitFor();
    await page.getByRole('article').getByText('21.5', { exact: true }).first().waitFor();
  });

  it('calls nothing done of which the design stores nothing', async () => {
    const { page } = visitor;
    await visitor.open('/integrations/new?kind=custom');
    await page.getByLabel('Project', { exact: true }).selectOption({ label: 'Forgetful' });
    await page.getByRole('button', { name: 'Create the key' }).click();
    await page.getByRole('button', { name: 'Send a sample message' }).click();
    await page.getByText('Messages arrive, but the design stores nothing of them yet.').waitFor();
    expect(await page.getByText('It works').count()).toBe(0);
    await page.getByRole('link', { name: 'Open the design' }).waitFor();
  });

  it('loses no key unasked: it asks before one leaves, and whoever comes back makes another in its place', async () => {
    const { page } = visitor;
    const asked: string[] = [];
    page.on('dialog', (dialog) => {
      asked.push(dialog.type());
      void (dialog.type() === 'confirm' ? dialog.dismiss() : dialog.accept());
    });
    await visitor.open();
    await setUp(page, 'Sigfox', 'Returned');
    const first = await pasted(page);
    const devices = page.getByRole('link', { name: 'Devices', exact: true });
    await devices.click();
    await expect.poll(() => asked).toEqual(['confirm']);
    await page.getByRole('heading', { name: 'What to paste where' }).waitFor();
    // The browser asks before it loads the page anew; there one is told of the key that is lost.
    await page.reload();
    expect(asked).toEqual(['confirm', 'beforeunload']);
    await page.getByText('You created the key “Sigfox: Returned” here').waitFor();
    await page.getByText('No message has arrived with it yet.').waitFor();
    const project = page.getByLabel('Project', { exact: true }).locator('option:checked');
    await expect.poll(() => project.innerText()).toBe('Returned');
    await page.getByRole('button', { name: 'Create a new key' }).click();
    await page.getByRole('heading', { name: 'What to paste where' }).waitFor();
    const second = await pasted(page);
    expect(second.headers.authorization).not.toBe(first.headers.authorization);
    const status = async ({ url, headers }: typeof first): Promise<number> =>
      (await fetch(url, { method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body: '{}' }))
        .status;
    await expect.poll(() => status(first)).toBe(401);
    // One who has copied it may go.
    const copy = page.getByRole('button', { name: 'Copy Header authorization' });
    // It is said for seconds only.
    const copied = copy.getByText('Copied').waitFor();
    await copy.click();
    await copied;
    await devices.click();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    expect(asked).toEqual(['confirm', 'beforeunload']);
    // With a key that has been used nothing is lost.
    expect(await status(second)).not.toBe(401);
    await page.goBack();
    await page.getByText('Messages have arrived with it').waitFor();
  });

  it('warns of a design that does not hear, and passes on what the server says', async () => {
    const { page } = visitor;
    await visitor.open('/integrations/new?kind=sigfox');
    await page.getByLabel('Project', { exact: true }).selectOption({ label: 'Deaf' });
    await page.getByText('has no element that receives messages of the type “sigfox”').waitFor();
    await page.getByRole('button', { name: 'Create the key' }).click();
    await page.getByRole('button', { name: 'Send a sample message' }).click();
    await page.getByText('The server accepted the sample and reports:').waitFor();
  });
});
