// The form of older network servers: the answer is the data itself.
function Decode(fPort, bytes, variables) {
  var hex = bytes.map(function (byte) { return ('0' + byte.toString(16)).slice(-2); }).join('');
  return { port: fPort, hex: hex, parity: bytes.reduce(function (a, b) { return a ^ b; }, 0) };
}
