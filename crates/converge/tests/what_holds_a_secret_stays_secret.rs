//! SEC-3, CFG-2: what is made of a secret is known as such whatever expression made it, stands only where nobody sees it,
//! and is hidden; what a node cannot open blocks what is made of it and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::module::{Module, Params};
use catalog::types::{FileContent, Spec};
use converge::bind::{BindPart, Inputs, bind};
use converge::{BoundResource, Desired};
use lang::secret::SecretResults;
use lang::{OpenedSecrets, Value};
use serde_json::json;
use zeroize::Zeroizing;

const PASSWORD: &str = "planted-word";

fn opened() -> OpenedSecrets {
    let value = |bytes: &[u8]| Ok(Zeroizing::new(bytes.to_vec()));
    let values: SecretResults = BTreeMap::from([
        ("team/word".to_owned(), value(format!("{PASSWORD}\n").as_bytes())),
        ("team/bytes".to_owned(), value(&[0xff, 0xfe])),
        ("team/lost".to_owned(), Err("its wrap is of another node".to_owned())),
    ]);
    OpenedSecrets::opened(values)
}

fn bound(resources: serde_json::Value, secrets: &OpenedSecrets) -> Desired {
    let module: Module = serde_json::from_value(json!({
        "name": "app",
        "params": {"word": {"type": "secret"}, "users": {"type": "list"}, "plain": {"type": "string", "default": "p"}},
        "resources": resources,
        "templates": {
            "word": "x={{ params.word|upper }}\n",
            "set": "{% set y = vars.app.word %}{{ y }}",
            "plain": "x={{ params.plain }}\n",
            "item": "{{ item.password }}",
        },
    }))
    .unwrap();
    let params: Params = serde_json::from_value(json!({
        "node": {"channel": "stable"},
        "modules": ["app"],
        "vars": {
            "app.word": "${{ secret(\"team/word\") }}",
            "app.users": [
                {"name": "amy", "password": "${{ secret(\"team/word\") }}"},
                {"name": "bob", "password": "none"},
            ],
        },
    }))
    .unwrap();
    let modules = BTreeMap::from([("app".to_owned(), Arc::new(module))]);
    let traits = Value::Map(BTreeMap::new());
    bind(&Inputs {
        modules: &modules,
        params: &params,
        hostname: Some("web-1"),
        traits: Some(&traits),
        own_paths: &[],
        secrets,
    })
}

fn one(resource: serde_json::Value, secrets: &OpenedSecrets) -> BoundResource {
    let desired = bound(json!([resource]), secrets);
    assert!(desired.modules[0].error.is_none(), "{:?}", desired.modules[0].error);
    BoundResource::clone(&desired.modules[0].resources[0])
}

