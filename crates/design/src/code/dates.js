// The local time of code is UTC, whatever zone the machine is set to: a codec gives the same everywhere.
// Runs after the prelude.
(function () {
  'use strict';

  const TheDate = Date, { prototype, UTC, parse } = TheDate;
  const { apply, construct } = Reflect, { defineProperty } = Object, { trunc } = Math, { exec } = RegExp.prototype;
  const TheString = String, { slice, padStart } = String.prototype;
  const { getTime, getUTCFullYear, setUTCFullYear, getUTCMonth, getUTCHours, toUTCString } = prototype;
  /** A text of a time is no longer than this: the engine reads no more of it. */
  const TEXT_CHARS_MAX = 120;
  /** A date alone as ISO 8601 writes it, which is midnight in UTC. */
  const DAY = /^(?:\d{4}|[+-]\d{6})(?:-\d\d(?:-\d\d)?)?$/;
  const DAY_AND_TIME = /^(?:\d{4}|[+-]\d{6})-\d\d-\d\dT/;
  /** A time whose text says of which zone it is. */
  const ZONED = /\d\s*(?:[AP]M\s*)?(?:Z|UTC?|GMT|[ECMP][SD]T|[CEW]ES?T)|:\d\d[\d.,]*\s*[+-]\d\d/i;
  const FIELDS = /^(\w+), (\d+) (\w+) (-?\d+) (\d+)(:\d+:\d+) GMT$/;

  function offer(object, name, value) {
    defineProperty(object, name, { value, writable: true, enumerable: false, configurable: true });
  }

  for (const field of ['FullYear', 'Month', 'Date', 'Day', 'Hours', 'Minutes', 'Seconds', 'Milliseconds']) {
    for (const verb of ['get', 'set']) {
      const universal = prototype[verb + 'UTC' + field];
      if (universal) offer(prototype, verb + field, universal);
    }
  }

  /** Parts of a date as texts, from its text in UTC; null if it is no time. */
  function fields(date) {
    return apply(exec, FIELDS, [apply(toUTCString, date, [])]);
  }

  function twoDigits(number) {
    return apply(padStart, TheString(number), [2, '0']);
  }

  const INVALID = 'Invalid Date';
  const inWords = (of) => `${of[1]} ${of[3]} ${of[2]} ${of[4]}`;
  const inDigits = (of, date) => `${twoDigits(apply(getUTCMonth, date, []) + 1)}/${of[2]}/${of[4]}`;
  const onTwelve = (of, date) => {
    const hours = apply(getUTCHours, date, []);
    return `${twoDigits((hours + 11) % 12 + 1)}${of[6]} ${hours < 12 ? 'A' : 'P'}M`;
  };
  const zoned = (of) => `${of[5]}${of[6]} GMT+0000`;
  const methods = {
    getTimezoneOffset() {
      const millis = apply(getTime, this, []);
      return millis === millis ? 0 : millis;
    },
    getYear() { return apply(getUTCFullYear, this, []) - 1900; },
    setYear(year) {
      const whole = trunc(+year);
      return apply(setUTCFullYear, this, [whole >= 0 && whole <= 99 ? 1900 + whole : +year]);
    },
    toString() { const of = fields(this); return of ? `${inWords(of)} ${zoned(of)}` : INVALID; },
    toDateString() { const of = fields(this); return of ? inWords(of) : INVALID; },
    toTimeString() { const of = fields(this); return of ? zoned(of) : INVALID; },
    toLocaleString() { const of = fields(this); return of ? `${inDigits(of, this)}, ${onTwelve(of, this)}` : INVALID; },
    toLocaleDateString() { const of = fields(this); return of ? inDigits(of, this) : INVALID; },
    toLocaleTimeString() { const of = fields(this); return of ? onTwelve(of, this) : INVALID; },
  };
  for (const name of Object.keys(methods)) offer(prototype, name, methods[name]);

  /** The milliseconds of a text: what says no zone is of UTC. */
  function read(given) {
    const text = apply(slice, given, [0, TEXT_CHARS_MAX]);
    if (apply(exec, DAY, [text]) || apply(exec, ZONED, [text])) return parse(text);
    return parse(text + (apply(exec, DAY_AND_TIME, [text]) ? 'Z' : ' GMT'));
  }

  function Local(given) {
    if (new.target === undefined) return apply(methods.toString, new TheDate(), []);
    let values = arguments;
    if (values.length > 1) values = [apply(UTC, TheDate, values)];
    else if (typeof given === 'string') values = [read(given)];
    return construct(TheDate, values, new.target);
  }

  defineProperty(Local, 'name', { value: 'Date' });
  defineProperty(Local, 'length', { value: 7 });
  defineProperty(Local, 'prototype', { value: prototype, writable: false });
  offer(Local, 'UTC', UTC);
  offer(Local, 'now', TheDate.now);
  offer(Local, 'parse', function parse(text) { return read(TheString(text)); });
  offer(prototype, 'constructor', Local);
  offer(globalThis, 'Date', Local);
})()
