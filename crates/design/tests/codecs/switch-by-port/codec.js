// What the bytes mean depends on the port.
function decodeUplink(input) {
  switch (input.fPort) {
    case 1:
      return { data: { kind: 'reading', celsius: input.bytes[0] - 100 } };
    case 2: {
      const text = String.fromCharCode.apply(null, input.bytes);
      return { data: { kind: 'text', text: text.trim() } };
    }
    case 10:
    case 11:
      return { data: { kind: 'alarm', level: input.fPort - 9 } };
    default:
      throw new Error('unknown port ' + input.fPort);
  }
}
