import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Isobar } from 'isobar-client';
import { ADMIN, type Server, admin, deliver, forward, makeDevice, serve, startServer } from './server.js';

let server: Server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

const reading = { params: { query: { elementName: 'reading' } } };

/** Returns the payloads of a device's history, the newest first. */
async function history(isobar: Isobar, deviceId: string): Promise<unknown[]> {
  const payloads: unknown[] = [];
  for await (const event of isobar.list('/v2/devices/{deviceId}/events', { params: { path: { deviceId } } }))
    payloads.push(event.payload);
  return payloads;
}

test('event whose answer is lost is stored once', async () => {
  const isobar = await admin(server.url);
  const device = await makeDevice(isobar);
  const keys: unknown[] = [];
  const front = await serve((call, to) => {
    keys.push(call.headers['idempotency-key']);
    void forward(server.url, call).then((answer) => (keys.length === 1 ? to.destroy() : deliver(answer, to)));
  });
  const itself = new Isobar({ baseUrl: front.url, deviceToken: device.token });
  const { id } = await itself.post('/v2/events/device', { ...reading, body: { n: 1 } });
  front.close();
  assert.equal(keys.length, 2);
  assert.ok(keys[0]);
  assert.equal(keys[0], keys[1]);
  assert.ok(id);
  assert.deepEqual(await history(isobar, device.id), [{ n: 1 }]);
});

