'use strict';
// Fields from a table; strict mode, arrow functions, template texts.
const FIELDS = Object.freeze([
  { key: 'pressure', from: 0, to: 3, scale: 0.01 },
  { key: 'co2', from: 3, to: 5, scale: 1 },
  { key: 'light', from: 5, to: 7, scale: 10 },
]);

const unsigned = (bytes, { from, to }) => bytes.slice(from, to).reduce((sum, byte) => (sum << 8) | byte, 0) >>> 0;

function decodeUplink(input) {
  const data = Object.fromEntries(FIELDS.map((field) => [field.key, +(unsigned(input.bytes, field) * field.scale).toFixed(2)]));
  data.label = `${data.pressure} hPa, ${data.co2} ppm`;
  data.at = input.recvTime.toISOString().slice(0, 10);
  return { data };
}
