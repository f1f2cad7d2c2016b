//! Tests of JSONPath against RFC 9535 (<https://www.rfc-editor.org/rfc/rfc9535>): the examples of its section 2 with
//! their results, and the edges of its grammar. Where the RFC leaves an order open, ours is that of the document.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

use isobar_model::json::{Json, equal, parse};
use isobar_model::jsonpath::{JsonPath, Steps};

/// A budget larger than any of these paths needs.
const PLENTY: u64 = 100_000;

/// Checks the nodes that each path selects, as a JSON array.
fn check(document: &str, cases: &[(&str, &str)]) {
    let tree = parse(document).unwrap();
    for (path, expected) in cases {
        let parsed = JsonPath::parse(path).unwrap_or_else(|fault| panic!("{path}: {fault}"));
        let nodes = parsed.find(&tree, &mut Steps::new(PLENTY)).unwrap();
        let expected = parse(expected).unwrap();
        let Json::Array(items) = &expected else { panic!("{expected:?} is no array") };
        let same = nodes.len() == items.len() && nodes.iter().zip(items).all(|(node, item)| equal(node, item));
        assert!(same, "{path} found {nodes:?}, not {items:?}");
    }
}

/// Checks comparisons as filters over an array of one item.
fn check_comparisons(root: &str, cases: &[(&str, bool)]) {
    let document = format!("{{\"x\":{root},\"one\":[0]}}");
    let tree = parse(&document).unwrap();
    for (comparison, expected) in cases {
        let path = format!("$.one[?{}]", comparison.replace("$.", "$.x."));
        let parsed = JsonPath::parse(&path).unwrap_or_else(|fault| panic!("{path}: {fault}"));
        let found = parsed.find(&tree, &mut Steps::new(PLENTY)).unwrap();
        assert_eq!(!found.is_empty(), *expected, "{comparison}");
    }
}

fn check_refused(paths: &[&str]) {
    for path in paths {
        assert!(JsonPath::parse(path).is_err(), "{path} is no path");
    }
}

/// RFC 9535, figure 1.
const STORE: &str = r#"{"store":{"book":[
    {"category":"reference","author":"Nigel Rees","title":"Sayings of the Century","price":8.95},
    {"category":"fiction","author":"Evelyn Waugh","title":"Sword of Honour","price":12.99},
    {"category":"fiction","author":"Herman Melville","title":"Moby Dick","isbn":"0-553-21311-3","price":8.99},
    {"category":"fiction","author":"J. R. R. Tolkien","title":"The Lord of the Rings","isbn":"0-395-19395-8","price":22.99}],
    "bicycle":{"color":"red","price":399}}}"#;

