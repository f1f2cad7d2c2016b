use proptest::prelude::*;

use super::*;
use crate::json::parse;

const PLENTY: u64 = 1_000_000;

fn found(path: &str, document: &str) -> Vec<String> {
    let (path, tree) = (JsonPath::parse(path).unwrap(), parse(document).unwrap());
    let nodes = path.find(&tree, &mut Steps::new(PLENTY)).unwrap();
    nodes.into_iter().map(written).collect()
}

fn written(node: &Json<'_>) -> String {
    let mut out = Vec::new();
    node.write(&mut out);
    String::from_utf8(out).unwrap()
}

// Holds: c9.jsonpath
#[test]
fn selectors_find_what_they_name() {
    let document = r#"{"a":[0,1,2,3,4,5],"b c":{"d":null,"e":"é"},"☺":true}"#;
    for (path, expected) in [
        ("$", &[document][..]),
        ("$.a[0]", &["0"]),
        ("$.a[-1]", &["5"]),
        ("$.a[-7]", &[]),
        ("$.a[6]", &[]),
        ("$.a[1:3]", &["1", "2"]),
        ("$.a[ 1 : 5 : 2 ]", &["1", "3"]),
        ("$.a[5:1:-2]", &["5", "3"]),
        ("$.a[::-3]", &["5", "2"]),
        ("$.a[-2:]", &["4", "5"]),
        ("$.a[:-5]", &["0"]),
        ("$.a[1:4:0]", &[]),
        ("$.a[0, 0, -1]", &["0", "0", "5"]),
        ("$['b c']['d','e']", &["null", "\"é\""]),
        ("$[\"b\\u0020c\"].e", &["\"é\""]),
        ("$.☺", &["true"]),
        ("$['\\u263a']", &["true"]),
        ("$['b c'].*", &["null", "\"é\""]),
        ("$ .a [ 0 ]", &["0"]),
        ("$.nothing.at.all", &[]),
        ("$.a.length", &[]),
        ("$..d", &["null"]),
        ("$..[0]", &["0"]),
    ] {
        assert_eq!(found(path, document), expected, "{path}");
    }
}

