// A heat meter: ES6 classes, a generator over the bytes, destructuring.
class Reader {
  constructor(bytes) {
    this.view = new DataView(Uint8Array.from(bytes).buffer);
    this.at = 0;
  }

  *floats(count) {
    while (count-- > 0) {
      yield this.view.getFloat32(this.at, true);
      this.at += 4;
    }
  }
}

const round = (value, digits = 2) => Number(value.toFixed(digits));

const decodeUplink = ({ bytes, fPort }) => {
  const reader = new Reader(bytes);
  const [energy, flow, supply] = [...reader.floats(3)].map((value) => round(value));
  return { data: { port: fPort, energy, flow, ...(fPort === 2 ? { supply } : {}) } };
};
