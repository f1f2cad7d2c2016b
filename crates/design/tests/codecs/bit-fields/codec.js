// Fields that do not keep to the borders of bytes.
function bits(bytes, from, count) {
  var value = 0;
  for (var i = from; i < from + count; i++) {
    value = value * 2 + ((bytes[i >> 3] >> (7 - (i & 7))) & 1);
  }
  return value;
}

function decodeUplink(input) {
  var b = input.bytes;
  return {
    data: {
      version: bits(b, 0, 3),
      mode: ['off', 'eco', 'comfort', 'boost'][bits(b, 3, 2)],
      temperature: (bits(b, 5, 11) - 400) / 10,
      serial: bits(b, 16, 33),
    },
  };
}
