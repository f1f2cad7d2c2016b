// A logger that counts seconds from the beginning of 2000, and whose times are written by hand, as local ones.
var BEGIN = new Date(2000, 0, 1).getTime();

function two(number) {
  return (number < 10 ? '0' : '') + number;
}

function written(date) {
  return date.getFullYear() + '-' + two(date.getMonth() + 1) + '-' + two(date.getDate()) + ' ' + two(date.getHours()) + ':' +
    two(date.getMinutes()) + ':' + two(date.getSeconds());
}

function decodeUplink(input) {
  var b = input.bytes;
  var taken = new Date(BEGIN + 1000 * (((b[0] << 24) | (b[1] << 16) | (b[2] << 8) | b[3]) >>> 0));
  var midnight = new Date(taken);
  midnight.setHours(0, 0, 0, 0);
  return {
    data: {
      taken: written(taken),
      midnight: midnight,
      weekday: taken.getDay(),
      offset: taken.getTimezoneOffset(),
      age: (new Date(2024, 2, 31, 12, 30) - Date.parse(written(taken))) / 1000,
      read: [new Date(written(taken).replace(' ', 'T')), new Date('2024-02-29'), new Date('2024-02-29T12:00:00+02:00')],
      texts: [taken.toString(), taken.toDateString(), taken.toLocaleString(), taken.toLocaleTimeString()],
      received: written(input.recvTime),
    },
  };
}
