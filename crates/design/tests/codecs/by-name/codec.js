// Functions of the top level, found by their names: of the port, and of the kinds of values in a frame.
'use strict';

var scope = this;

function port_1(bytes) {
  var found = {};
  for (var at = 0; at < bytes.length;) {
    var kind = 'kind_' + bytes[at].toString(16);
    if (!globalThis.hasOwnProperty(kind)) return { errors: ['no ' + kind] };
    at += 1 + globalThis[kind](found, bytes, at + 1);
  }
  return { data: found };
}

var port_2 = function (bytes) {
  return { data: { version: scope['VERSIONS'][bytes[0]] || null } };
};

var VERSIONS = ['first', 'second'];

function kind_a(found, bytes, at) {
  found.temperature = ((bytes[at] << 24 >> 16) | bytes[at + 1]) / 10;
  return 2;
}

function kind_b(found, bytes, at) {
  found.battery = bytes[at] / 100;
  return 1;
}

function decodeUplink(input) {
  var decode = scope['port_' + input.fPort];
  return typeof decode === 'function' ? decode(input.bytes) : { errors: ['no port ' + input.fPort] };
}
