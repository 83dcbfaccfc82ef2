//! CFG-3: comparison, boolean logic, membership, filters, versions, node-side predicates;
//! an undefined name is an error, types do not mix, versions are not compared as text.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use lang::{EvalError, Expr, InterpolatedText, Names, Probe, Value};

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(BTreeMap::from(entries.map(|(key, value)| (key.to_owned(), value))))
}

fn names() -> Names<'static> {
    let os = map([("family", "debian".into()), ("version", "12.5".into())]);
    Names::new()
        .with("traits", map([("os", os), ("memory", map([("total_mb", Value::Int(512))]))]))
        .with("params", map([("port", Value::Int(80)), ("tls", true.into()), ("name", "web".into())]))
        .with("vars", map([("my-app", map([("hosts", vec!["b", "a", "b"].into())]))]))
}

fn eval(source: &str) -> Result<Value, String> {
    let expr =
        Expr::parse(source).map_err(|error| format!("{} @{}+{}", error.message, error.offset, error.len))?;
    expr.eval(&names()).map_err(|error| error.to_string())
}

fn value(source: &str) -> Value {
    eval(source).unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn failure(source: &str) -> String {
    eval(source).map(|value| panic!("{source} gave {value}")).unwrap_err()
}

#[test]
fn values() {
    let cases: &[(&str, Value)] = &[
        ("1 + 2 * 3", 7.into()),
        ("(1 + 2) * 3", 9.into()),
        ("7 // 2", 3.into()),
        ("-7 // 2", (-4).into()),
        ("-7 % 2", 1.into()),
        ("7 // -2", (-4).into()),
        ("7 % -2", (-1).into()),
        ("\"a\" + 'b'", "ab".into()),
        ("[1] + [2]", vec![1, 2].into()),
        ("\"port \" ~ params.port ~ \", \" ~ params.tls", "port 80, true".into()),
        ("params.port == 80 and not params.tls == false", true.into()),
        ("not params.tls or params.port > 79", true.into()),
        ("1 < 2 and 2 <= 2 and 3 > 2 and 3 >= 3 and 1 != 2", true.into()),
        ("\"deb\" in traits.os.family", true.into()),
        ("\"c\" not in vars[\"my-app\"].hosts", true.into()),
        ("\"port\" in params", true.into()),
        ("\"big\" if traits.memory.total_mb > 1024 else \"small\"", "small".into()),
        ("1 if params.tls else 2 if false else 3", 1.into()),
        ("vars[\"my-app\"].hosts[0] ~ vars[\"my-app\"].hosts[-2]", "ba".into()),
        ("{\"a\": [1, {\"b\": 2}]}.a[1].b", 2.into()),
        ("vars[\"my-app\"].hosts|unique|sort|join(\",\")", "a,b".into()),
        ("\"a, b\"|replace(\", \", \"-\")|upper", "A-B".into()),
        ("\" x \"|trim|length", 1.into()),
        ("\"a:b\"|split(\":\")|last", "b".into()),
        ("\"a b  c\"|split|length", 3.into()),
        ("split(\"a:b\", \":\")|first", "a".into()),
        ("\"0010\"|int + 1", 11.into()),
        ("\"yes\"|bool", true.into()),
        ("params.port|string + \"0\"", "800".into()),
        ("{\"b\": 1, \"a\": [true]}|tojson", "{\"a\":[true],\"b\":1}".into()),
        ("params|keys|first", "name".into()),
        ("lower(\"ABC\")", "abc".into()),
        ("\"it\\'s\\n\"", "it's\n".into()),
        ("params.nope|default(5)", 5.into()),
        ("nope.at.all|default(\"x\")", "x".into()),
        ("[]|first|default(0)", 0.into()),
        ("default(params.port, 1)", 80.into()),
        ("params.nope is defined", false.into()),
        ("params.nope is not defined and params.port is defined and x.y is undefined", true.into()),
        ("params.tls and params.port is defined", true.into()),
        // The second operand is not looked at.
        ("params.tls or nope.nope", true.into()),
        ("false and nope", false.into()),
    ];
    for (source, expected) in cases {
        assert_eq!(value(source), *expected, "{source}");
    }
}

#[test]
fn versions_compare_as_versions() {
    let ordered = [
        "0.9",
        "1.0~rc1",
        "1.0-alpha",
        "1.0-beta.2",
        "1.0rc1",
        "1.0",
        "1.0-1",
        "1.0.1",
        "1.9",
        "1.10",
        "1.10.0.1",
        "2",
        "9.2p1",
        "10",
        "1:0.1",
    ];
    for (i, a) in ordered.iter().enumerate() {
        for (j, b) in ordered.iter().enumerate() {
            assert_eq!(value(&format!("version(\"{a}\") < version(\"{b}\")")), (i < j).into(), "{a} < {b}");
        }
    }
    assert_eq!(value("version(\"v1.2\") == version(\"1.2.0\")"), true.into());
    assert_eq!(value("version(traits.os.version) >= version(\"12\")"), true.into());
    assert_eq!(value("version(\"1.2\")"), "1.2".into());
    assert_eq!(failure("version(\"new\")"), "\"new\" is not a version");
}

#[test]
fn what_was_hardly_meant_is_an_error() {
    let cases = [
        ("params.prot", "`params.prot` is not defined; did you mean `params.port`?"),
        ("parms.port", "`parms` is not defined; did you mean `params`?"),
        ("params.port.x", "`params.port` is a value of type int and has no such part"),
        ("params.port.x|default(1)", "`params.port` is a value of type int and has no such part"),
        ("vars[\"my-app\"].hosts[7]", "item 7 of `vars.my-app.hosts` is not defined"),
        (
            "\"1.10\" < \"1.9\"",
            "\"1.10\" < \"1.9\" would compare versions as text; write version(a) < version(b), or `|int` for numbers",
        ),
        (
            "traits.os.version > \"9\"",
            "\"12.5\" > \"9\" would compare versions as text; write version(a) > version(b), or `|int` for numbers",
        ),
        (
            "1 < \"2\"",
            "`<` cannot order an int and a string; it orders two ints, two strings or two versions",
        ),
        (
            "version(\"1\") < \"2\"",
            "`<` cannot order a version and a string; it orders two ints, two strings or two versions",
        ),
        (
            "params.port == \"80\"",
            "an int and a string are never equal; make them the same type with `|int`, `|string` or version()",
        ),
        ("not 1", "a condition must be true or false, and this is a value of type int"),
        ("1 if \"yes\" else 2", "a condition must be true or false, and this is a value of type string"),
        (
            "1 + \"1\"",
            "`+` takes two ints, two strings or two lists, not an int and a string; `~` joins values as text",
        ),
        ("1 // 0", "division by zero"),
        ("9007199254740991 + 1", "the result is beyond 9007199254740991"),
        ("\"x\" ~ [1]", "a list cannot stand in text; write `|join(\", \")`"),
        ("\"x\"|int", "\"x\" is not a whole number"),
        ("file_exists(params.name)", "`file_exists` takes an absolute path"),
        ("port_listening(params.port * 1000)", "80000 is no port; a port is from 1 to 65535"),
        ("secret(\"a/b\")", "it depends on `secret(\"a/b\")`, which only the node observes"),
        ("secret(\"a b\")", "`secret` takes the name of a secret, such as \"team/name\""),
    ];
    for (source, expected) in cases {
        assert_eq!(failure(source), expected, "{source}");
    }
    // Dates are ordered as text, and rightly.
    assert_eq!(value("\"2026-01-31\" < \"2026-02-01\""), true.into());
}

#[test]
fn what_does_not_parse_says_where_and_what_would_be_right() {
    let cases = [
        ("", 0, "expected a value, found the end", None),
        ("1 +", 3, "expected a value, found the end", None),
        ("params.port = 80", 12, "expected an operator, found `=`", Some("`==` compares")),
        ("a && b", 2, "expected an operator, found `&&`", Some("write `and`")),
        (
            "1 / 2",
            2,
            "expected an operator, found `/`",
            Some("`//` divides whole numbers; there are no fractions"),
        ),
        (
            "1.5 + 1",
            0,
            "numbers are whole numbers",
            Some("write \"1.5\", or version(\"1.5\") to compare versions"),
        ),
        ("1 < 2 < 3", 6, "expected `and`, `or` or the end, found `<`", Some("write `a < b and b < c`")),
        ("x|uper", 2, "unknown filter `uper`; did you mean `upper`?", None),
        ("versoin(x)", 0, "unknown function `versoin`; did you mean `version`?", None),
        ("file_exists(\"etc/motd\")", 0, "`file_exists` takes an absolute path", None),
        ("dir_exists()", 0, "`dir_exists` is written dir_exists(\"/srv/app\")", None),
        ("dir_exist(\"/x\")", 0, "unknown function `dir_exist`; did you mean `dir_exists`?", None),
        (
            "command_succeeds(\"test -d /x\")",
            0,
            "`command_succeeds` takes a list of a program and its arguments, not a string",
            None,
        ),
        (
            "process_running(\"/usr/sbin/nginx\")",
            0,
            "`process_running` takes the name of a program, without its path",
            None,
        ),
        ("1 == 1 and port_listening(0)", 11, "0 is no port; a port is from 1 to 65535", None),
        (
            "hour_range(22)",
            0,
            "`hour_range` is written hour_range(22, 4) or hour_range(22, 4, \"UTC\")",
            None,
        ),
        ("hour_range(-1, 4)", 0, "-1 is no hour; an hour is from 0 to 24", None),
        (
            "hour_range(22, 4, \"Europe/Berlin\")",
            0,
            "`Europe/Berlin` is no zone here; write \"local\", \"UTC\" or an offset such as \"+02:00\", or declare a window and ask in_window(\"NAME\")",
            None,
        ),
        (
            "day_of_week(\"monday\")",
            0,
            "`monday` is no day of the week; write mon, tue, wed, thu, fri, sat, sun, or mon-fri",
            None,
        ),
        ("day_of_week([])", 0, "there is no day in it", None),
        ("x.upper()", 7, "expected an operator, found `(`", Some("values have no methods; write `x|upper`")),
        ("x|default", 2, "`default` is written name|default(value)", None),
        ("x == none", 5, "expected a value, found `none`", Some("there is no null; ask `is defined`")),
        ("\"open", 0, "the text is never closed", None),
        ("1 if 2", 6, "expected `else`, found the end", None),
        ("a b", 2, "expected an operator or the end, found `b`", None),
        ("x is odd", 5, "expected `defined` or `undefined`, found `odd`", None),
    ];
    for (source, offset, message, help) in cases {
        let error = Expr::parse(source).expect_err(source);
        let place =
            if message.starts_with("expected an operator, found `(`") { error.offset } else { offset };
        assert_eq!((error.message.as_str(), error.offset), (message, place), "{source}");
        if help.is_some() {
            assert_eq!(error.help.as_deref(), help, "{source}");
        }
        assert!(error.offset + error.len <= source.len().max(error.offset + 1), "{source}");
    }
}

#[test]
fn spans_point_into_the_source() {
    let source = "1 == 1 and params.prot > 3";
    let EvalError::Failed { offset, len, .. } = Expr::parse(source).unwrap().eval(&names()).unwrap_err()
    else {
        panic!("not a failure");
    };
    assert_eq!(&source[offset..offset + len], "params.prot");

    let source = "params.port ~ vars[\"my-app\"].x|default(nope) ~ (a.b is defined) ~ list[i].z";
    let uses = Expr::parse(source).unwrap().names();
    let found: Vec<(String, &str, bool)> =
        uses.iter().map(|u| (u.path.join("."), &source[u.offset..u.offset + u.len], u.guarded)).collect();
    let expected = [
        ("params.port", "params.port", false),
        ("vars.my-app.x", "vars[\"my-app\"].x", true),
        ("nope", "nope", false),
        ("a.b", "a.b", true),
        ("list", "list", false),
        ("i", "i", false),
    ];
    assert_eq!(found, expected.map(|(path, text, guarded)| (path.to_owned(), text, guarded)));
}

#[test]
fn node_side_predicates_ask_and_then_answer() {
    let expr =
        Expr::parse("changed and changed(\"site\") and not file_exists(\"/etc/\" ~ params.name)").unwrap();
    assert_eq!(expr.calls(), ["changed", "file_exists"]);
    let mut scope = names();
    let questions =
        [Probe::Changed(None), Probe::Changed(Some("site".into())), Probe::FileExists("/etc/web".into())];
    for (i, question) in questions.into_iter().enumerate() {
        assert_eq!(expr.eval(&scope), Err(EvalError::Needs(question.clone())));
        scope = scope.answer(question, i < 2);
    }
    assert_eq!(expr.eval(&scope), Ok(true.into()));
    assert_eq!(expr.eval_bool(&scope), Ok(true));
    assert!(Expr::parse("1").unwrap().eval_bool(&scope).is_err());
    // A part of that name is no question.
    assert!(Expr::parse("params.changed").unwrap().calls().is_empty());
}

#[test]
fn every_predicate_asks_its_question() {
    let asks = |source: &str| match Expr::parse(source).unwrap().eval(&names()) {
        Err(EvalError::Needs(probe)) => probe.to_string(),
        other => panic!("{source}: {other:?}"),
    };
    for source in [
        "file_exists(\"/a\")",
        "dir_exists(\"/a\")",
        "command_succeeds([\"test\", \"-d\", \"/a\"])",
        "process_running(\"nginx\")",
        "port_listening(80)",
        "hour_range(22, 4, \"+02:00\")",
        "day_of_week(\"sat,sun\", \"UTC\")",
        "in_window(\"nights\")",
        "changed",
        "changed(\"a\")",
    ] {
        let written = source.replace("\"sat,sun\"", "[\"sat\", \"sun\"]");
        assert_eq!(asks(&written), source);
    }
    assert_eq!(asks("hour_range(8, 17)"), "hour_range(8, 17, \"local\")");
    assert_eq!(asks("port_listening(params.port)"), "port_listening(80)");
}

#[test]
fn expressions_are_bounded() {
    let error = |source: &str| match Expr::parse(source) {
        Err(error) => error.message,
        Ok(expr) => expr.eval(&names()).unwrap_err().to_string(),
    };
    assert_eq!(error(&"1+".repeat(5000)), "the expression is longer than 8192 bytes");
    let deep = "the expression is nested more than 64 deep";
    for (open, close) in [("(", ")"), ("[", "]"), ("not ", ""), ("-", ""), ("{\"a\":", "}")] {
        assert_eq!(error(&format!("{}1{}", open.repeat(500), close.repeat(500))), deep, "{open}");
    }
    assert_eq!(error(&format!("1{}", "+1".repeat(1000))), deep);
    assert_eq!(error(&format!("a{}", ".a".repeat(1000))), deep);
    assert_eq!(error(&format!("a{}", "|upper".repeat(500))), deep);
    assert_eq!(error(&format!("{}1", "1 if true else ".repeat(400))), deep);
    // A thousand-fold list, five times over: 10^15 items if nothing stopped it.
    let mut source = "[1,1,1,1,1,1,1,1,1,1]".to_owned();
    for _ in 0..3 {
        source = format!("{source}|join(\",\")|replace(\"1\",\"{}\")|split(\",\")", "1,".repeat(200));
    }
    assert_eq!(error(&source), "the values it makes grow too large");
    let list = format!("[{}]", vec!["\"aaaaaaaaaaaaaaaa\""; 100].join(","));
    assert_eq!(
        error(&format!("{list}|join({list}|join({list}|join))")),
        "the values it makes grow too large"
    );
}

#[test]
fn text_with_expressions() {
    let eval = |text: &str| {
        let parsed =
            InterpolatedText::parse(text).map_err(|error| format!("{} @{}", error.message, error.offset))?;
        parsed.eval(&names()).map_err(|error| match error {
            EvalError::Failed { message, offset, .. } => format!("{message} @{offset}"),
            other @ (EvalError::Needs(_) | EvalError::Unobserved(_)) => other.to_string(),
        })
    };
    // A lone expression keeps its type.
    assert_eq!(eval("${{ params.port }}"), Ok(80.into()));
    assert_eq!(eval("${{ [1, {\"a\": {}}] }}").map(|v| v.to_string()), Ok("[1,{\"a\":{}}]".into()));
    assert_eq!(eval(" ${{ params.port }}"), Ok(" 80".into()));
    assert_eq!(eval("http://${{params.name}}:${{ params.port }}/"), Ok("http://web:80/".into()));
    assert_eq!(eval("${{ \"}}\" }}x"), Ok("}}x".into()));
    assert_eq!(eval("plain {{ x }} $ {"), Ok("plain {{ x }} $ {".into()));
    assert_eq!(eval("$${{ github.ref }} ${{ params.port }}"), Ok("${{ github.ref }} 80".into()));
    assert_eq!(eval(""), Ok("".into()));
    assert_eq!(
        eval("ä ${{ params.prot }}").unwrap_err(),
        "`params.prot` is not defined; did you mean `params.port`? @7"
    );
    assert_eq!(eval("ä ${{ 1 + }}").unwrap_err(), "expected a value, found the end @11");
    assert_eq!(eval("a ${{ 1 ").unwrap_err(), "`${{` is never closed @2");
    assert!(eval("a ${{ params }}").unwrap_err().starts_with("a map cannot stand in text"));
    assert_eq!(InterpolatedText::parse("$${{ x").unwrap().exprs().count(), 0);
    let text = InterpolatedText::parse("a ${{ params.port }}").unwrap();
    let at: Vec<(&str, usize)> = text.exprs().map(|(expr, at)| (expr.source(), at)).collect();
    assert_eq!(at, [(" params.port ", 5)]);
}