test('rate limit is waited for and the event stored once', async () => {
  const limited = await startServer({ ISOBAR_RATE_LIMIT__DEVICE: '1' });
  const device = await makeDevice(await admin(limited.url));
  const waits: string[] = [];
  let passed = 0;
  const front = await serve((call, to) => {
    void forward(limited.url, call).then(
      (answer) => {
        // The server means up to a minute; the test gives the client a second, and takes the limit away meanwhile.
        if (answer.answer.statusCode === 429) {
          waits.push(answer.answer.headers['retry-after'] ?? '');
          answer.answer.headers['retry-after'] = '1';
        } else passed += 1;
        deliver(answer, to);
      },
      () => to.destroy(),
    );
  });
  const itself = new Isobar({ baseUrl: front.url, deviceToken: device.token, retries: 30 });
  const send = (n: number) => itself.post('/v2/events/device', { ...reading, body: { n } });
  const sent = [];
  // The window ends with the minute of the clock, so that two events may fall in two of them.
  for (let n = 0; n < 3; n += 1) sent.push(send(n));
  while (waits.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  await limited.kill();
  await limited.restart({});
  const ids = (await Promise.all(sent)).map(({ id }) => id);
  front.close();
  assert.equal(new Set(ids).size, 3);
  assert.equal(passed, 3);
  assert.ok(Number(waits[0]) >= 0 && Number(waits[0]) <= 60, waits[0]);
  const stored = await history(await admin(limited.url), device.id);
  assert.equal(stored.length, 3);
  await limited.stop();
});

test('wait beyond the bound fails at once and tells of it', async () => {
  const front = await serve((_, to) =>
    to.writeHead(429, { 'retry-after': '3600' }).end('{"message":"too many requests","errors":[]}'),
  );
  const failure = new Isobar({ baseUrl: front.url }).get('/v2/about');
  await assert.rejects(failure, { status: 429, retryAfter: 3600, message: 'too many requests' });
  front.close();
});

test('write without a key is never sent twice', async () => {
  let calls = 0;
  const front = await serve((_, to) => {
    calls += 1;
    to.writeHead(503, { 'retry-after': '0' }).end('{"message":"overloaded","errors":[]}');
  });
  const isobar = new Isobar({ baseUrl: front.url, apiKey: 'k', retries: 2 });
  // The server ignores the header here, so that it protects nothing.
  const headers = { 'idempotency-key': 'of-no-use' };
  await assert.rejects(isobar.post('/v2/projects', { body: { name: 'Once' }, headers }), { status: 503 });
  await assert.rejects(isobar.delete('/v2/projects/{id}', { params: { path: { id: 'x' } } }), { status: 503 });
  assert.equal(calls, 2);
  await assert.rejects(isobar.get('/v2/about'), { status: 503 });
  assert.equal(calls, 5);
  front.close();
});

test('call that the rate limit refuses is sent again', async () => {
  let calls = 0;
  const front = await serve((_, to) => {
    calls += 1;
    if (calls === 1) to.writeHead(429, { 'retry-after': '0' }).end('{"message":"too many requests","errors":[]}');
    else to.writeHead(200, { 'content-type': 'application/json' }).end('{"id":"1"}');
  });
  await new Isobar({ baseUrl: front.url, apiKey: 'k' }).post('/v2/projects', { body: { name: 'Waited for' } });
  assert.equal(calls, 2);
  front.close();
});

for (const [keys, attempts] of [
  [['a', 'b'], 2],
  [['a', undefined], 1],
] as const) {
  test(`batch with ${keys.filter(Boolean).length} keys of 2 is sent ${attempts} times`, async () => {
    const isobar = await admin(server.url);
    const device = await makeDevice(isobar);
    let calls = 0;
    const front = await serve((call, to) => {
      void forward(server.url, call).then((answer) => {
        calls += 1;
        if (calls === 1) to.destroy();
        else deliver(answer, to);
      });
    });
    const itself = new Isobar({ baseUrl: front.url, deviceToken: device.token });
    const body = keys.map((idempotencyKey, n) => ({ elementName: 'reading', payload: { n }, idempotencyKey }));
    const sent = itself.post('/v2/events/device/batch', { body: body as never });
    if (attempts > 1) await sent;
    else await assert.rejects(sent, { status: 0 });
    assert.equal(calls, attempts);
    assert.equal((await history(isobar, device.id)).length, 2);
    front.close();
  });
}

test('stream broken before its first event misses nothing', async () => {
  const isobar = await admin(server.url);
  const device = await makeDevice(isobar);
  const itself = new Isobar({ baseUrl: server.url, deviceToken: device.token });
  const post = (n: number) => itself.post('/v2/events/device', { ...reading, body: { n } });
  await post(0);
  const broken = new AbortController();
  let opened = 0;
  const cutting: typeof globalThis.fetch = async (input) => {
    const response = await fetch(input);
    if (!response.headers.get('content-type')?.startsWith('text/event-stream') || (opened += 1) > 1) return response;
    const first = await response.body?.getReader().read();
    await post(1);
    return new Response(first?.value ?? null, { headers: response.headers });
  };
  const listener = await Isobar.login({ baseUrl: server.url, fetch: cutting }, ADMIN.name, ADMIN.password);
  const item = await listener.stream({ deviceId: device.id }, { signal: broken.signal }).next();
  assert.deepEqual(item.value.type === 'alarm' ? null : item.value.event.payload, { n: 1 });
  assert.equal(opened, 2);
  broken.abort();
});

test('stream goes on behind the last event after a crash', async () => {
  const isobar = await admin(server.url);
  const device = await makeDevice(isobar);
  const itself = new Isobar({ baseUrl: server.url, deviceToken: device.token, retries: 30 });
  const post = (n: number) => itself.post('/v2/events/device', { ...reading, body: { n } });
  const end = new AbortController();
  const breaks: string[] = [];
  const heard: unknown[] = [];
  const stream = isobar.stream(
    { deviceId: device.id },
    { signal: end.signal, onBreak: (error) => breaks.push(error.message) },
  );
  // The first event is posted until the stream is open to hear one.
  const opened = stream.next();
  const opening = setInterval(() => void post(0), 100);
  const first = await opened;
  clearInterval(opening);
  assert.equal(first.value.type, 'deviceEvent');
  await server.kill();
  await server.restart();
  for (let n = 1; n <= 3; n += 1) await post(n);
  const failure = await (async () => {
    for await (const item of stream) {
      if (item.type === 'alarm') continue;
      const { n } = item.event.payload as { n: number };
      if (n > 0) heard.push(n);
      if (n === 3) end.abort(new Error('enough'));
    }
  })().catch((error: unknown) => error);
  assert.deepEqual(heard, [1, 2, 3]);
  assert.ok(breaks.length > 0);
  assert.match(String(failure), /enough/);
});

test('stream that is out of reach is refused', async () => {
  const isobar = await admin(server.url);
  await assert.rejects(isobar.stream({ deviceId: '019a0000-0000-7000-8000-000000000000' }).next(), { status: 404 });
});

test('stream that cannot be resumed says so', async () => {
  const isobar = await admin(server.url);
  const lastEventId = '01900000-0000-7000-8000-000000000000';
  const failure = await isobar
    .stream({}, { lastEventId })
    .next()
    .catch((error: unknown) => error);
  assert.equal((failure as { status: number }).status, 400);
  assert.ok((failure as { field(name: string): string }).field('header.Last-Event-ID'));
});
