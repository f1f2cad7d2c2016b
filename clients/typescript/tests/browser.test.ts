import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Browser, type Page, chromium } from 'playwright-core';
import { ADMIN, type Server, startServer } from './server.js';

let server: Server;
let browser: Browser;
before(async () => {
  const executablePath = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
  [server, browser] = await Promise.all([startServer(), chromium.launch({ executablePath, args: ['--no-sandbox'] })]);
});
after(async () => {
  await browser.close();
  await server.stop();
});

const IMPORTS = { imports: { 'isobar-client': '/t/index.js', 'openapi-fetch': '/t/openapi-fetch.js' } };

/** Opens a page of the server's own address that has the client among its modules. */
async function open(): Promise<Page> {
  const page = await browser.newPage();
  await page.route(`${server.url}/t/**`, async (route) => {
    const name = new URL(route.request().url()).pathname.slice('/t/'.length);
    const body = `<script type="importmap">${JSON.stringify(IMPORTS)}</script>`;
    if (!name) return route.fulfill({ contentType: 'text/html', body });
    const file =
      name === 'openapi-fetch.js'
        ? import.meta.resolve('openapi-fetch')
        : new URL(name, import.meta.resolve('isobar-client'));
    return route.fulfill({ contentType: 'text/javascript', body: await readFile(fileURLToPath(file), 'utf8') });
  });
  await page.goto(`${server.url}/t/`);
  return page;
}

test('browser signs in, resumes after a reload, streams and signs out', async () => {
  const page = await open();
  await page.evaluate(async ({ name, password }) => {
    const { Isobar } = await import('isobar-client');
    await Isobar.login({ baseUrl: location.origin }, name, password);
  }, ADMIN);
  await page.reload();
  const outcome = await page.evaluate(async () => {
    const { Isobar } = await import('isobar-client');
    const baseUrl = location.origin;
    const isobar = await Isobar.resume({ baseUrl });
    const project = await isobar.post('/v2/projects', { body: { name: 'Fridges' } });
    const device = await isobar.post('/v2/devices', { body: { name: 'Fridge', projectUuid: project.id } });
    const itself = new Isobar({ baseUrl, deviceToken: device.token });
    const stream = isobar.stream({ deviceId: device.id });
    const first = stream.next();
    const query = { elementName: 'reading' };
    const posting = setInterval(
      () => void itself.post('/v2/events/device', { params: { query }, body: { n: 1 } }),
      100,
    );
    const { value } = await first;
    clearInterval(posting);
    const path = { id: device.id };
    const refused = await isobar
      .put('/v2/devices/{id}', { params: { path }, body: { name: '', projectUuid: project.id } })
      .catch((e: unknown) => e);
    await isobar.logout();
    const ended = await Isobar.resume({ baseUrl }).catch((e: unknown) => e);
    const faults = (refused as { fields: { field: string }[] }).fields.map(({ field }) => field);
    return { type: value.type, faults, ended: (ended as { status: number }).status };
  });
  assert.deepEqual(outcome, { type: 'deviceEvent', faults: ['name'], ended: 401 });
  await page.close();
});

test('browser follows no redirect', async () => {
  const page = await open();
  await page.route(`${server.url}/v2/about`, (route) => route.fulfill({ status: 302, headers: { location: '/t/' } }));
  const failure = await page.evaluate(async () => {
    const { Isobar } = await import('isobar-client');
    return new Isobar({ baseUrl: location.origin }).get('/v2/about').catch((error: Error) => error.message);
  });
  assert.match(String(failure), /redirects/);
  await page.close();
});
