import assert from 'node:assert/strict';
import { type AddressInfo, type Socket, createServer } from 'node:net';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Isobar, type Limits } from 'isobar-client';
import { serve } from './server.js';

/** Calls a server that treats each connection so. */
async function against(meet: (socket: Socket) => void, limits: Limits = {}): Promise<unknown> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => undefined);
    meet(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    return await new Isobar({ baseUrl, apiKey: 'a-secret', retries: 1, ...limits })
      .get('/v2/auth/user')
      .catch((error: unknown) => error);
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}

/** Says this to whoever asks, and hangs up. */
function says(text: string) {
  return (socket: Socket) => socket.once('data', () => socket.end(text));
}

function assertFailure(outcome: unknown, status: number, words: RegExp): void {
  assert.equal((outcome as Error).name, 'IsobarError');
  assert.equal((outcome as { status: number }).status, status);
  assert.match((outcome as Error).message, words);
  assert.doesNotMatch((outcome as Error).stack ?? '', /a-secret/);
}

test('server that hangs up is no answer', async () => {
  assertFailure(await against((socket) => socket.once('data', () => socket.destroy())), 0, /no answer came/);
  // Some releases of Node do not notice this one, but for the time-out.
  assertFailure(await against((socket) => socket.destroy(), { timeoutMs: 100 }), 0, /no answer came/);
});

test('server that never answers is given up in time', async () => {
  const begun = performance.now();
  assertFailure(await against(() => undefined, { timeoutMs: 100 }), 0, /within 100 ms/);
  assert.ok(performance.now() - begun < 10_000);
});

test('body that never ends is given up in time', async () => {
  const head = 'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{';
  assertFailure(await against((socket) => socket.write(head), { timeoutMs: 100 }), 0, /no answer came/);
});

test('rubbish is no answer', async () => {
  assertFailure(await against(says('\u0000rubbish\r\n\r\n')), 0, /no answer came/);
  assertFailure(await against(says('HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<html>a-secret')), 0, /no JSON/);
  assertFailure(await against(says('HTTP/1.1 418 Tea\r\nconnection: close\r\n\r\n[1,')), 418, /answered 418/);
  assertFailure(
    await against(says('HTTP/1.1 400 Bad\r\nconnection: close\r\n\r\n{"message":7,"errors":[3]}')),
    400,
    /answered 400/,
  );
});

test('redirect is not followed', async () => {
  let visits = 0;
  const other = await serve((_, to) => {
    visits += 1;
    to.end('{}');
  });
  const moved = says(`HTTP/1.1 302 Found\r\nlocation: ${other.url}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`);
  assertFailure(await against(moved), 302, /redirects/);
  other.close();
  assert.equal(visits, 0);
});

test('answer without end is cut off', async () => {
  let bytes = 0;
  const giant = await serve((_, to) => {
    to.writeHead(200, { 'content-type': 'application/json' });
    const pour = (): void => {
      while (!to.destroyed && to.write('[1]'.repeat(20_000))) bytes += 60_000;
    };
    to.on('drain', pour);
    pour();
  });
  const limits = { answerBytesMax: 1024 * 1024 };
  await assert.rejects(new Isobar({ baseUrl: giant.url, ...limits }).get('/v2/about'), {
    name: 'IsobarError',
    message: /larger than/,
  });
  giant.close();
  assert.ok(bytes < 64 * 1024 * 1024, `${bytes} bytes were taken`);
});

test('caller who aborts is heard while a call waits or pauses', async () => {
  const silent = await serve(() => undefined);
  const busy = await serve((_, to) => to.writeHead(503, { 'retry-after': '60' }).end());
  // Signals of requests that are under way may be collected meanwhile.
  setFlagsFromString('--expose-gc');
  const collecting = setInterval(runInNewContext('gc') as () => void, 10);
  for (const { url } of [silent, busy]) {
    const signal = AbortSignal.timeout(100);
    const begun = performance.now();
    await assert.rejects(new Isobar({ baseUrl: url }).get('/v2/about', { signal }), { name: 'TimeoutError' });
    assert.ok(performance.now() - begun < 10_000);
  }
  clearInterval(collecting);
  silent.close();
  busy.close();
});
