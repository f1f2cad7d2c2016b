import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { MessageReader, messagesOf } from '../dist/messages.js';

const TEXT =
  ': hello\n\nid: 0\n\nevent: deviceEvent\nid: 1\ndata: {"a":1}\n\nid: 2\r\ndata: one\r\ndata:  two\r\n\r\nevent: none\n\n: keeps it open\n\n';
const MESSAGES = [
  { event: 'message', id: '0', data: '' },
  { event: 'deviceEvent', id: '1', data: '{"a":1}' },
  { event: 'message', id: '2', data: 'one\n two' },
];

test('stream of messages is read however it is cut', () => {
  for (let size = 1; size <= TEXT.length; size += 1) {
    const reader = new MessageReader();
    const read = [];
    for (let at = 0; at < TEXT.length; at += size) read.push(...reader.push(TEXT.slice(at, at + size)));
    assert.deepEqual(read, MESSAGES, `pieces of ${size}`);
  }
});

test('message that is not whole is not given', () => {
  const reader = new MessageReader();
  assert.deepEqual(reader.push('id: 1\ndata: half'), []);
  assert.deepEqual(reader.push('\n'), []);
  assert.equal(reader.push('\n').length, 1);
});

test('message without end is refused', () => {
  const reader = new MessageReader();
  const piece = 'data: '.padEnd(1024 * 1024, 'x');
  assert.throws(
    () => {
      for (let pieces = 0; pieces < 20; pieces += 1) reader.push(piece);
    },
    { name: 'IsobarError', status: 0 },
  );
});

/** Makes a body that says this, and then what `next` does. */
function body(
  text: string,
  next: (to: ReadableStreamDefaultController<Uint8Array>) => void,
): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(to) {
      to.enqueue(new TextEncoder().encode(text));
      next(to);
    },
  });
}

const open = new AbortController().signal;

test('stream that is closed ends behind its last message', async () => {
  const read = [];
  for await (const message of messagesOf(
    body(TEXT, (to) => to.close()),
    open,
  ))
    read.push(message);
  assert.deepEqual(read, MESSAGES);
});

test('stream that breaks is no answer', async () => {
  const broken = messagesOf(new ReadableStream({ pull: (to) => to.error(new TypeError('reset')) }), open);
  await assert.rejects(broken.next(), { name: 'IsobarError', status: 0 });
});

test('stream that falls silent is no answer', async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const silent = messagesOf(
    body(TEXT, () => undefined),
    open,
  );
  await silent.next();
  await silent.next();
  await silent.next();
  const failure = assert.rejects(silent.next(), { name: 'IsobarError', status: 0, message: /silent/ });
  await new Promise(setImmediate);
  mock.timers.tick(45_000);
  await failure;
  mock.timers.reset();
});

test('stream that is aborted throws the reason', async () => {
  const stop = new AbortController();
  const stopped = messagesOf(
    body('', () => undefined),
    stop.signal,
  );
  const failure = assert.rejects(stopped.next(), /enough/);
  stop.abort(new Error('enough'));
  await failure;
});
