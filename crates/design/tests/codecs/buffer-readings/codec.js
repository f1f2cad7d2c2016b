// A weather station in the manner of ChirpStack: a Buffer over the bytes, and the device's variables with defaults.
function decodeUplink(input) {
  var buffer = Buffer.from(input.bytes);
  var scale = Number(input.variables.scale || 100);
  if (buffer.readUInt8(0) === 0x7b) return { data: JSON.parse(buffer.toString()) };
  var result = {
    serial: buffer.slice(0, 4).toString('hex').toUpperCase(),
    temperature: buffer.readInt16BE(4) / scale,
    rain: buffer.readUIntLE(6, 3),
    pressure: Number(buffer.readFloatLE(9).toFixed(1)),
  };
  if (buffer.length > 13) result.name = buffer.toString('utf8', 13);
  return { data: result };
}
