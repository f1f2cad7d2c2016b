// Runs in a fresh engine before any code of a project, and gives the functions that the Rust side calls.
// The engine's clock is looked at after every 10,000 loops and calls; so what takes long in one call is bounded here.
(function () {
  'use strict';

  /** Most items of a list that one call goes through. */
  const ITEMS_MAX = 100000;
  /** Longest pattern of a RegExp that is made while code runs. */
  const PATTERN_CHARS_MAX = 2000;
  /** Characters and items that all calls of one run go through together. */
  const WORK_MAX = 20000000;
  /** Errors and warnings that are told, and how much of each. */
  const MESSAGES_MAX = 32;
  const MESSAGE_CHARS_MAX = 1000;

  const { apply, construct, deleteProperty, ownKeys, getPrototypeOf, getOwnPropertyDescriptor, isExtensible } = Reflect;
  const { create, defineProperty, freeze, setPrototypeOf } = Object;
  const { isArray } = Array;
  const { stringify } = JSON;
  // Code may call names of its own like the built-in ones: nothing here looks these up later.
  const theGlobal = globalThis, TheObject = Object, TheDataView = DataView, { is } = Object, { isView } = ArrayBuffer;
  const isSpreadable = Symbol.isConcatSpreadable, iterator = Symbol.iterator;
  const overridable = [Object, Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError].map((it) => it.prototype);
  const TheString = String, TheError = Error, TheDate = Date, TheRegExp = RegExp, TheMap = Map, TheSet = Set;
  const TheRangeError = RangeError, TheTypeError = TypeError;
  const { slice, toWellFormed: wellFormed } = String.prototype;
  const push = Array.prototype.push;
  const TypedArray = getPrototypeOf(Uint8Array);
  const typedLength = getOwnPropertyDescriptor(TypedArray.prototype, 'length').get;

  let left = WORK_MAX;

  function work(units) {
    left -= units;
    if (!(left >= 0)) {
      left = -1;
      throw new TheRangeError('too much work');
    }
  }

  /** Charges for a list, whose length must be a plain number: a getter could tell the engine another one. */
  function list(value) {
    if (typeof value === 'string') return work(value.length);
    let length;
    if (isArray(value)) {
      length = value.length;
    } else {
      const own = getOwnPropertyDescriptor(TheObject(value), 'length');
      if (own) length = typeof own.value === 'number' ? own.value : Infinity;
      else if (isView(value) && !(value instanceof TheDataView)) length = apply(typedLength, value, []);
      else if (!('length' in TheObject(value))) length = 0;
      else length = Infinity;
    }
    if (length > ITEMS_MAX) throw new TheRangeError('a list has more than ' + ITEMS_MAX + ' items');
    work(length);
  }

  function hide(object, name, value) {
    defineProperty(object, name, { value, writable: true, enumerable: false, configurable: true });
  }

  /** Puts a function in the place of a built-in one; `make` gets the built-in one. */
  function wrap(object, name, make) {
    const own = getOwnPropertyDescriptor(object, name);
    if (!own || typeof own.value !== 'function') return;
    const wrapped = make(own.value);
    defineProperty(wrapped, 'name', { value: own.value.name });
    defineProperty(wrapped, 'length', { value: own.value.length });
    hide(object, name, wrapped);
  }

  /** Charges for the comparisons with what is sought in a list that was charged for. */
  function compared(value, length) {
    if (typeof value === 'string') work((length * value.length) / 16);
    else if (typeof value === 'bigint') work(1000 * length);
  }

  function wrapLists() {
    const over = ['copyWithin', 'every', 'fill', 'filter', 'find', 'findIndex', 'findLast', 'findLastIndex', 'forEach',
      'join', 'map', 'reduce', 'reduceRight', 'reverse', 'shift', 'slice', 'some',
      'splice', 'toLocaleString', 'toReversed', 'toSpliced', 'unshift', 'with'];
    for (const name of over) {
      wrap(Array.prototype, name, (native) => function () {
        list(this);
        return apply(native, this, arguments);
      });
    }
    for (const name of ['includes', 'indexOf', 'lastIndexOf']) {
      wrap(Array.prototype, name, (native) => function (sought) {
        list(this);
        compared(sought, isArray(this) ? this.length : ITEMS_MAX);
        return apply(native, this, arguments);
      });
    }
    for (const name of ['sort', 'toSorted']) {
      wrap(Array.prototype, name, (native) => function () {
        list(this);
        work(20 * this.length);
        return apply(native, this, arguments);
      });
    }
    wrap(Array.prototype, 'concat', (native) => function () {
      list(this);
      for (let at = 0; at < arguments.length; at++) {
        const value = arguments[at];
        if (isArray(value) || (typeof value === 'object' && value !== null && value[isSpreadable])) list(value);
      }
      return apply(native, this, arguments);
    });
    wrap(Array.prototype, 'flat', () => function (depth) {
      const items = [];
      flatten(this, depth === undefined ? 1 : +depth, items);
      return items;
    });
    wrap(Array.prototype, 'flatMap', () => function (make, self) {
      list(this);
      const items = [];
      for (let at = 0; at < this.length; at++) {
        if (!(at in this)) continue;
        const made = apply(make, self, [this[at], at, this]);
        if (isArray(made)) flatten(made, 0, items);
        else push.call(items, made);
      }
      return items;
    });
    for (const name of ['copyWithin', 'fill', 'includes', 'indexOf', 'join', 'lastIndexOf', 'reverse', 'set', 'slice',
      'toLocaleString', 'toReversed', 'with']) {
      wrap(TypedArray.prototype, name, (native) => function () {
        work(apply(typedLength, this, []));
        return apply(native, this, arguments);
      });
    }
    for (const name of ['sort', 'toSorted']) {
      wrap(TypedArray.prototype, name, (native) => function () {
        work(20 * apply(typedLength, this, []));
        return apply(native, this, arguments);
      });
    }
  }

  function flatten(value, depth, items) {
    list(value);
    for (let at = 0; at < value.length; at++) {
      if (!(at in value)) continue;
      const item = value[at];
      if (depth > 0 && isArray(item)) flatten(item, depth - 1, items);
      else push.call(items, item);
    }
  }

  function wrapTexts() {
    const text = (value) => {
      if (value === undefined || value === null) throw new TheTypeError('not a string');
      return typeof value === 'string' ? value : TheString(value);
    };
    for (const name of ['indexOf', 'lastIndexOf', 'includes']) {
      wrap(String.prototype, name, (native) => function (sought, from) {
        const subject = text(this), needle = TheString(sought);
        work(subject.length * (needle.length || 1));
        return arguments.length > 1 ? apply(native, subject, [needle, from]) : apply(native, subject, [needle]);
      });
    }
    for (const name of ['split', 'replace', 'replaceAll', 'match', 'matchAll', 'search']) {
      wrap(String.prototype, name, (native) => function () {
        const subject = text(this), given = [];
        for (let at = 0; at < arguments.length; at++) push.call(given, arguments[at]);
        const [sought] = given;
        if (sought instanceof TheRegExp || sought === undefined || sought === null) {
          work(8 * subject.length);
        } else {
          given[0] = TheString(sought);
          work(subject.length * (given[0].length || 1));
        }
        return apply(native, subject, given);
      });
    }
    wrap(String.prototype, 'repeat', (native) => function (count) {
      const subject = text(this), times = +count;
      work(subject.length * times > 0 ? subject.length * times : 1);
      return apply(native, subject, [times]);
    });
    for (const name of ['padStart', 'padEnd']) {
      wrap(String.prototype, name, (native) => function (length, filler) {
        const subject = text(this), wanted = +length;
        work(wanted > 0 ? wanted : 1);
        return filler === undefined ? apply(native, subject, [wanted]) : apply(native, subject, [wanted, TheString(filler)]);
      });
    }
    for (const name of ['normalize', 'localeCompare']) {
      wrap(String.prototype, name, (native) => function () {
        const subject = text(this);
        work((subject.length * subject.length) / 64 + 1);
        if (name === 'localeCompare') {
          const other = TheString(arguments[0]);
          work((other.length * other.length) / 64 + 1);
          return apply(native, subject, [other]);
        }
        return apply(native, subject, arguments);
      });
    }
  }

  function wrapRest() {
    for (const name of ['assign', 'entries', 'values', 'keys', 'getOwnPropertyNames', 'getOwnPropertyDescriptors', 'defineProperties',
      'freeze', 'isFrozen', 'seal', 'isSealed']) {
      wrap(Object, name, (native) => function () {
        for (let at = 0; at < arguments.length; at++) {
          const value = arguments[at];
          if (typeof value === 'object' && value !== null) work(10 * ownKeys(value).length);
        }
        return apply(native, TheObject, arguments);
      });
    }
    wrap(String, 'raw', (native) => function (strings) {
      const { raw } = strings;
      list(raw);
      const given = [{ raw }];
      for (let at = 1; at < arguments.length; at++) push.call(given, arguments[at]);
      return apply(native, this, given);
    });
    wrap(JSON, 'stringify', (native) => function (value, replacer, space) {
      if (isArray(replacer)) list(replacer);
      const json = native(value, replacer, space);
      if (typeof json === 'string') work(10 * json.length);
      return json;
    });
    wrap(JSON, 'parse', (native) => function (text, reviver) {
      const json = TheString(text);
      work(10 * json.length);
      return reviver === undefined ? native(json) : native(json, reviver);
    });
    const Pattern = function RegExp(pattern, flags) {
      const source = pattern instanceof TheRegExp ? TheString(pattern.source) : pattern === undefined ? '' : TheString(pattern);
      const marks = flags === undefined ? (pattern instanceof TheRegExp ? TheString(pattern.flags) : '') : TheString(flags);
      if (source.length > PATTERN_CHARS_MAX) throw new TheRangeError('a pattern has more than ' + PATTERN_CHARS_MAX + ' characters');
      work(2000 + 100 * source.length);
      return construct(TheRegExp, [source === '' ? '(?:)' : source, marks], new.target || Pattern);
    };
    hide(Pattern, Symbol.species, Pattern);
    defineProperty(Pattern, 'prototype', { value: TheRegExp.prototype, writable: false });
    hide(TheRegExp.prototype, 'constructor', Pattern);
    delete TheRegExp.prototype.compile;
    hide(globalThis, 'RegExp', Pattern);
  }

  /** Takes away what makes code of text, what waits, what keeps something for a later run, and what shows the machine. */
  function takeAway() {
    const samples = [function () {}, function* () {}, async function () {}, async function* () {}];
    for (const sample of samples) {
      const prototype = getPrototypeOf(sample);
      const refusing = function Function() {
        throw new TheTypeError('code cannot be made of text');
      };
      defineProperty(refusing, 'prototype', { value: prototype, writable: false });
      defineProperty(prototype, 'constructor', { value: refusing, writable: true, enumerable: false, configurable: true });
      if (prototype === Function.prototype) hide(globalThis, 'Function', refusing);
    }
    for (const name of ['eval', 'Atomics', 'SharedArrayBuffer', 'WeakRef', 'FinalizationRegistry', 'Proxy', 'queueMicrotask',
      'performance', 'navigator', 'gc', 'Iterator']) {
      delete globalThis[name];
    }
    for (const name of ['prepareStackTrace', 'stackTraceLimit', 'captureStackTrace']) delete Error[name];
    delete Array.fromAsync;
    delete getPrototypeOf(getPrototypeOf([][Symbol.iterator]())).drop;
    const silent = {};
    for (const name of ['log', 'info', 'warn', 'error', 'debug', 'trace']) hide(silent, name, function () {});
    hide(globalThis, 'console', silent);
  }

  /** Every object that comes with the engine. */
  function builtIns() {
    const seen = new TheSet(), waiting = [];
    const meet = (value) => {
      if ((typeof value === 'object' && value !== null) || typeof value === 'function') {
        if (value !== theGlobal && !seen.has(value)) {
          seen.add(value);
          waiting.push(value);
        }
      }
    };
    const members = (object) => {
      meet(getPrototypeOf(object));
      for (const key of ownKeys(object)) {
        const own = getOwnPropertyDescriptor(object, key);
        meet(own.value);
        meet(own.get);
        meet(own.set);
      }
    };
    members(theGlobal);
    for (let at = 0; at < replaced.length; at++) meet(replaced[at].own.value);
    // Those that no name leads to.
    [function* () {}, async function () {}, async function* () {}, [][iterator](), ''[iterator](),
      new TheMap()[iterator](), new TheSet()[iterator](), ''.matchAll(/a/g)].forEach((it) => meet(getPrototypeOf(it)));
    while (waiting.length > 0) members(waiting.pop());
    return seen;
  }

  /** What the built-in objects look like, so that a change shows. */
  function picture() {
    const objects = builtIns(), shown = new TheMap();
    for (const object of objects) {
      const members = ownKeys(object).map((key) => {
        const own = getOwnPropertyDescriptor(object, key);
        return [key, own.value, own.get, own.set];
      });
      shown.set(object, members);
    }
    return shown;
  }

  function isSame(before, after) {
    if (before.size !== after.size) return false;
    for (const [object, members] of before) {
      const others = after.get(object);
      if (!others || others.length !== members.length) return false;
      for (let at = 0; at < members.length; at++) {
        for (let part = 0; part < 4; part++) if (!is(members[at][part], others[at][part])) return false;
      }
    }
    return true;
  }

  /** Lets objects have members of their own that are called like one of a frozen prototype. */
  function letOverride(prototype) {
    for (const name of ownKeys(prototype)) {
      const own = getOwnPropertyDescriptor(prototype, name);
      if (!own.configurable || !('value' in own) || typeof name === 'symbol') continue;
      const value = own.value;
      defineProperty(prototype, name, {
        get() { return value; },
        set(replaced) {
          if (this === prototype || typeof this !== 'object' && typeof this !== 'function') return;
          defineProperty(this, name, { value: replaced, writable: true, enumerable: true, configurable: true });
        },
        enumerable: own.enumerable,
        configurable: false,
      });
    }
  }

  /** Once the engine is sealed: the names that the global object keeps, and the object beneath it that holds the others. */
  let known, names;

  /** From here on the built-in objects stay as they are. */
  function seal() {
    overridable.forEach(letOverride);
    // What a run leaves in the global object is then all that it finds there, and quickly seen.
    names = create(TheObject.prototype);
    replaced.forEach(({ name, own }) => defineProperty(names, name, own));
    for (const key of ownKeys(theGlobal)) {
      const own = getOwnPropertyDescriptor(theGlobal, key);
      if (own.configurable) {
        defineProperty(names, key, own);
        deleteProperty(theGlobal, key);
      }
    }
    setPrototypeOf(theGlobal, names);
    known = new TheSet(ownKeys(theGlobal));
    for (const object of builtIns()) freeze(object);
  }

  /** How the run that is under way reads and writes the names which its code shares with the global object. */
  let read, write;
  /** Built-in objects whose names the code declares, by its place among the names. */
  const replaced = [];

  /** The global object has the names that a script declares, as long as the engine is there. */
  function share(shared) {
    for (let at = 0; at < shared.length; at++) {
      const name = shared[at], own = getOwnPropertyDescriptor(theGlobal, name);
      if (own) push.call(replaced, { at, name, own });
      defineProperty(theGlobal, name, {
        get() { return read === undefined ? undefined : read(at); },
        set(value) { if (write !== undefined) write(at, value); },
        enumerable: true,
        configurable: false,
      });
    }
  }

  /** What the code calls before its own first statement. As in a script, `var` leaves a built-in object what it is. */
  function begin(reads, writes) {
    read = reads;
    write = writes;
    for (let at = 0; at < replaced.length; at++) {
      const { at: place, own } = replaced[at];
      if (read(place) === undefined) write(place, own.value);
    }
  }

  /** Whether nothing is left of a run in the global object. */
  function swept() {
    const keys = ownKeys(theGlobal);
    for (let at = 0; keys.length > known.size && at < keys.length; at++) {
      if (!known.has(keys[at]) && !deleteProperty(theGlobal, keys[at])) return false;
    }
    return getPrototypeOf(theGlobal) === names && isExtensible(theGlobal);
  }

  function told(value) {
    const text = typeof value === 'string' ? value : value instanceof TheError ? TheString(value) : stringify(value) || TheString(value);
    return apply(wellFormed, apply(slice, text, [0, MESSAGE_CHARS_MAX]), []);
  }

  /** The messages of `errors` and `warnings`, as JSON; undefined if there are none. */
  function messages(given) {
    if (given === undefined || given === null || given === '' || given === false) return undefined;
    if (!isArray(given)) return stringify([told(given)]);
    const texts = [];
    for (let at = 0; at < given.length && texts.length < MESSAGES_MAX; at++) {
      // Some codecs put the list of a part into their own.
      const items = isArray(given[at]) ? given[at] : [given[at]];
      for (let each = 0; each < items.length && texts.length < MESSAGES_MAX; each++) push.call(texts, told(items[each]));
    }
    return texts.length === 0 ? undefined : stringify(texts);
  }

  /** The JSON of the data; or an array: that or undefined, and the JSON of the errors, and of the warnings. */
  function answered(answer, isDecodeUplink) {
    if (typeof answer !== 'object' || answer === null) throw new TheTypeError('the answer is no object');
    if (typeof answer.then === 'function') throw new TheTypeError('the answer is a promise');
    if (!isDecodeUplink) return stringify(answer);
    const warnings = messages(answer.warnings), errors = messages(answer.errors);
    if (errors !== undefined) return [undefined, errors, warnings];
    const data = stringify(answer.data);
    if (data === undefined) throw new TheTypeError('the answer has no data');
    return warnings === undefined ? data : [data, undefined, warnings];
  }

  /**
   * The JSON of the data, if there is nothing more to say. Else an array: the JSON of the data, of the errors and of the
   * warnings, what was thrown, and whether the engine is as it was.
   */
  function call(load, entry, fPort, millis, ...bytes) {
    left = WORK_MAX;
    let result;
    try {
      // As in a script, `this` of the top level is the global object, strict or not.
      const decode = apply(load, theGlobal, [begin]);
      const answer = entry === 0 ? decode({ bytes, fPort, recvTime: new TheDate(millis), variables: {} })
        : entry === 1 ? decode(fPort, bytes, {}) : decode(bytes, fPort);
      result = answered(answer, entry === 0);
    } catch (thrown) {
      result = [undefined, undefined, undefined, told(thrown)];
    }
    left = WORK_MAX;
    read = write = undefined;
    const isClean = known !== undefined && swept();
    if (typeof result === 'string' && isClean) return result;
    if (!isArray(result)) result = [result];
    result[4] = isClean;
    return result;
  }

  takeAway();
  wrapLists();
  wrapTexts();
  wrapRest();
  const before = { of: null };
  return {
    call,
    seal,
    share,
    begin,
    look() { before.of = picture(); },
    looksTheSame() { left = WORK_MAX; return isSame(before.of, picture()); },
  };
})()