fn text(resource: &BoundResource) -> String {
    match &resource.spec {
        Ok(Spec::File(file)) => match &file.content {
            Some(FileContent::Text { text, .. }) => text.to_string(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_expression_loses_the_secrecy() {
    let secrets = opened();
    for (attribute, written) in [
        (json!({"content": "${{ secret(\"team/word\") }}"}), "planted-word\n"),
        (json!({"content": "${{ params.word }}"}), "planted-word\n"),
        (json!({"content": "a ${{ params.word }} b"}), "a planted-word b"),
        (json!({"content": "${{ params.word|replace(\"-\", \"\")|upper }}"}), "PLANTEDWORD"),
        (json!({"content": "${{ vars.app.word|length }}"}), "12"),
        (json!({"content": "${{ [params.word, \"x\"]|join(\",\") }}"}), "planted-word,x"),
        (json!({"content": "${{ params[\"word\"] }}"}), "planted-word\n"),
        (json!({"content": "${{ params|tojson }}"}), ""),
        (json!({"template": "word"}), "x=PLANTED-WORD\n"),
        (json!({"template": "set"}), "planted-word"),
    ] {
        let file = one(json!({"type": "file", "name": "/etc/x", "attributes": attribute}), &secrets);
        assert!(file.holds_secret && file.sensitive, "{attribute}");
        assert!(written.is_empty() || text(&file) == written, "{attribute}: {}", text(&file));
        let Ok(Spec::File(spec)) = &file.spec else { panic!("{:?}", file.spec) };
        assert_eq!(spec.ownership.mode, Some(0o600), "{attribute}");
        assert!(!format!("{file:?}").to_lowercase().contains("planted"), "{attribute}");
    }
    for attribute in [json!({"content": "${{ params.plain }}"}), json!({"template": "plain"})] {
        let file = one(json!({"type": "file", "name": "/etc/x", "attributes": attribute}), &secrets);
        assert!(!file.holds_secret && !file.sensitive, "{attribute}");
    }
    let bytes = one(
        json!({"type": "file", "name": "/x", "attributes": {"content": "${{ secret(\"team/bytes\") }}"}}),
        &secrets,
    );
    assert!(
        matches!(&bytes.spec, Ok(Spec::File(file)) if matches!(&file.content, Some(FileContent::Bytes { bytes, .. }) if **bytes == [0xff, 0xfe]))
    );
}

#[test]
fn it_stands_where_nobody_sees_it_and_nowhere_else() {
    let secret = "${{ params.word }}";
    let refused = [
        (json!({"type": "file", "name": "/etc/${{ params.word }}"}), BindPart::Name),
        (
            json!({"type": "file", "name": "/x", "attributes": {"content": "a", "owner": secret}}),
            BindPart::Attribute("owner".into()),
        ),
        (
            json!({"type": "exec", "name": "x", "attributes": {"command": ["echo", secret], "always": true}}),
            BindPart::Attribute("command".into()),
        ),
        (
            json!({"type": "exec", "name": "x", "attributes": {"command": ["a"], "always": true, "environment": {"A": secret}}}),
            BindPart::Attribute("environment".into()),
        ),
        (
            json!({"type": "line", "name": "x", "attributes": {"path": "/x", "line": secret}}),
            BindPart::Attribute("line".into()),
        ),
        (
            json!({"type": "service", "name": "x", "attributes": {"template": "word"}}),
            BindPart::Template("word".into()),
        ),
        (
            json!({"type": "file", "name": "/x", "attributes": {"content": secret, "backup": true}}),
            BindPart::Attribute("backup".into()),
        ),
    ];
    // Whoever may open them, and who may not.
    for secrets in [&opened(), OpenedSecrets::SEALED] {
        for (resource, part) in &refused {
            if *part == BindPart::Attribute("backup".into()) && secrets.text("team/word").is_none() {
                continue;
            }
            let error = one(resource.clone(), secrets).spec.unwrap_err();
            assert!(error.mistakes.iter().any(|mistake| mistake.part == *part), "{resource}: {error}");
            assert!(!error.to_string().contains("planted"), "{error}");
        }
        let when = json!({"type": "file", "name": "/x", "when": "params.word == \"a\"", "attributes": {"content": "a"}});
        let when = one(when, secrets);
        assert!(
            matches!(&when.when, converge::When::Failed(why) if why.to_string().contains("cannot stand here"))
        );
        let guard = json!({"type": "file", "name": "/x", "only_if": {"argv": ["test", secret]}, "attributes": {"content": "a"}});
        let error = one(guard, secrets).spec.unwrap_err();
        assert!(error.to_string().contains("the arguments of a command"), "{error}");
    }
    let stdin = json!({"type": "exec", "name": "x", "attributes": {"command": ["cat"], "always": true, "stdin": secret}});
    assert!(one(stdin, &opened()).spec.is_ok());
}

#[test]
fn only_the_items_of_a_loop_that_hold_one_are_secret() {
    let looped = json!([{
        "type": "file", "name": "/home/${{ item.name }}", "foreach": "${{ params.users }}",
        "attributes": {"content": "${{ item.password }}"},
    }, {
        "type": "file", "name": "/srv/${{ item.name }}", "foreach": "${{ params.users }}",
        "attributes": {"template": "item"},
    }]);
    let desired = bound(looped, &opened());
    let seen: Vec<(&str, bool)> =
        desired.resources().map(|resource| (resource.name.as_str(), resource.holds_secret)).collect();
    assert_eq!(seen, [("/home/amy", true), ("/home/bob", false), ("/srv/amy", true), ("/srv/bob", false)]);
    // Of a list that is computed nobody knows which of its items does.
    let looped = json!([{
        "type": "file", "name": "/home/x", "foreach": "${{ params.users + [] }}",
        "attributes": {"content": "${{ item.name }}"},
    }]);
    assert!(bound(looped, &opened()).resources().all(|resource| resource.holds_secret));
}

#[test]
fn what_cannot_be_opened_blocks_what_is_made_of_it_and_says_why() {
    let desired = bound(
        json!([
            {"type": "file", "name": "/lost", "attributes": {"content": "${{ secret(\"team/lost\") }}"}},
            {"type": "file", "name": "/absent", "attributes": {"content": "${{ secret(\"team/none\") }}"}},
            {"type": "file", "name": "/bytes", "attributes": {"content": "x ${{ secret(\"team/bytes\") }}"}},
            {"type": "file", "name": "/fine", "attributes": {"content": "x"}},
        ]),
        &opened(),
    );
    let by = |path: &str| desired.resources().find(|resource| resource.name == path).unwrap();
    assert!(by("/fine").spec.is_ok());
    for path in ["/lost", "/absent", "/bytes"] {
        let error = by(path).spec.as_ref().unwrap_err();
        assert!(error.mistakes.is_empty() && error.unobserved.len() == 1, "{path}: {error}");
    }
    let why: Vec<&str> = desired.blocked.values().map(String::as_str).collect();
    assert_eq!(
        why,
        [
            "secret `team/bytes` is not UTF-8, and can stand only as the whole content of a file",
            "secret `team/lost`: its wrap is of another node",
            "secret `team/none` is not in the release that this node holds",
        ]
    );
}

#[test]
fn what_is_shown_off_the_node_shows_that_there_is_one() {
    let file =
        one(json!({"type": "file", "name": "/x", "attributes": {"template": "word"}}), OpenedSecrets::HIDDEN);
    assert_eq!((text(&file).as_str(), file.sensitive, file.holds_secret), ("x=(SECRET)\n", false, true));
}

#[test]
fn the_ledger_keeps_nothing_of_it() {
    let custom = json!({
        "type": "custom", "name": "x", "on_remove": "delete",
        "attributes": {"script": "/x.sh", "sha256": "0".repeat(64), "params": {"token": "${{ params.word }}", "a": "b"}},
    });
    let custom = one(custom, &opened());
    assert!(matches!(&custom.spec, Ok(Spec::Custom(spec)) if spec.params.len() == 2));
    assert!(!format!("{custom:?}").contains("planted"));
}
