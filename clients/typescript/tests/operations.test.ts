import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Isobar, IsobarError, type components } from 'isobar-client';
import { type Server, admin, makeDevice, startServer } from './server.js';

let server: Server;
let isobar: Isobar;
before(async () => {
  server = await startServer();
  isobar = await admin(server.url);
});
after(() => server.stop());

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const planes = {
  cloud: {
    elements: {
      reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'climate', ability: 'store' }] } },
      climate: { type: 'storage' },
      highest: { type: 'deviceSetting', properties: { inputType: 'number', defaultValue: 8 } },
    },
  },
};

test('design stores what a device posts, and settings change', async () => {
  const { id, token, projectUuid } = await makeDevice(isobar);
  const project = { params: { path: { id: projectUuid } } };
  const written = await isobar.put('/v2/projects/{id}/specification', {
    ...project,
    body: { name: 'Fridges', planes },
  });
  assert.equal(written.createVersion, '2');
  const itself = new Isobar({ baseUrl: server.url, deviceToken: token });
  const query = { elementName: 'reading' };
  const posted = await itself.post('/v2/events/device', { params: { query }, body: { temp: 9.1, door: 'open' } });
  const path = { deviceId: id, id: posted.id };
  const event: components['schemas']['Event'] = await isobar.get('/v2/devices/{deviceId}/events/{id}', {
    params: { path },
  });
  assert.equal(event.type, 'deviceEvent');
  const element = { params: { path: { id, elementName: 'climate' } } };
  const values = await isobar.get('/v2/devices/{id}/data/{elementName}', element);
  assert.deepEqual(values.data[0]?.payload, { temp: 9.1, door: 'open' });
  const setting = { params: { path: { id, settingName: 'highest' } } };
  const changed = await isobar.put('/v2/devices/{id}/settings/{settingName}', { ...setting, body: 7 });
  assert.equal(changed.value, 7);
  assert.equal(changed.inputType, 'number');
});

test('cloud event is taken once by its device', async () => {
  const { id, token } = await makeDevice(isobar);
  const itself = new Isobar({ baseUrl: server.url, deviceToken: token });
  await isobar.post('/v2/events/cloud', {
    params: { query: { deviceId: id, elementName: 'climate' } },
    body: { on: true },
  });
  assert.deepEqual(await itself.get('/v2/events/cloud/next'), { on: true });
  assert.equal(await itself.get('/v2/events/cloud/next'), undefined);
});

test('image goes up as a text and comes back', async () => {
  const { id } = await makeDevice(isobar);
  const path = { params: { path: { id } } };
  const text = { headers: { 'Content-Type': 'text/plain' }, bodySerializer: (body: string) => body };
  const posted = `data:image/png;base64,${PNG}`;
  await isobar.post('/v2/devices/{id}/image', { ...path, ...text, body: posted });
  assert.equal(await isobar.get('/v2/devices/{id}/image', { ...path, parseAs: 'text' }), posted);
  const shown = await isobar.get('/v2/devices/{id}/image.png', { ...path, parseAs: 'arrayBuffer' });
  assert.deepEqual(Buffer.from(shown).subarray(0, 8), Buffer.from(PNG, 'base64').subarray(0, 8));
  const refused = await isobar
    .post('/v2/devices/{id}/image', { ...path, ...text, body: 'no image' })
    .catch((e: unknown) => e);
  assert.ok(refused instanceof IsobarError && refused.field('body'));
});

test('filters and ranges reach the server as it names them', async () => {
  const { id } = await makeDevice(isobar);
  const query = {
    depth: 'all' as const,
    sortBy: ['-name'],
    filter: { statusInt: { lt: 1, gte: 0 } },
    entityList: [id],
  };
  const listed = await isobar.get('/v2/devices', { params: { query } });
  assert.deepEqual(
    listed.data.map((device) => device.id),
    [id],
  );
  const none = { ...query, filter: { statusInt: { gte: 1 } } };
  assert.equal((await isobar.get('/v2/devices', { params: { query: none } })).meta.totalDocs, 0);
  const ended = await isobar.delete('/v2/notifications', { params: { query: { to: '2100-01-01T00:00:00.000Z' } } });
  assert.deepEqual(ended.errors, []);
});
