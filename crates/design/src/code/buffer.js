// `Buffer`, which ChirpStack gives to codecs: bytes with Node's reading, writing and texts, over Uint8Array.
// Runs after the prelude, in engines whose code names it. Where an encoding is left out it is UTF-8.
(function () {
  'use strict';

  const { setPrototypeOf, defineProperty } = Object;
  const { isArray } = Array;
  const { fromCharCode, fromCodePoint } = String;
  const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const REPLACEMENT = '\ufffd';

  function Buffer(value, encodingOrOffset, length) {
    return typeof value === 'number' ? alloc(value) : from(value, encodingOrOffset, length);
  }

  function made(bytes) {
    return setPrototypeOf(bytes, Buffer.prototype);
  }

  function alloc(size, fill) {
    const bytes = made(new Uint8Array(size));
    if (fill === undefined || fill === 0) return bytes;
    const pattern = typeof fill === 'number' ? [fill] : from(fill);
    for (let at = 0; pattern.length > 0 && at < bytes.length; at++) bytes[at] = pattern[at % pattern.length];
    return bytes;
  }

  function from(value, encodingOrOffset, length) {
    if (typeof value === 'string') return made(new Uint8Array(written(value, encodingOrOffset)));
    if (value instanceof ArrayBuffer) return made(new Uint8Array(value, encodingOrOffset, length));
    if (typeof value !== 'object' || value === null) throw new TypeError('Buffer.from takes a text, bytes or a list');
    return made(new Uint8Array(value.type === 'Buffer' && isArray(value.data) ? value.data : value));
  }

  function unknown(encoding) {
    return new TypeError('Unknown encoding: ' + encoding);
  }

  /** The bytes that a text stands for. */
  function written(text, encoding) {
    switch (encoding === undefined || encoding === null ? 'utf8' : String(encoding).toLowerCase()) {
      case 'hex': return fromHex(text);
      case 'base64': case 'base64url': return fromBase64(text);
      case 'ascii': case 'latin1': case 'binary': return Array.from({ length: text.length }, (_, at) => text.charCodeAt(at) & 0xff);
      case 'utf8': case 'utf-8': return fromUtf8(text);
      default: throw unknown(encoding);
    }
  }

  /** As far as it is hexadecimal. */
  function fromHex(text) {
    const bytes = [];
    for (let at = 0; at + 1 < text.length; at += 2) {
      const pair = text.substring(at, at + 2);
      if (!/^[0-9a-fA-F]{2}$/.test(pair)) break;
      bytes.push(parseInt(pair, 16));
    }
    return bytes;
  }

  /** In either alphabet; what is no digit is passed over, and `=` ends it. */
  function fromBase64(text) {
    const bytes = [];
    for (let at = 0, held = 0, bits = 0; at < text.length && text[at] !== '='; at++) {
      const digit = DIGITS.indexOf(text[at] === '-' ? '+' : text[at] === '_' ? '/' : text[at]);
      if (digit < 0) continue;
      held = ((held << 6) | digit) & 0xfff;
      bits += 6;
      if (bits >= 8) {
        bits -= 8;
        bytes.push((held >> bits) & 0xff);
      }
    }
    return bytes;
  }

  function fromUtf8(text) {
    const bytes = [];
    for (const character of text.toWellFormed()) {
      const code = character.codePointAt(0);
      if (code < 0x80) bytes.push(code);
      else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 0x3f));
      else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
      else bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 0x3f), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    }
    return bytes;
  }

  function toHex(bytes) {
    let text = '';
    for (let at = 0; at < bytes.length; at++) text += (bytes[at] < 16 ? '0' : '') + bytes[at].toString(16);
    return text;
  }

  function toBase64(bytes) {
    let text = '';
    for (let at = 0; at < bytes.length; at += 3) {
      const left = bytes.length - at;
      const held = (bytes[at] << 16) | ((left > 1 ? bytes[at + 1] : 0) << 8) | (left > 2 ? bytes[at + 2] : 0);
      text += DIGITS[held >> 18] + DIGITS[(held >> 12) & 63] + (left > 1 ? DIGITS[(held >> 6) & 63] : '=') + (left > 2 ? DIGITS[held & 63] : '=');
    }
    return text;
  }

  function toLatin1(bytes, mask) {
    let text = '';
    for (let at = 0; at < bytes.length; at++) text += fromCharCode(bytes[at] & mask);
    return text;
  }

  /** What is no UTF-8 becomes U+FFFD, a byte at a time. */
  function toUtf8(bytes) {
    let text = '';
    for (let at = 0; at < bytes.length;) {
      const first = bytes[at];
      const more = first < 0x80 ? 0 : first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : -1;
      let code = more < 1 ? first : first & (0x3f >> more), is = more >= 0 && at + more < bytes.length;
      for (let next = 1; is && next <= more; next++) {
        is = (bytes[at + next] & 0xc0) === 0x80;
        code = (code << 6) | (bytes[at + next] & 0x3f);
      }
      const least = [0, 0x80, 0x800, 0x10000][more];
      is = is && code >= least && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
      text += is ? fromCodePoint(code) : REPLACEMENT;
      at += is ? more + 1 : 1;
    }
    return text;
  }

  const view = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

  function offer(object, members) {
    for (const name of Object.keys(members)) {
      defineProperty(object, name, { value: members[name], writable: true, enumerable: false, configurable: true });
    }
  }

  /** A whole number of up to six bytes; the highest first, unless it is little-endian. */
  function whole(bytes, offset, size, little, signed) {
    if (!(offset >= 0 && size >= 1 && size <= 6 && offset + size <= bytes.length)) throw new RangeError('out of bound');
    let value = 0;
    for (let at = 0; at < size; at++) value = value * 256 + bytes[offset + (little ? size - 1 - at : at)];
    return signed && value >= Math.pow(2, 8 * size - 1) ? value - Math.pow(2, 8 * size) : value;
  }

  setPrototypeOf(Buffer, Uint8Array);
  setPrototypeOf(Buffer.prototype, Uint8Array.prototype);
  offer(Buffer, {
    alloc, from,
    allocUnsafe: (size) => alloc(size),
    isBuffer: (value) => value instanceof Buffer,
    byteLength: (value, encoding) => (typeof value === 'string' ? written(value, encoding).length : value.byteLength),
    concat(list, total) {
      const bytes = [];
      for (const item of list) for (let at = 0; at < item.length; at++) bytes.push(item[at]);
      const all = alloc(total === undefined ? bytes.length : total);
      for (let at = 0; at < all.length && at < bytes.length; at++) all[at] = bytes[at];
      return all;
    },
  });
  offer(Buffer.prototype, {
    toString(encoding, start, end) {
      const bytes = this.subarray(start === undefined ? 0 : start, end === undefined ? this.length : end);
      switch (encoding === undefined || encoding === null ? 'utf8' : String(encoding).toLowerCase()) {
        case 'hex': return toHex(bytes);
        case 'base64': return toBase64(bytes);
        case 'base64url': return toBase64(bytes).replace(/\+/g, '-').replace(/\//g, '_').replace(/=/g, '');
        case 'ascii': return toLatin1(bytes, 0x7f);
        case 'latin1': case 'binary': return toLatin1(bytes, 0xff);
        case 'utf8': case 'utf-8': return toUtf8(bytes);
        default: throw unknown(encoding);
      }
    },
    // As in Node, the part is the same memory.
    slice(start, end) { return this.subarray(start, end); },
    toJSON() { return { type: 'Buffer', data: Array.from(this) }; },
    equals(other) { return this.length === other.length && this.every((byte, at) => byte === other[at]); },
    copy(target, targetStart, start, end) {
      const part = this.subarray(start || 0, end === undefined ? this.length : end);
      const room = Math.min(part.length, target.length - (targetStart || 0));
      for (let at = 0; at < room; at++) target[(targetStart || 0) + at] = part[at];
      return room > 0 ? room : 0;
    },
    write(text, offset, length, encoding) {
      return from(text, encoding).copy(this, offset || 0, 0, length);
    },
    readUIntBE(offset, size) { return whole(this, offset, size, false, false); },
    readUIntLE(offset, size) { return whole(this, offset, size, true, false); },
    readIntBE(offset, size) { return whole(this, offset, size, false, true); },
    readIntLE(offset, size) { return whole(this, offset, size, true, true); },
  });
  offer(Buffer.prototype, { readUintBE: Buffer.prototype.readUIntBE, readUintLE: Buffer.prototype.readUIntLE });
  const kinds = [['Int8', 'Int8', 1], ['UInt8', 'Uint8', 1], ['Int16', 'Int16', 2], ['UInt16', 'Uint16', 2], ['Int32', 'Int32', 4],
    ['UInt32', 'Uint32', 4], ['Float', 'Float32', 4], ['Double', 'Float64', 8], ['BigInt64', 'BigInt64', 8], ['BigUInt64', 'BigUint64', 8]];
  for (const [name, type, size] of kinds) {
    for (const order of size === 1 ? [''] : ['BE', 'LE']) {
      const read = function (offset) {
        return view(this)['get' + type](offset === undefined ? 0 : offset, order === 'LE');
      };
      const write = function (value, offset) {
        const at = offset === undefined ? 0 : offset;
        view(this)['set' + type](at, value, order === 'LE');
        return at + size;
      };
      for (const called of [name, name.replace('UInt', 'Uint')]) {
        offer(Buffer.prototype, { ['read' + called + order]: read, ['write' + called + order]: write });
      }
    }
  }
  offer(globalThis, { Buffer });
})()
