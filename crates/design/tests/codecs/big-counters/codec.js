// Counters of 64 bits, as text where a number would lose digits.
function decodeUplink(input) {
  let total = 0n;
  for (const byte of input.bytes.slice(0, 8)) total = (total << 8n) | BigInt(byte);
  const signed = BigInt.asIntN(64, total);
  return { data: { total: total.toString(), signed: signed.toString(), safe: total <= BigInt(Number.MAX_SAFE_INTEGER) } };
}
