import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { inspect } from 'node:util';
import { Isobar, IsobarError } from 'isobar-client';
import { ADMIN, type Server, admin, makeDevice, startServer } from './server.js';

let server: Server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

/** Counts the calls of each path, and keeps what was last sent as `authorization`. */
function watched() {
  const seen = new Map<string, number>();
  const last = { authorization: '' };
  const send: typeof fetch = (input) => {
    const request = input as Request;
    const { pathname } = new URL(request.url);
    seen.set(pathname, (seen.get(pathname) ?? 0) + 1);
    last.authorization = request.headers.get('authorization') ?? last.authorization;
    return fetch(request);
  };
  return { seen, last, send };
}

test('wrong password is refused without being repeated', async () => {
  const failure = await Isobar.login({ baseUrl: server.url }, ADMIN.name, 'a-secret-guess').catch(
    (error: unknown) => error,
  );
  assert.ok(failure instanceof IsobarError);
  assert.equal(failure.status, 401);
  assert.doesNotMatch(inspect(failure, { depth: 9 }), /a-secret-guess/);
});

test('ended token is renewed once for parallel calls', async () => {
  const { seen, last, send } = watched();
  const isobar = await admin(server.url, send);
  await isobar.get('/v2/auth/user');
  const headers = { authorization: last.authorization };
  assert.equal((await fetch(`${server.url}/v2/auth/logout`, { method: 'POST', headers })).status, 204);
  assert.equal((await fetch(`${server.url}/v2/auth/user`, { headers })).status, 401);
  const users = await Promise.all(Array.from({ length: 8 }, () => isobar.get('/v2/auth/user')));
  assert.deepEqual(new Set(users.map((user) => user.username)), new Set([ADMIN.name]));
  assert.equal(seen.get('/v2/auth/refreshToken'), 1);
});

test('session ends with logout', async () => {
  const isobar = await admin(server.url);
  await isobar.logout();
  await assert.rejects(isobar.get('/v2/auth/user'), { name: 'IsobarError', status: 401 });
});

test('api key and device token call without a session', async () => {
  const isobar = await admin(server.url);
  const me = await isobar.get('/v2/auth/user');
  const { key } = await isobar.post('/v2/users/{id}/apiKeys', {
    params: { path: { id: me.id } },
    body: { name: 'tests' },
  });
  const byKey = new Isobar({ baseUrl: server.url, apiKey: key });
  assert.equal((await byKey.get('/v2/auth/user')).id, me.id);
  const device = await makeDevice(byKey);
  const itself = new Isobar({ baseUrl: server.url, deviceToken: device.token });
  await itself.post('/v2/events/device', { params: { query: { elementName: 'reading' } }, body: { temp: 9.1 } });
  const params = { path: { id: device.id, elementName: 'reading' } };
  assert.deepEqual((await itself.get('/v2/devices/{id}/last/{elementName}', { params })).values, { temp: 9.1 });
  const csv = await byKey.get('/v2/devices/{id}/data/{elementName}', {
    params: { ...params, query: { columns: ['payload.temp'] } },
    headers: { accept: 'text/csv' },
    parseAs: 'text',
  });
  assert.equal(csv, 'payload.temp\r\n9.1\r\n');
  assert.doesNotMatch(inspect([byKey, itself], { depth: 9 }), new RegExp(`${key}|${device.token}`));
});

test('list yields every item of all pages once', async () => {
  const { seen, send } = watched();
  const isobar = await admin(server.url, send);
  const project = await isobar.post('/v2/projects', { body: { name: 'Many' } });
  const body = Array.from({ length: 7 }, (_, place) => ({ name: `Fridge ${place}`, projectUuid: project.id }));
  assert.deepEqual((await isobar.post('/v2/devices/bulk', { body })).errors, []);
  const names: string[] = [];
  const query = { limit: 3, sortBy: ['name'], searchText: 'Fridge ' };
  for await (const device of isobar.list('/v2/devices', { params: { query } })) names.push(device.name);
  assert.deepEqual(
    names,
    body.map((device) => device.name),
  );
  assert.equal(seen.get('/v2/devices'), 3);
});

test('list that is left asks for no further page', async () => {
  const { seen, send } = watched();
  const isobar = await admin(server.url, send);
  for await (const project of isobar.list('/v2/projects', { params: { query: { limit: 1 } } })) {
    assert.ok(project.id);
    break;
  }
  assert.equal(seen.get('/v2/projects'), 1);
});

test('refusal names every field and the request', async () => {
  const isobar = await admin(server.url);
  const failure = await isobar
    .post('/v2/devices', { body: { name: '', projectUuid: 'nowhere' } })
    .catch((error: unknown) => error);
  assert.ok(failure instanceof IsobarError);
  assert.equal(failure.status, 400);
  assert.deepEqual(failure.fields.map(({ field }) => field).sort(), ['name', 'projectUuid']);
  assert.match(failure.field('name') ?? '', /1 to 80/);
  assert.ok(failure.requestId);
  assert.equal(failure.isTemporary, false);
});

test('address and secrets that could leak are refused unquoted', () => {
  assert.throws(
    () => new Isobar({ baseUrl: 'http://user:secret@localhost' }),
    (error: Error) => !error.message.includes('secret'),
  );
  assert.throws(
    () => new Isobar({ baseUrl: server.url, apiKey: 'sec\nret' }),
    (error: Error) => !error.message.includes('ret'),
  );
  assert.throws(() => new Isobar({ baseUrl: 'ftp://localhost' }), TypeError);
});
