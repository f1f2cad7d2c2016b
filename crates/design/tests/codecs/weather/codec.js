// A weather station's eleven bytes, in the plain way of most codecs; the benchmarks measure with it.
function decodeUplink(input) {
  var b = input.bytes;
  if (b.length !== 11) return {errors: ['11 bytes are expected']};
  var temperature = (b[0] << 8) | b[1];
  if (temperature & 0x8000) temperature -= 0x10000;
  return {data: {
    temperature: temperature / 100,
    humidity: b[2] / 2,
    pressure: ((b[3] << 8) | b[4]) / 10,
    light: (b[5] << 8) | b[6],
    pulses: (b[7] << 8) | b[8],
    open: (b[9] & 1) === 1,
    battery: 2 + b[10] / 100,
  }};
}
