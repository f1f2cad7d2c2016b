import { describe, expect, it } from 'vitest';
import { MessageReader } from './messages';

const TEXT =
  ': hello\n\nevent: deviceEvent\nid: 1\ndata: {"a":1}\n\nid: 2\r\ndata: one\r\ndata:  two\r\n\r\nevent: none\n\n: keeps it open\n\n';
const MESSAGES = [
  { event: 'deviceEvent', id: '1', data: '{"a":1}' },
  { event: 'message', id: '2', data: 'one\n two' },
];

describe('a stream of server-sent events', () => {
  it('is read however it is cut', () => {
    for (let size = 1; size <= TEXT.length; size += 1) {
      const reader = new MessageReader();
      const read = [];
      for (let at = 0; at < TEXT.length; at += size) read.push(...reader.push(TEXT.slice(at, at + size)));
      expect(read, `pieces of ${size}`).toEqual(MESSAGES);
    }
  });

  it('gives nothing that is not whole', () => {
    const reader = new MessageReader();
    expect(reader.push('id: 1\ndata: half')).toEqual([]);
    expect(reader.push('\n')).toEqual([]);
    expect(reader.push('\n')).toHaveLength(1);
  });
});
