// An older form: tables that are members of the global object, and a counter that is changed by both its names.
var FIELDS = [{ name: 'humidity', size: 1, scale: 2 }, { name: 'pressure', size: 2, scale: 10 }];
var read = 0;

(function (root) {
  root.whole = function (bytes, at, size) {
    var value = 0;
    for (var next = 0; next < size; next++) value = value * 256 + bytes[at + next];
    root.read += size;
    return value;
  };
})(this);

function Decoder(bytes, port) {
  var decoded = { port: port };
  for (var index in this.FIELDS) {
    var field = this.FIELDS[index];
    decoded[field.name] = whole(bytes, read, field.size) / field.scale;
  }
  decoded.read = this.read;
  decoded.own = Object.keys(this).indexOf('FIELDS') >= 0;
  return decoded;
}
