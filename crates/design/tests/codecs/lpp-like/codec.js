// Channels with typed values, as Cayenne LPP lays them out.
var TYPES = {
  0x00: { name: 'digital', size: 1 },
  0x02: { name: 'analog', size: 2, signed: true, divisor: 100 },
  0x67: { name: 'temperature', size: 2, signed: true, divisor: 10 },
  0x68: { name: 'humidity', size: 1, divisor: 2 },
  0x88: { name: 'gps', size: 9 },
};

function number(bytes, signed) {
  var value = 0;
  for (var i = 0; i < bytes.length; i++) value = value * 256 + bytes[i];
  if (signed && bytes[0] & 0x80) value -= Math.pow(2, 8 * bytes.length);
  return value;
}

function decodeUplink(input) {
  var data = {}, bytes = input.bytes, i = 0;
  while (i < bytes.length) {
    var channel = bytes[i++], type = TYPES[bytes[i++]];
    if (!type) throw new Error('unknown type at ' + (i - 1));
    var raw = bytes.slice(i, (i += type.size));
    if (type.name === 'gps') {
      data['gps_' + channel] = {
        latitude: number(raw.slice(0, 3), true) / 10000,
        longitude: number(raw.slice(3, 6), true) / 10000,
        altitude: number(raw.slice(6, 9), true) / 100,
      };
    } else {
      data[type.name + '_' + channel] = number(raw, type.signed) / (type.divisor || 1);
    }
  }
  return { data: data };
}
