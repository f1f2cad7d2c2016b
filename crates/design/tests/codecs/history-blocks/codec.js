// A frame that carries several readings, newest first, each some minutes older than the one before.
var MINUTES = 15;

function half(bytes, at) {
  var bits = (bytes[at] << 8) | bytes[at + 1];
  var sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * Math.pow(2, -24);
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * Math.pow(2, exponent - 15);
}

function decodeUplink(input) {
  var readings = [];
  for (var at = 0; at + 1 < input.bytes.length; at += 2) {
    var when = new Date(input.recvTime.getTime() - readings.length * MINUTES * 60000);
    readings.push({ at: when.toISOString(), value: half(input.bytes, at) });
  }
  return { data: { readings: readings, count: readings.length } };
}
