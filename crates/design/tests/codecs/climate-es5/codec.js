// Temperature, humidity, battery and a counter in eleven bytes; ES5, with globals as old codecs have them.
function signed16(high, low) {
  var value = (high << 8) | low;
  if (value > 0x7fff) value -= 0x10000;
  return value;
}

function decodeUplink(input) {
  var b = input.bytes;
  if (b.length !== 11) {
    return { errors: ['expected 11 bytes, got ' + b.length] };
  }
  decoded = {};
  decoded.temperature = signed16(b[0], b[1]) / 10;
  decoded.humidity = ((b[2] << 8) | b[3]) / 10;
  decoded.battery = ((b[4] << 8) | b[5]) / 1000;
  decoded.motion = (b[6] & 0x01) === 1;
  decoded.tamper = (b[6] & 0x02) !== 0;
  decoded.count = b[7] * 0x1000000 + (b[8] << 16) + (b[9] << 8) + b[10];
  return { data: decoded, warnings: decoded.battery < 3 ? ['battery is low'] : [] };
}
