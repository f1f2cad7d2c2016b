// Tag, length, value, until the bytes end.
function decodeUplink(input) {
  var data = {}, warnings = [], at = 0;
  while (at < input.bytes.length) {
    var tag = input.bytes[at], length = input.bytes[at + 1];
    if (length === undefined || at + 2 + length > input.bytes.length) {
      return { errors: ['cut off at byte ' + at] };
    }
    var value = input.bytes.slice(at + 2, at + 2 + length);
    var number = value.reduce(function (sum, byte) { return sum * 256 + byte; }, 0);
    if (tag === 0x01) data.battery = number / 100;
    else if (tag === 0x02) data.pulses = number;
    else if (tag === 0x03) data.name = value.map(function (c) { return String.fromCharCode(c); }).join('');
    else warnings.push('unknown tag 0x' + tag.toString(16).padStart(2, '0'));
    at += 2 + length;
  }
  return { data: data, warnings: warnings };
}