#[test]
fn store_of_the_introduction_gives_its_results() {
    let authors = r#"["Nigel Rees","Evelyn Waugh","Herman Melville","J. R. R. Tolkien"]"#;
    check(
        STORE,
        &[
            ("$.store.book[*].author", authors),
            ("$..author", authors),
            ("$.store..price", "[8.95,12.99,8.99,22.99,399]"),
            ("$..book[2].title", r#"["Moby Dick"]"#),
            ("$..book[2].author", r#"["Herman Melville"]"#),
            ("$..book[2].publisher", "[]"),
            ("$..book[-1].title", r#"["The Lord of the Rings"]"#),
            ("$..book[0,1].price", "[8.95,12.99]"),
            ("$..book[:2].price", "[8.95,12.99]"),
            ("$..book[?@.isbn].price", "[8.99,22.99]"),
            ("$..book[?@.price<10].price", "[8.95,8.99]"),
            ("$.store.*.color", r#"["red"]"#),
            (
                "$.store.book[?@.price < $.store.bicycle.price && @.category == 'reference'].title",
                r#"["Sayings of the Century"]"#,
            ),
        ],
    );
    let tree = parse(STORE).unwrap();
    let everything = JsonPath::parse("$..*").unwrap();
    assert_eq!(everything.find(&tree, &mut Steps::new(PLENTY)).unwrap().len(), 27);
}

#[test]
fn names_wildcards_indexes_and_slices() {
    check(r#"{"k":"v"}"#, &[("$", r#"[{"k":"v"}]"#)]);
    check(
        r#"{"o":{"j j":{"k.k":3}},"'":{"@":2}}"#,
        &[
            ("$.o['j j']", r#"[{"k.k":3}]"#),
            ("$.o['j j']['k.k']", "[3]"),
            (r#"$.o["j j"]["k.k"]"#, "[3]"),
            (r#"$["'"]["@"]"#, "[2]"),
            (r"$['\'']['@']", "[2]"),
        ],
    );
    check(
        r#"{"o":{"j":1,"k":2},"a":[5,3]}"#,
        &[
            ("$[*]", r#"[{"j":1,"k":2},[5,3]]"#),
            ("$.o[*]", "[1,2]"),
            ("$.o[*, *]", "[1,2,1,2]"),
            ("$.a[*]", "[5,3]"),
            ("$.a.j", "[]"),
            ("$.o[0]", "[]"),
            ("$.o[0:1]", "[]"),
        ],
    );
    check(r#"["a","b"]"#, &[("$[1]", r#"["b"]"#), ("$[-2]", r#"["a"]"#), ("$[-3]", "[]"), ("$[2]", "[]")]);
    check(
        r#"["a","b","c","d","e","f","g"]"#,
        &[
            ("$[1:3]", r#"["b","c"]"#),
            ("$[5:]", r#"["f","g"]"#),
            ("$[1:5:2]", r#"["b","d"]"#),
            ("$[5:1:-2]", r#"["f","d"]"#),
            ("$[::-1]", r#"["g","f","e","d","c","b","a"]"#),
            ("$[:]", r#"["a","b","c","d","e","f","g"]"#),
            ("$[::]", r#"["a","b","c","d","e","f","g"]"#),
            ("$[-2:]", r#"["f","g"]"#),
            ("$[:-5]", r#"["a","b"]"#),
            ("$[-9:2]", r#"["a","b"]"#),
            ("$[5:99]", r#"["f","g"]"#),
            ("$[3:1]", "[]"),
            ("$[1:3:-1]", "[]"),
            ("$[1:3:0]", "[]"),
            ("$[-1:-3:-1]", r#"["g","f"]"#),
            ("$[99:0:-3]", r#"["g","d"]"#),
            ("$[::9007199254740991]", r#"["a"]"#),
            ("$[9007199254740991:]", "[]"),
            ("$[-9007199254740991::-1]", "[]"),
        ],
    );
}

#[test]
fn segments_of_children_and_descendants() {
    check(
        r#"["a","b","c","d","e","f","g"]"#,
        &[("$[0, 3]", r#"["a","d"]"#), ("$[0:2, 5]", r#"["a","b","f"]"#), ("$[0, 0]", r#"["a","a"]"#)],
    );
    let everything = r#"[{"j":1,"k":2},[5,3,[{"j":4},{"k":6}]],1,2,5,3,[{"j":4},{"k":6}],{"j":4},{"k":6},4,6]"#;
    check(
        r#"{"o":{"j":1,"k":2},"a":[5,3,[{"j":4},{"k":6}]]}"#,
        &[
            ("$..j", "[1,4]"),
            ("$..[0]", r#"[5,{"j":4}]"#),
            ("$..[*]", everything),
            ("$..*", everything),
            ("$..o", r#"[{"j":1,"k":2}]"#),
            ("$.o..[*, *]", "[1,2,1,2]"),
            ("$.a..[0, 1]", r#"[5,3,{"j":4},{"k":6}]"#),
            ("$..['j','k']", "[1,2,4,6]"),
        ],
    );
}

#[test]
fn null_is_found_like_any_other_value() {
    check(
        r#"{"a":null,"b":[null],"c":[{}],"null":1}"#,
        &[
            ("$.a", "[null]"),
            ("$.a[0]", "[]"),
            ("$.a.d", "[]"),
            ("$.b[0]", "[null]"),
            ("$.b[*]", "[null]"),
            ("$.b[?@]", "[null]"),
            ("$.b[?@==null]", "[null]"),
            ("$.c[?@.d==null]", "[]"),
            ("$.null", "[1]"),
        ],
    );
}

// Holds: c9.jsonpath
#[test]
fn comparisons() {
    check_comparisons(
        r#"{"obj":{"x":"y"},"arr":[2,3]}"#,
        &[
            ("$.absent1 == $.absent2", true),
            ("$.absent1 <= $.absent2", true),
            ("$.absent == 'g'", false),
            ("$.absent1 != $.absent2", false),
            ("$.absent != 'g'", true),
            ("$.absent < 1", false),
            ("1 <= 2", true),
            ("1 > 2", false),
            ("13 == '13'", false),
            ("'a' <= 'b'", true),
            ("'a' > 'b'", false),
            ("$.obj == $.arr", false),
            ("$.obj != $.arr", true),
            ("$.obj == $.obj", true),
            ("$.obj != $.obj", false),
            ("$.arr == $.arr", true),
            ("$.arr != $.arr", false),
            ("$.obj == 17", false),
            ("$.obj != 17", true),
            ("$.obj <= $.arr", false),
            ("$.obj < $.arr", false),
            ("$.obj <= $.obj", true),
            ("$.arr <= $.arr", true),
            ("1 <= $.arr", false),
            ("1 >= $.arr", false),
            ("1 > $.arr", false),
            ("1 < $.arr", false),
            ("true <= true", true),
            ("true > true", false),
            ("false < true", false),
            ("null >= null", true),
            ("1 == 1.0", true),
            ("100 == 1e2", true),
            ("0.01 == 1E-2", true),
            ("-0 == 0", true),
            ("1 == true", false),
            ("0 == false", false),
            ("'' < 'a'", true),
            ("'\u{e000}' < '\u{1f600}'", true),
            (r"'\u0061' == 'a'", true),
            (r"'\ud83d\ude00' == '😀'", true),
        ],
    );
}

// Holds: c9.jsonpath
#[test]
fn filters() {
    let all = r#"[3,5,1,2,4,6,{"b":"j"},{"b":"k"},{"b":{}},{"b":"kilo"}]"#;
    let of_a = format!("[{all}]");
    check(
        &format!(r#"{{"a":{all},"o":{{"p":1,"q":2,"r":3,"s":5,"t":{{"u":6}}}},"e":"f"}}"#),
        &[
            ("$.a[?@.b == 'kilo']", r#"[{"b":"kilo"}]"#),
            ("$.a[?(@.b == 'kilo')]", r#"[{"b":"kilo"}]"#),
            ("$.a[?@>3.5]", "[5,4,6]"),
            ("$.a[?@.b]", r#"[{"b":"j"},{"b":"k"},{"b":{}},{"b":"kilo"}]"#),
            ("$[?@[?@.b]]", &of_a),
            ("$.o[?@<3, ?@<3]", "[1,2,1,2]"),
            (r#"$.a[?@<2 || @.b == "k"]"#, r#"[1,{"b":"k"}]"#),
            (r#"$.a[?match(@.b, "[jk]")]"#, r#"[{"b":"j"},{"b":"k"}]"#),
            (r#"$.a[?search(@.b, "[jk]")]"#, r#"[{"b":"j"},{"b":"k"},{"b":"kilo"}]"#),
            ("$.o[?@>1 && @<4]", "[2,3]"),
            ("$.o[?@.u || @.x]", r#"[{"u":6}]"#),
            ("$.a[?@.b == $.x]", "[3,5,1,2,4,6]"),
            ("$.a[?@ == @]", all),
            ("$.a[?!@.b]", "[3,5,1,2,4,6]"),
            ("$.a[?!(@.b == 'j') && @.b]", r#"[{"b":"k"},{"b":{}},{"b":"kilo"}]"#),
            // && binds closer than ||, in either order.
            ("$.a[?@.b && @.b == 'j' || @ == 3]", r#"[3,{"b":"j"}]"#),
            ("$.a[?@ == 3 || @.b && @.b == 'j']", r#"[3,{"b":"j"}]"#),
            ("$.a[?(@ == 3 || @ == 5) && @ != 3]", "[5]"),
            ("$.e[?@]", "[]"),
        ],
    );
    check(
        r#"[1,[],[2],{},{"a":3},{"a":false,"b":false},{"0":5,"b":{"x":2}}]"#,
        &[
            ("$[?@.*]", r#"[[2],{"a":3},{"a":false,"b":false},{"0":5,"b":{"x":2}}]"#),
            ("$[?!@.*]", "[1,[],{}]"),
            ("$[?@[0, 0, 'a']]", r#"[[2],{"a":3},{"a":false,"b":false}]"#),
            ("$[?@[0:2]]", "[[2]]"),
            ("$[?@.a && @.b]", r#"[{"a":false,"b":false}]"#),
            ("$[?@.a == false].b", "[false]"),
            ("$[?@['0'] == 2]", "[]"),
            ("$[?@[0] == 5]", "[]"),
            ("$[?@['0'] == 5].b.x", "[2]"),
            ("$[?@.a]['a','b']", "[3,false,false]"),
            ("$[?@[?@ == 2]]", r#"[[2]]"#),
            ("$[1:3, 0, ?@.a == 3]", r#"[[],[2],1,{"a":3}]"#),
        ],
    );
}

#[test]
fn functions() {
    check(
        r#"[{"t":"añ😀","l":[1,2],"o":{"p":1}},{"t":"","l":[],"o":{}},{"t":null,"l":5},{"color":"red"}]"#,
        &[
            ("$[?length(@.t) == 3].t", r#"["añ😀"]"#),
            ("$[?length(@.t) == 0].t", r#"[""]"#),
            ("$[?length(@.l) == 2].t", r#"["añ😀"]"#),
            ("$[?length(@.o) == 0].t", r#"[""]"#),
            // Neither null nor a number has a length, and nothing equals nothing.
            ("$[?length(@.t) == length(@.none)].l", "[5]"),
            ("$[?length('ab') == 2].color", r#"["red"]"#),
            ("$[?length(value(@..color)) == 3].color", r#"["red"]"#),
            ("$[?count(@.*) == 1].color", r#"["red"]"#),
            ("$[?count(@['t','t','l']) == 3].l", "[[1,2],[],5]"),
            ("$[?count(@.none) == 0].l", "[[1,2],[],5]"),
            ("$[?value(@..color) == \"red\"]", r#"[{"color":"red"}]"#),
            ("$[?value(@.l[*]) == 1]", "[]"),
            ("$[?match(@.color, 'r.d')].color", r#"["red"]"#),
            ("$[?match(@.color, 'e')]", "[]"),
            ("$[?search(@.color, 'e')].color", r#"["red"]"#),
            ("$[?match(@.l, 'a')]", "[]"),
            ("$[?match('a', 1)]", "[]"),
            ("$[?!match(@.color, '(')].l", "[[1,2],[],5]"),
        ],
    );
    check(
        r#"["ж","Ж","1","a\nc","a.c","a]c","\u2028",true,{}]"#,
        &[
            (r"$[?match(@, '\\p{Lu}')]", r#"["Ж"]"#),
            (r"$[?match(@, '\\P{Lu}')]", r#"["ж","1","\u2028"]"#),
            (r"$[?match(@, 'a\\.c')]", r#"["a.c"]"#),
            (r"$[?match(@, 'a[\\].]c')]", r#"["a.c","a]c"]"#),
            ("$[?match(@, 'a.c')]", r#"["a.c","a]c"]"#),
            ("$[?match(@, '.')]", r#"["ж","Ж","1","\u2028"]"#),
            ("$[?search(@, '^a.*c$')]", r#"["a.c","a]c"]"#),
            ("$[?match(@, '[0-9]|ж')]", r#"["ж","1"]"#),
        ],
    );
}

#[test]
fn blanks_are_allowed_where_the_grammar_has_them() {
    check(
        r#"{"a":[{"b":1},{"b":2}],"c":{"d":3}}"#,
        &[
            ("$ .a", r#"[[{"b":1},{"b":2}]]"#),
            ("$\n['c']\t.d", "[3]"),
            ("$ ..d", "[3]"),
            ("$[ 'c' ]", r#"[{"d":3}]"#),
            ("$['c'\r,\n'x' ]", r#"[{"d":3}]"#),
            ("$.a[ 1 ].b", "[2]"),
            ("$.a[ 0 : 1 : 1 ].b", "[1]"),
            ("$.a[0 :].b", "[1,2]"),
            ("$.a[? @.b==1 ].b", "[1]"),
            ("$.a[?@.b\n==\t1].b", "[1]"),
            ("$.a[?@ .b == 1].b", "[1]"),
            ("$.a[?( @.b==1 )].b", "[1]"),
            ("$.a[?! @.x].b", "[1,2]"),
            ("$.a[?!\n( @.b==1 )].b", "[2]"),
            ("$.a[?@.b==1\t||\n@.b==2].b", "[1,2]"),
            ("$.a[?@.b==1 && @.b==1].b", "[1]"),
            ("$.a[?count( @.* )==1].b", "[1,2]"),
            ("$.a[?match('a'\n,\t'a')].b", "[1,2]"),
        ],
    );
    check_refused(&[
        " $",
        "$ ",
        "$\n",
        "$. a",
        "$.\ta",
        "$.a .",
        "$.. a",
        "$..\n*",
        "$.. ['d']",
        "$[?count (@.*)==1]",
        "$[?@.a= =1]",
        "$[?@.a& &@.b]",
    ]);
}

#[test]
fn names_may_hold_what_strings_hold() {
    let bell = "\u{7}";
    for (name, quoted) in [
        ("\\\"", r#""\"""#),
        ("'", r"'\''"),
        ("\\\\", r"'\\'"),
        ("/", r"'\/'"),
        ("\\b\\f\\n\\r\\t", r"'\b\f\n\r\t'"),
        ("☺", r#""\u263A""#),
        ("☺", r"'\u263a'"),
        ("𝄞", r"'\uD834\uDD1E'"),
        ("𝄞", r"'𝄞'"),
        ("\\u007f", "'\u{7f}'"),
        ("\\u0000", r"'\u0000'"),
        (" ", "' '"),
        ("", "''"),
    ] {
        check(&format!(r#"{{"{name}":1}}"#), &[(&format!("$[{quoted}]"), "[1]")]);
    }
    check(r#"{"_":1,"_1":2,"ü":3,"😀x9":4}"#, &[("$._", "[1]"), ("$._1", "[2]"), ("$.ü", "[3]"), ("$.😀x9", "[4]")]);
    check_refused(&[
        &format!("$['{bell}']"),
        "$['\n']",
        r"$['\x41']",
        r"$['\a']",
        r"$['\0']",
        r"$['\U0041']",
        r"$['\u']",
        r"$['\u12']",
        r"$['\u+123']",
        r"$['\u{41}']",
        r"$['\ud800']",
        r"$['\udc00']",
        r"$['\ud800\ud800']",
        r"$['\udc00\udc00']",
        r"$['\ud800\u0041']",
        r"$['\ud800x']",
        r#"$["\'"]"#,
        r#"$['\"']"#,
        r"$['\']",
        "$['a",
        "$['a']b']",
        "$.1",
        "$.-a",
        "$.a-b",
        "$.&",
        "$.'a'",
        "$.\"a\"",
        "$.a\u{0}",
    ]);
}

/// Malformed paths, separated by three blanks.
const NO_PATHS: &str = r#"
a   @   @.a   $$   $a   $.   $..   $...a   $.a.   $.a..   $[   $[]   $[,]   $[0,]   $[,0]   $[0 2]   $[a]   $['a' 'b']   $[01]
$[-0]   $[-01]   $[+1]   $[1.0]   $[1e0]   $[- 1]   $[0x1]   $[9007199254740992]   $[-9007199254740992]
$[231584178474632390847141970017375815706539969331281128078915168015826259279872]   $[01:]   $[:01]   $[::01]   $[-0:]   $[:-0]
$[::-0]   $[1:2:3:4]   $[1.5:]   $[::a]   $[9007199254740992:]   $[?]   $[? ]   $[?()]   $[?(@.a]   $[?@.a)]   $[?@.a==]
$[?==1]   $[?@.a==1==1]   $[?@.a<1<2]   $[?@.a=1]   $[?@.a===1]   $[?@.a<>1]   $[?@.a=~'x']   $[?@.a && ]   $[?|| @.a]
$[?@.a | @.b]   $[?@.a & @.b]   $[?@.a and @.b]   $[?not @.a]   $[?(@.a)==1]   $[?1==(@.a)]   $[?!@.a==1]   $[?!(@.a)==1]
$[?!!@.a]   $[?true]   $[?@.a && false]   $[?1]   $[?'a']   $[?null]   $[?@.a==True]   $[?@.a==nulL]   $[?@.a==truex]
$[?@.a==undefined]   $[?@.a==01]   $[?@.a==-01]   $[?@.a==+1]   $[?@.a==1.]   $[?@.a==.1]   $[?@.a==-.1]   $[?@.a==1e]
$[?@.a==1e+]   $[?@.a==--1]   $[?@.a==0x1]   $[?@.a==[1]]   $[?@.a=={}]   $[?@.a+1==2]   $[?@.* == 0]   $[?@[*] == 0]
$[?@..a == 0]   $[?@[0:1] == 0]   $[?@[0,1] == 0]   $[?@['a','b'] == 0]   $[?@[?@.a] == 0]   $[?$..* == 0]   $[?0 == @.*]
$[?length(@.*) < 3]   $[?length(@.a)]   $[?length() == 1]   $[?length(@.a, 1) == 1]   $[?length(match(@.a,'x')) == 1]
$[?count(1) == 1]   $[?count('a') == 1]   $[?count(true) == 1]   $[?count() == 1]   $[?count(@.a, @.b) == 1]   $[?count(@.a)]
$[?count(value(@..a)) == 1]   $[?value(@..color)]   $[?value(1) == 1]   $[?value() == 1]   $[?value(@.a, @.b) == 1]
$[?match(@.timezone, 'Europe/.*') == true]   $[?match(@.a)]   $[?match(@.a, 'a', 'b')]   $[?match(@.*, 'a')]
$[?match(@.a, @..b)]   $[?search(@.a, 'a') == true]   $[?search(@.a)]   $[?search(@[0,1], 'a')]   $[?match(@.a == 1, 'a')]
$[?Length(@.a) == 1]   $[?unknown(@.a)]   $[?length(@.a == 1]   $[?length(@.a,) == 1]   $[?length(,@.a) == 1]   $.length()
$[(@.length-1)]   $[?(@.length-1)]   $.a[?(function() {})()]   $^   $.a~   $[?(@.a)].b[   $.*a   $['a'].*b
"#;

// Holds: c9.jsonpath
#[test]
fn malformed_or_ill_typed_path_is_refused() {
    let paths: Vec<&str> =
        NO_PATHS.lines().flat_map(|line| line.split("   ")).filter(|path| !path.is_empty()).collect();
    assert!(paths.len() > 130);
    check_refused(&paths);
    check_refused(&["", "$[?@.a==\u{a0}1]"]);
}
