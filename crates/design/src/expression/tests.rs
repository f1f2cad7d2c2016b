//! Tests of what expressions return and what they refuse.

use crate::tests::Scene;

const PAYLOAD: &str = r#"{"temp":8.10,"n":7,"zero":0,"big":12345678901234567890,"s":"Grüße","on":true,"nothing":null,
    "list":[3,1,2],"mixed":[1,"a",null],"texts":["a","b"],"map":{"a":1,"b":{"c":"d"}},"at":"2026-03-04T05:06:07.089Z","neg":-7}"#;

/// Returns the JSON of an expression, or `!` and its error.
fn gives(expression: &str) -> String {
    let scene = Scene::transforming(expression)
        .with_setting("label", r#""x""#)
        .with_last("readings", r#"{"temp":4,"deep":{"a":[1]}}"#);
    let outcome = scene.post(PAYLOAD);
    match (outcome.effects.first(), outcome.errors.first()) {
        (Some(crate::Effect::Store { value, .. }), None) => value.text().to_owned(),
        (None, Some(error)) => format!("!{}", error.message),
        other => panic!("{other:?}"),
    }
}

fn table(rows: &[(&str, &str)]) {
    for (expression, expected) in rows {
        assert_eq!(gives(expression), *expected, "{expression}");
    }
}

#[test]
fn literals() {
    table(&[
        ("1", "1"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("0x1F", "31"),
        ("5u", "5"),
        ("1.5e3", "1500.0"),
        ("'it\\'s'", r#""it's""#),
        ("\"\\u00e9\\n\"", r#""é\n""#),
        ("r'\\d'", r#""\\d""#),
        ("'''a'b'''", r#""a'b""#),
        ("true", "true"),
        ("null", "null"),
        ("[1, 'a', [null]]", r#"[1,"a",[null]]"#),
        ("{'a': 1, \"b\": [2]}", r#"{"a":1,"b":[2]}"#),
        ("{1: 'a', true: 'b'}", r#"{"1":"a","true":"b"}"#),
        ("[]", "[]"),
        ("{}", "{}"),
        ("1 // a comment", "1"),
        ("[ // a comment\n 1\t,\r\n\u{c}2 // another\n ]", "[1,2]"),
    ]);
}

#[test]
fn variables_of_expressions() {
    table(&[
        ("payload.temp", "8.10"),
        ("payload['map'].b.c", r#""d""#),
        ("payload.big", "12345678901234567890"),
        ("event.payload.n", "7"),
        ("event.id", r#""01890a5d-ac96-774b-bcce-b302099a8059""#),
        ("event.elementName", r#""in""#),
        ("event.receivedAt", r#""2026-03-04T05:06:07.089Z""#),
        ("event.receivedAt.getFullYear()", "2026"),
        ("timestamp(event.receivedAt) == timestamp(payload.at)", "true"),
        ("event.size()", "4"),
        ("device.id", r#""01890a5d-ac96-774b-bcce-b302099a8057""#),
        ("device.name + '!'", r#""fridge!""#),
        ("device.organizationId", r#""01890a5d-ac96-774b-bcce-b302099a8058""#),
        ("device.meta.floor + 1", "4"),
        ("device.meta", r#"{"site":"north","floor":3}"#),
        ("device.statusInt", "1"),
        ("[none, good, info, warning, critical, missing]", "[0,1,2,3,4,5]"),
        ("settings.limit", "8"),
        ("settings['label']", r#""x""#),
        ("settings", r#"{"label":"x","limit":8}"#),
        ("last.readings.temp", "4"),
        ("last.readings.deep.a[0]", "1"),
        ("last", r#"{"readings":{"temp":4,"deep":{"a":[1]}}}"#),
        ("last.out", "{}"),
        ("has(last.out)", "false"),
        ("has(last.readings)", "true"),
        ("has(last.readings.hum)", "false"),
        (".payload.n", "7"),
        ("payload.absent", "!no such key 'absent'"),
        ("payload.n.x", "!cannot take 'x' of a value of type int"),
        ("device.meta.absent", "!no such key 'absent'"),
    ]);
}

#[test]
fn arithmetic_mixes_ints_and_doubles() {
    table(&[
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("7 / 2.0", "3.5"),
        ("payload.n + 0.5", "7.5"),
        ("payload.n * 2", "14"),
        ("payload.n + 1 == 8.0", "true"),
        ("payload.temp * 10 > 80", "true"),
        ("5.5 % 2", "1.5"),
        ("1 + 2 * 3 - 4", "3"),
        ("-payload.n", "-7"),
        ("-payload.temp", "-8.1"),
        ("--payload.n", "7"),
        ("payload.big + 1", "1.2345678901234567e19"),
        ("9223372036854775807 + 1", "!integer overflow"),
        ("-9223372036854775808 / -1", "!integer overflow"),
        ("-(-9223372036854775808)", "!integer overflow"),
        ("1 / 0", "!division by zero"),
        ("1 % payload.zero", "!division by zero"),
        ("'a' + 'b' + payload.s", r#""abGrüße""#),
        ("payload.list + [4]", "[3,1,2,4]"),
        ("1 + 'a'", "!no such overload: int + string"),
        ("payload.nothing + 1", "!no such overload: null_type + int"),
        ("true - true", "!no such overload: bool - bool"),
    ]);
}

#[test]
fn comparison_and_equality() {
    table(&[
        ("1 < 1.5", "true"),
        ("2.0 >= 2", "true"),
        ("9007199254740993 > 9007199254740992.0", "true"),
        ("9223372036854775807 < 9223372036854775808.0", "true"),
        ("payload.big > 9223372036854775807", "true"),
        ("'a' < 'b'", "true"),
        ("'Z' < 'a'", "true"),
        ("false < true", "true"),
        ("1 == 1.0", "true"),
        ("1 == '1'", "false"),
        ("1 != '1'", "true"),
        ("null == null", "true"),
        ("payload.nothing == null", "true"),
        ("[1, 2.0] == [1.0, 2]", "true"),
        ("[1] == [1, 2]", "false"),
        ("{'a': 1, 'b': 2} == {'b': 2.0, 'a': 1}", "true"),
        ("payload.map == {'b': {'c': 'd'}, 'a': 1}", "true"),
        ("payload.map == payload.list", "false"),
        ("payload.big == payload.big", "true"),
        ("1 < 'a'", "!no such overload: int < string"),
        ("payload.s >= payload.n", "!no such overload: string >= int"),
        ("[1] < [2]", "!no such overload: list < list"),
        ("null > 1", "!no such overload: null_type > int"),
        ("payload.zero / 1.0 / 0.0 == 1.0", "false"),
    ]);
}

#[test]
fn membership_and_items() {
    table(&[
        ("1 in payload.list", "true"),
        ("1.0 in [1, 2]", "true"),
        ("'z' in payload.texts", "false"),
        ("'a' in payload.map", "true"),
        ("'z' in {'y': 1}", "false"),
        ("2 in {1: 'a', 2: 'b'}", "true"),
        ("'a' in 'abc'", "!no such overload: string in string"),
        ("payload.list[0]", "3"),
        ("payload.list[2.0]", "2"),
        ("[1, 2][1]", "2"),
        ("{1: 'a', 2: 'b'}[payload.list[2]]", r#""b""#),
        ("{1: 'a'}[5]", "!no such key 5"),
        ("payload.list[3]", "!index 3 is out of range"),
        ("payload.list[-1]", "!index -1 is out of range"),
        ("payload.list['a']", "!a list has no index of type string"),
        ("payload.n[0]", "!a value of type int has no items"),
        ("payload.map['z']", "!no such key 'z'"),
        ("has(payload.map.a)", "true"),
        ("has(payload.map.z)", "false"),
        ("has(payload.nothing)", "true"),
        ("has(payload.z.a)", "!no such key 'z'"),
        ("has(payload.n.a)", "!cannot look for 'a' in a value of type int"),
        ("has(settings.limit) && !has(settings.other) && has(device.meta) && !has(event.x)", "true"),
        ("{'a': 1, 'a': 2}", "!a map has the same key twice"),
        ("{1: 1, 1.0: 2}", "!a map has the same key twice"),
        ("{1: 1, '1': 2}", "!two keys of a map are written '1'"),
        ("{1.5: 1}", "!a map has no key of type double"),
    ]);
}

#[test]
fn logic_absorbs_errors() {
    table(&[
        ("true && false", "false"),
        ("!payload.on || payload.n == 7", "true"),
        ("payload.z > 1 && false", "false"),
        ("false && payload.z > 1", "false"),
        ("payload.z > 1 || true", "true"),
        ("payload.z > 1 && true", "!no such key 'z'"),
        ("payload.z > 1 || payload.y > 1", "!no such key 'z'"),
        ("payload.n || false", "!expected a bool, got a value of type int"),
        ("payload.n && false", "false"),
        ("1 / 0 > 0 || true", "true"),
        ("!payload.n", "!expected a bool, got a value of type int"),
        ("payload.on ? 'yes' : payload.z", r#""yes""#),
        ("payload.n ? 1 : 2", "!expected a bool, got a value of type int"),
        ("false ? 1 : true ? 2 : 3", "2"),
    ]);
}

#[test]
fn macros() {
    table(&[
        ("payload.list.all(x, x > 0)", "true"),
        ("payload.list.all(x, x > 1)", "false"),
        ("payload.mixed.all(x, x > 1)", "false"),
        ("payload.mixed.exists(x, x == 'a')", "true"),
        ("payload.mixed.exists(x, x > 5)", "!no such overload: string > int"),
        ("payload.list.exists_one(x, x > 2)", "true"),
        ("payload.list.exists_one(x, x > 1)", "false"),
        ("payload.list.filter(x, x > 1)", "[3,2]"),
        ("payload.list.map(x, x * 2.5)", "[7.5,2.5,5.0]"),
        ("payload.list.map(x, x > 1, x * 10)", "[30,20]"),
        ("payload.map.map(k, k)", r#"["a","b"]"#),
        ("payload.map.exists(k, k == 'b')", "true"),
        ("[[1, 2], [3]].map(x, x.map(y, [size(x), y]))", "[[[2,1],[2,2]],[[1,3]]]"),
        ("[1, 2].map(payload, payload + 1)", "[2,3]"),
        ("[].all(x, x)", "true"),
        ("[].exists(x, x)", "false"),
        ("payload.n.all(x, true)", "!a value of type int has no items"),
        ("payload.list.filter(x, x)", "!expected a bool, got a value of type int"),
    ]);
}

#[test]
fn functions_of_texts() {
    table(&[
        ("size(payload.s)", "5"),
        ("payload.s.size()", "5"),
        ("payload.s.contains('üß')", "true"),
        ("payload.s.startsWith('Gr')", "true"),
        ("payload.s.endsWith('e')", "true"),
        ("payload.s.matches('^Gr.{2}e$')", "true"),
        ("matches(payload.s, 'x')", "false"),
        ("'aBç'.upperAscii() + 'aBÇ'.lowerAscii()", r#""ABçabÇ""#),
        ("' a '.trim()", r#""a""#),
        ("'a,b,c'.split(',')", r#"["a","b","c"]"#),
        ("'a,b,c'.split(',', 2)", r#"["a","b,c"]"#),
        ("'aéb'.split('')", r#"["a","é","b"]"#),
        ("payload.texts.join('-') + payload.texts.join()", r#""a-bab""#),
        ("'banana'.replace('an', 'o') + 'banana'.replace('a', 'o', 1)", r#""booabonana""#),
        ("payload.s.substring(2) + payload.s.substring(0, 2)", r#""üßeGr""#),
        ("payload.s.substring(5)", r#""""#),
        ("payload.s.substring(6)", "!index 6 is out of range"),
        ("payload.s.substring(3, 2)", "!a substring ends before it begins"),
        ("payload.s.indexOf('ß')", "3"),
        ("'abab'.indexOf('b', 2)", "3"),
        ("'abab'.indexOf('z')", "-1"),
        ("'abab'.lastIndexOf('ab')", "2"),
        ("'abab'.lastIndexOf('ab', 1)", "0"),
        ("'ßaßb'.lastIndexOf('ß', 1)", "0"),
        ("'ab'.lastIndexOf('', 1)", "1"),
        ("'ab'.lastIndexOf('a', 3)", "!index 3 is out of range"),
        ("payload.s.charAt(2) + payload.s.charAt(5)", r#""ü""#),
        ("payload.s.charAt(6)", "!index 6 is out of range"),
        ("payload.s.charAt(-1)", "!index -1 is out of range"),
        ("payload.n.trim()", "!no such overload: trim(int)"),
        ("['a', 1].join()", "!no such overload: join(list)"),
        ("payload.n.matches('a')", "!no such overload: matches(int, string)"),
    ]);
}

#[test]
fn conversions_and_types() {
    table(&[
        ("int(8.9)", "8"),
        ("int('-12')", "-12"),
        ("int(-8.9)", "-8"),
        ("int('x')", "!the value is no integer, or out of range"),
        ("int(1e300)", "!the value is no integer, or out of range"),
        ("uint(5)", "5"),
        ("uint(-5)", "!the value is no integer, or out of range"),
        ("double('1.5') + double(1)", "2.5"),
        ("double(payload.n)", "7.0"),
        ("string(payload.n) + string(1.5) + string(true) + string(2.0)", r#""71.5true2""#),
        ("string(payload.big)", r#""12345678901234567890""#),
        ("string(payload.list)", "!no such overload: string(list)"),
        ("bool('true')", "true"),
        ("bool('maybe')", "!the text is neither true nor false"),
        ("type(payload.n) == int && type(payload.temp) == double && type(payload.big) == double", "true"),
        ("type(payload.list) == list && type(payload.map) == map && type(null) == null_type", "true"),
        ("type(1)", r#""int""#),
        ("dyn(1) + 1", "2"),
        ("size(payload.list) + size(payload.map)", "5"),
        ("size(1)", "!no such overload: size(int)"),
    ]);
}

#[test]
fn mathematics() {
    table(&[
        ("math.greatest(1, 2.5, 2)", "2.5"),
        ("math.least(payload.list)", "1"),
        ("math.greatest(payload.temp, 3)", "8.10"),
        ("math.greatest([])", "!the list is empty"),
        ("math.greatest('a', 1)", "!no such overload: greatest(string, int)"),
        ("math.abs(payload.neg) + math.abs(-1.5)", "8.5"),
        ("math.round(2.5)", "3.0"),
        ("math.round(-2.5)", "-3.0"),
        ("math.floor(-1.5)", "-2.0"),
        ("math.ceil(1.2)", "2.0"),
        ("math.round(payload.n)", "7"),
        ("math.abs(-9223372036854775808)", "!integer overflow"),
    ]);
}

#[test]
fn moments_and_durations() {
    table(&[
        ("timestamp('2026-01-02T03:04:05+02:00')", r#""2026-01-02T01:04:05.000Z""#),
        ("timestamp(0)", r#""1970-01-01T00:00:00.000Z""#),
        ("int(timestamp('1970-01-02T00:00:00Z'))", "86400"),
        ("timestamp('nonsense')", "!the text is no RFC 3339 time"),
        ("event.receivedAt - duration('1h30m')", r#""2026-03-04T03:36:07.089Z""#),
        ("event.receivedAt - timestamp('2026-03-04T05:06:00Z') > duration('7s')", "true"),
        ("event.receivedAt - timestamp('2026-03-04T05:06:00Z')", r#""7.089s""#),
        ("event.receivedAt > timestamp('2026-01-01T00:00:00Z')", "true"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1h')", "!the timestamp is out of range"),
        ("duration('-1.5s')", r#""-1.5s""#),
        ("duration('0.3s') == duration('300ms')", "true"),
        ("duration('1h') + duration('30m')", r#""5400s""#),
        ("-duration('1h')", r#""-3600s""#),
        ("timestamp('0001-01-01T00:00:00Z')", r#""0001-01-01T00:00:00.000Z""#),
        ("timestamp('0000-12-31T23:59:59Z')", "!the timestamp is out of range"),
        ("timestamp('0001-01-01T00:00:00Z') - duration('1s')", "!the timestamp is out of range"),
        ("-duration('-315576000000s')", r#""315576000000s""#),
        ("duration('315576000000s') + duration('1ms')", "!the duration is out of range"),
        ("duration('-315576000001s')", "!the duration is out of range"),
        ("duration('999999999999999h')", "!the duration is out of range"),
        ("duration('90')", "!a duration is written like '90s' or '1h30m'"),
        ("duration('1d')", "!a duration is written like '90s' or '1h30m'"),
        ("duration('90m').getHours()", "1"),
        ("duration('1500ms').getMilliseconds()", "500"),
        ("duration('1h').getFullYear()", "!no such overload: getFullYear(duration)"),
        (
            "[event.receivedAt].map(t, [t.getFullYear(), t.getMonth(), t.getDate(), t.getDayOfMonth(), t.getDayOfWeek(), t.getDayOfYear()])",
            "[[2026,2,4,3,3,62]]",
        ),
        (
            "[event.receivedAt].map(t, [t.getHours(), t.getMinutes(), t.getSeconds(), t.getMilliseconds()])",
            "[[5,6,7,89]]",
        ),
    ]);
}

#[test]
fn faulty_expression_is_refused_at_compile_time() {
    for (expression, expected) in [
        ("temp > 1", "unknown variable 'temp'"),
        ("payload.frobnicate()", "unknown function 'frobnicate'"),
        ("frobnicate(payload)", "unknown function 'frobnicate'"),
        ("math.sin(1)", "unknown function 'math.sin'"),
        ("size(1, 2)", "'size' does not take 2 argument(s)"),
        ("payload.contains()", "'contains' does not take 0 argument(s)"),
        ("event.receivedAt.getHours('Europe/Paris')", "'getHours' takes no argument: times are in UTC"),
        ("event.foo", "unknown member 'foo' of event"),
        ("device.status", "unknown member 'status' of device"),
        ("settings.foo", "unknown setting 'foo'"),
        ("last.foo", "unknown storage 'foo'"),
        ("b'abc'", "bytes are not available: JSON has none"),
        ("18446744073709551615u", "an integer has at most 64 bits, with its sign"),
        ("Message{a: 1}", "unknown type 'Message'"),
        ("has(payload)", "has() takes a member, as in has(payload.temp)"),
        ("payload.all(x.y, true)", "a macro's first argument is the name of its variable"),
        ("[1].map(x, y)", "unknown variable 'y'"),
        ("[1].map(x, x) == x", "unknown variable 'x'"),
    ] {
        let compiled =
            super::on_a_large_stack(|| super::Expression::compile(expression, &super::Names::default()).map(|_| ()));
        assert_eq!(compiled, Some(Err(expected.to_owned())), "{expression}");
    }
}

#[test]
fn a_syntax_error_says_where_it_is() {
    for (expression, place) in [
        ("payload.temp >", "(line 1, column 15)"),
        ("1 +\n* 2", "(line 2, column 1)"),
        ("", "(line 1, column 1)"),
        ("a.?b", "column"),
    ] {
        let message = super::Expression::compile(expression, &super::Names::default()).map(|_| ()).unwrap_err();
        assert!(message.contains(place), "{expression}: {message}");
    }
}