#[test]
fn descendants_come_parent_first() {
    assert_eq!(found("$..*", r#"{"o":{"j":1},"a":[5,[2]]}"#), [r#"{"j":1}"#, "[5,[2]]", "1", "5", "[2]", "2"]);
    assert_eq!(found("$..[0]", "[[1,2],[3]]"), ["[1,2]", "1", "3"]);
}

#[test]
fn filter_keeps_matching_items() {
    let document = r#"[{"n":1,"t":"abc"},{"n":2.0},{"n":"2"},{"n":null},{"l":[1,2,3]},{"o":{"x":1,"y":[2]}}]"#;
    for (filter, kept) in [
        ("@.n", &[0, 1, 2, 3][..]),
        ("!@.n", &[4, 5]),
        ("@.n == 2", &[1]),
        ("@.n == 2e0 || @.n == '2'", &[1, 2]),
        ("@.n != 2", &[0, 2, 3, 4, 5]),
        ("@.n < 2", &[0]),
        ("@.n <= 2 && @.n >= 1", &[0, 1]),
        ("@.n > 'a'", &[]),
        ("@.n >= '1'", &[2]),
        ("@.n == null", &[3]),
        ("@.n <= null", &[3]),
        ("@.n == @.nothing", &[4, 5]),
        ("@.n == $[1].n", &[1]),
        ("!(@.n || @.l)", &[5]),
        ("length(@.t) == 3", &[0]),
        ("length(@.l) > 2", &[4]),
        ("length(@) == 2", &[0]),
        ("count(@.*) == 1", &[1, 2, 3, 4, 5]),
        ("value(@..x) == 1", &[5]),
        ("value(@.l[*]) == 1", &[]),
        ("match(@.t, 'a.c')", &[0]),
        ("match(@.t, 'b')", &[]),
        ("search(@.t, 'b')", &[0]),
        ("search(@.t, '[[]')", &[]),
        ("match(@.t, '(')", &[]),
        ("search(@.t, @.t)", &[0]),
        ("@.l[?@ > 2]", &[4]),
        ("@.o == $[5].o", &[5]),
        ("1 == 1", &[0, 1, 2, 3, 4, 5]),
        ("'a' < \"b\"", &[0, 1, 2, 3, 4, 5]),
    ] {
        let items = parse(document).unwrap();
        let Json::Array(items) = &items else { panic!() };
        let expected: Vec<_> = kept.iter().map(|index| written(&items[*index])).collect();
        assert_eq!(found(&format!("$[?{filter}]"), document), expected, "{filter}");
    }
}

#[test]
fn point_of_a_pattern_excludes_line_ends() {
    let document = r#"["a\nc","a\rc","abc","a\u2028c"]"#;
    assert_eq!(found("$[?match(@, 'a.c')]", document), ["\"abc\"", "\"a\u{2028}c\""]);
    assert_eq!(found("$[?search(@, '[^.]\\\\.')]", r#"["a.","ab"]"#), ["\"a.\""]);
}

#[test]
fn numbers_are_compared_as_they_were_written() {
    let document = "[9007199254740993,9007199254740992]";
    assert_eq!(found("$[?@ == 9007199254740993]", document), ["9007199254740993"]);
}

// Holds: c9.jsonpath
#[test]
fn path_outside_of_rfc_9535_is_refused() {
    for bad in [
        "",
        "a",
        " $",
        "$ ",
        "$.",
        "$..",
        "$a",
        "$.1a",
        "$. a",
        "$[",
        "$[]",
        "$[a]",
        "$['a'",
        "$['a]",
        "$['a\\x']",
        "$['\\ud800']",
        "$['\\\"']",
        "$[\"\n\"]",
        "$[01]",
        "$[-0]",
        "$[1.0]",
        "$[9007199254740992]",
        "$[0,]",
        "$[1:2:3:4]",
        "$[(@.length-1)]",
        "$[?(@.a.length()>1)]",
        "$[?@.a = 1]",
        "$[?@.a === 1]",
        "$[?@.a == [1]]",
        "$[?@.* == 1]",
        "$[?1]",
        "$[?true]",
        "$[?!1 == 1]",
        "$[?@.a == 01]",
        "$[?@.a and @.b]",
        "$[?count(1) == 1]",
        "$[?count(@.a)]",
        "$[?length(@.*) == 1]",
        "$[?match(@.a)]",
        "$[?match(@.a, 'x') == true]",
        "$[?length (@.a) == 1]",
        "$[?nin(@.a, 1)]",
        "$[?`process.exit()`]",
        "$^",
        "$.a~",
    ] {
        assert!(JsonPath::parse(bad).is_err(), "{bad}");
    }
    assert!(JsonPath::parse(&format!("$.{}", "a".repeat(PATH_BYTES_MAX))).is_err());
    for (opens, closes) in [("[?@", "]"), ("(", ")"), ("length(", ")")] {
        let inner = if opens == "[?@" { "" } else { "@" };
        let nested = |depth: usize| format!("$[?{}{inner}{} == 1]", opens.repeat(depth), closes.repeat(depth));
        assert!(JsonPath::parse(&nested(200)).is_err());
    }
}

#[test]
fn hostile_path_ends_with_its_budget() {
    let wide = format!("[{}]", vec!["[1,2,3]"; 2_000].join(","));
    let names: Vec<String> = (0..5_000).map(|number| format!("\"k{number}\":{number}")).collect();
    let names = format!("{{{}}}", names.join(","));
    let texts = format!("[{}]", vec![format!("\"{}\"", "a".repeat(1_000)); 1_000].join(","));
    for (path, document) in [
        ("$..*..*..*..*", "[".repeat(60) + &"]".repeat(60)),
        ("$[*,*,*,*,*,*,*,*,*,*][*,*,*,*,*,*,*,*,*,*][0,0,0,0]", wide.clone()),
        ("$[?count($..*) > 1]", wide.clone()),
        ("$[?$ == $]", wide),
        ("$[?$.k4999 == @]", names.clone()),
        ("$[?$ == $]", names),
        ("$[?match(@, '(a*)*(a|a)*b')]", texts.clone()),
        ("$[?search(@, @)]", texts),
    ] {
        let (parsed, tree) = (JsonPath::parse(path).unwrap(), parse(&document).unwrap());
        assert_eq!(parsed.find(&tree, &mut Steps::new(20_000)).unwrap_err(), Exhausted, "{path}");
    }
}

proptest! {
    #[test]
    fn rubbish_never_panics(text in "\\$[\\[\\]().,:?*@$&|!=<>'\" a-e0-9\\\\u-]{0,40}", document in "[\\[\\]{}\",:0-9a-c]{0,24}") {
        if let (Ok(path), Ok(tree)) = (JsonPath::parse(&text), parse(&document)) {
            let _ = path.find(&tree, &mut Steps::new(10_000));
        }
    }

    #[test]
    fn slice_equals_counting(start in prop::option::of(-9_i64..9), end in prop::option::of(-9_i64..9), step in 1_i64..4) {
        let document = "[0,1,2,3,4,5]";
        let shown = |bound: Option<i64>| bound.map_or(String::new(), |bound| bound.to_string());
        let normal = |bound: i64| if bound < 0 { bound + 6 } else { bound };
        let (from, to) = (start.map_or(0, normal), end.map_or(6, normal));
        let expected: Vec<String> = (0..6)
            .filter(|index| *index >= from.max(0) && *index < to && (index - from.max(0)) % step == 0)
            .map(|index: i64| index.to_string())
            .collect();
        prop_assert_eq!(found(&format!("$[{}:{}:{step}]", shown(start), shown(end)), document), expected);
    }
}
