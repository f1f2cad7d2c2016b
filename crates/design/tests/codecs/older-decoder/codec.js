// A tracker with the form of The Things Stack v2: bytes first, then the port, and the answer is the data itself.
var EVENTS = ['moved', 'opened', 'tampered', 'lowBattery'];

function int24(bytes, at) {
  // Shifted up, so that the sign comes down again with it.
  return ((bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8)) >> 8;
}

function Decoder(bytes, port) {
  var decoded = {};
  if (port === 1) {
    decoded.latitude = int24(bytes, 0) / 10000;
    decoded.longitude = int24(bytes, 3) / 10000;
    decoded.battery = (1800 + 10 * bytes[6]) / 1000;
    if (bytes.length > 7) decoded.speed = bytes[7];
  } else if (port === 2) {
    decoded.events = EVENTS.filter(function (name, bit) { return bytes[0] & (1 << bit); });
  } else {
    throw new Error('no message of port ' + port);
  }
  return decoded;
}
