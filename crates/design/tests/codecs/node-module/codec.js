// A level sensor whose maker keeps the codec as a module of Node, and tests it there.
'use strict';

const UNITS = { 0: 'mm', 1: 'cm', 2: 'm' };

function int16(bytes, at) {
  const value = (bytes[at] << 8) | bytes[at + 1];
  return value > 0x7fff ? value - 0x10000 : value;
}

const codec = {
  decodeUplink({ bytes, fPort }) {
    if (fPort !== 5) return { errors: [`no message of port ${fPort}`] };
    if (bytes.length < 4) return { errors: ['too short'] };
    const [kind, unit] = bytes;
    return {
      data: { kind, level: int16(bytes, 2), unit: UNITS[unit] ?? 'unknown' },
      warnings: bytes.length > 4 ? ['more bytes than expected'] : [],
    };
  },
};

exports.decodeUplink = codec.decodeUplink;
exports.encodeDownlink = undefined;
