//! CFG-2: templates render with vars and traits, strictly; an endless or exploding one is
//! a clear error, never a hang.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use lang::{Template, Value};

fn params() -> Value {
    let upstreams = Value::Map(BTreeMap::from([
        ("a".to_owned(), Value::from("10.0.0.1")),
        ("b".to_owned(), Value::from("10.0.0.2")),
    ]));
    Value::Map(BTreeMap::from([
        ("port".to_owned(), Value::Int(8080)),
        ("tls".to_owned(), Value::Bool(false)),
        ("hosts".to_owned(), vec!["x", "y"].into()),
        ("none".to_owned(), Value::List(Vec::new())),
        ("upstreams".to_owned(), upstreams),
    ]))
}

fn render(source: &str) -> Result<String, String> {
    let template = Template::parse("t.j2", source).map_err(|error| error.to_string())?;
    template.render(&lang::Names::new().with("params", params())).map_err(|error| error.to_string())
}

#[test]
fn renders_what_operators_write() {
    let source = "\
# managed
{# not shown #}
server {
  listen {{ params.port }}{% if params.tls %} ssl{% endif %};
  {% for name, address in params.upstreams %}
  server {{ address }};{{ \" # last\" if loop.last else \"\" }}
  {% endfor %}
  {% for host in params.none %}
  never
  {% else %}
  nobody
  {% endfor %}
  {% set all = params.hosts|join(\" \") -%}
  server_name {{ all|upper }};
  {% raw %}{{ as it is }} {% if %}{% endraw %}
  {% if params.port == 80 %}a{% elif params.port > 8000 %}b{% else %}c{% endif %}
}
";
    let expected = "\
# managed
server {
  listen 8080;
  server 10.0.0.1;
  server 10.0.0.2; # last
  nobody
server_name X Y;
  {{ as it is }} {% if %}
  b
}
";
    assert_eq!(render(source).unwrap(), expected);
}

#[test]
fn white_space_is_kept_or_eaten_as_marked() {
    let cases = [
        ("a\n", "a\n"),
        ("a", "a"),
        ("a {{- \" b\" -}}  c", "a bc"),
        ("a\n{%- if true %} b{% endif %}\n", "a b\n"),
        ("x {# c #} y", "x  y"),
        ("x\n  {# c #}  \ny", "x\ny"),
        ("{% if true %}\nx\n{% endif %}\n", "x\n"),
        ("{% if true %}x{% endif %}\ny\n", "x\ny\n"),
        ("{% for h in params.hosts %}{{ h }},{% endfor %}", "x,y,"),
        (
            "{% for h in params.hosts if h != \"x\" %}{{ loop.index }}/{{ loop.length }}{{ h }}{% endfor %}",
            "1/1y",
        ),
        ("{% set x = 1 %}{% for h in params.hosts %}{% set x = 2 %}{% endfor %}{{ x }}", "1"),
        ("{{ {\"a\": {\"b\": 1}}.a.b }}", "1"),
        ("${HOME} {x} {", "${HOME} {x} {"),
        ("{% raw -%}  {{ x }}  {%- endraw %}!", "{{ x }}!"),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source).as_deref(), Ok(expected), "{source:?}");
    }
}

#[test]
fn mistakes_name_their_place() {
    let cases = [
        ("a\n  {{ params.prot }}", "t.j2:2:6: `params.prot` is not defined; did you mean `params.port`?"),
        ("ä {{ nope }}", "t.j2:1:6: `nope` is not defined"),
        ("{{ params.tls|uper }}", "t.j2:1:15: unknown filter `uper`; did you mean `upper`?"),
        ("\n{{ params.port", "t.j2:2:1: `{{` is never closed with `}}`"),
        ("{% if true %}", "t.j2:1:4: `if` is never closed with `{% endif %}`"),
        ("{% endif %}", "t.j2:1:4: `endif` does not close the block that is open here"),
        (
            "{% for x in params.hosts %}{% endif %}",
            "t.j2:1:31: `endif` does not close the block that is open here",
        ),
        ("{% if true %}{% else %}{% else %}{% endif %}", "t.j2:1:27: `else` has no block to belong to"),
        ("{% include \"x\" %}", "t.j2:1:4: there is no `include`: a template stands alone"),
        ("{% fro x in y %}", "t.j2:1:4: unknown tag `fro`; did you mean `for`?"),
        ("{% raw %} x", "t.j2:1:1: `{% raw %}` is never closed with `{% endraw %}`"),
        ("{# x", "t.j2:1:1: `{#` is never closed with `#}`"),
        ("{{ params.hosts }}", "t.j2:1:4: a list cannot stand in text; write `|join(\", \")`"),
        (
            "{% if params.port %}{% endif %}",
            "t.j2:1:7: a condition must be true or false, and this is a value of type int",
        ),
        (
            "{% for a, b in params.hosts %}{% endfor %}",
            "t.j2:1:16: each item must be a list of 2 to be unpacked",
        ),
        (
            "{% for a in 3 %}{% endfor %}",
            "t.j2:1:13: `for` goes over a list or a map, not a value of type int",
        ),
        (
            "{{ file_exists(\"/x\") }}",
            "t.j2:1:4: `file_exists(\"/x\")` is known only on the node, in `when:`",
        ),
        // The same refusal as in `when:`, because it is the same code.
        (
            "{{ \"1.10\" < \"1.9\" }}",
            "t.j2:1:4: \"1.10\" < \"1.9\" would compare versions as text; write version(a) < version(b), or `|int` for numbers",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source).unwrap_err(), expected, "{source}");
    }
}

#[test]
fn names_leave_out_what_the_template_sets() {
    let source = "{% set a = vars.x %}{{ a.b }}{{ params.port }}\n{% for h in params.hosts if h != node.name %}{{ h.z ~ loop.index }}{% endfor %}{{ h }}{{ traits.q|default(1) }}";
    let template = Template::parse("t", source).unwrap();
    let names: Vec<String> = template.names().into_iter().collect();
    assert_eq!(names, ["h", "node.name", "params.hosts", "params.port", "traits.q", "vars.x"]);
    let port = &template.uses()[1];
    assert_eq!((port.path.join("."), port.line, port.column, port.len), ("params.port".into(), 1, 33, 11));
    assert!(template.uses().iter().any(|name| name.path[0] == "traits" && name.guarded));
}

/// Whatever a template tries, it ends and says why. Without the bounds most of these would
/// run for years or eat all memory.
#[test]
fn endless_and_exploding_templates_end() {
    let list = |n: usize| format!("[{}]", vec!["1"; n].join(","));
    let nested = |depth: usize| {
        format!(
            "{}x{}",
            format!("{{% for i in {} %}}", list(100)).repeat(depth),
            "{% endfor %}".repeat(depth)
        )
    };
    let doubling = format!("{{% set a = \"12345678\" %}}{}{{{{ a }}}}", "{% set a = a ~ a %}".repeat(60));
    let lists = format!("{{% set a = [1] %}}{}", "{% set a = a + a %}".repeat(60));
    let maps = format!("{{% set a = {{\"k\": 1}} %}}{}", "{% set a = {\"x\": a, \"y\": a} %}".repeat(60));
    let output = format!(
        "{{% set a = \"{}\" %}}{{% for i in {} %}}{{{{ a }}}}{{% endfor %}}",
        "x".repeat(4000),
        list(400)
    );
    let cases = [
        (nested(30), "it takes too many steps to evaluate"),
        (nested(33), "blocks are nested more than 32 deep"),
        (doubling, "the text grows beyond 4194304 bytes"),
        (lists, "the values it makes grow too large"),
        (maps, "the values it makes grow too large"),
        (output, "the output grows beyond 1048576 bytes"),
        (
            format!("{{{{ {}1{} }}}}", "(".repeat(200), ")".repeat(200)),
            "the expression is nested more than 64 deep",
        ),
        ("x".repeat(300_000), "the template is longer than 262144 bytes"),
        ("{% if true %}".repeat(10_000), "blocks are nested more than 32 deep"),
    ];
    for (source, expected) in cases {
        let error = render(&source).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
