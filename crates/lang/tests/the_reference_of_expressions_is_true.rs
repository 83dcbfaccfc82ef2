//! CFG-3: what docs/reference/fleet-repo.md says of filters, of white space in templates and of the order of
//! maps.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use lang::{Expr, Names, Template, Value};

fn value(json: serde_json::Value) -> Value {
    serde_json::from_value(json).unwrap()
}

fn names() -> Names<'static> {
    Names::new().with(
        "params",
        value(serde_json::json!({
            "m": {"b": 1, "a": 2}, "l": ["b", "a", "b"], "t": " Ab ", "e": [],
        })),
    )
}

#[test]
fn filters() {
    for (source, wanted) in [
        ("params.nosuch | default(7)", "7"),
        ("params.t | trim | upper", "AB"),
        ("\"aba\" | replace(\"a\", \"c\")", "cbc"),
        ("\"x  y\" | split | length", "2"),
        ("\"x,y\" | split(\",\") | last", "y"),
        ("\"on\" | bool", "true"),
        ("\"12\" | int", "12"),
        ("params.l | unique | join", "ba"),
        ("params.l | sort | join(\",\")", "a,b,b"),
        ("params.m | keys | join(\",\")", "a,b"),
        ("params.m | values | join(\",\")", "2,1"),
        ("params.m | tojson", "{\"a\":2,\"b\":1}"),
        ("params.e | first | default(\"none\")", "none"),
        ("upper(\"x\")", "X"),
    ] {
        let got = Expr::parse(source).unwrap().eval(&names()).unwrap();
        assert_eq!(got.to_string(), wanted, "{source}");
    }
}

#[test]
fn white_space_and_the_order_of_maps() {
    let source = "begin\n  {% for k, v in params.m %}\n{{ k }}={{ v }}\n{% endfor %}\n{# gone #}\na {{- \" b \" -}} c\n";
    let template = Template::parse("t", source).unwrap();
    assert_eq!(template.render(&names()).unwrap(), "begin\na=2\nb=1\na b c\n");
}
