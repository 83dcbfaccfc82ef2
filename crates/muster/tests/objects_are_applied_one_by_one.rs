//! SYN-9, OPS-1: what becomes of objects is told one by one, refused ones with why, and exit
//! codes say it to scripts; mistakes in manifests are told at once, and nothing is sent then.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use cli::exit::Exit;
use cli::object::{changes, exit, list, results_text, show};
use cli::screen::Screen;
use model::Timestamp;
use model::condition::Direction;
use model::delta::render;
use serde_json::{Value, json};
use server::api::objects::{ApplyOutcome, ObjectName, ObjectResult, ObjectView};
use test_support::programs::repo::{code, err, muster, out, write};

fn done(name: &str, outcome: ApplyOutcome) -> ObjectResult {
    let object = ObjectName {
        node: "web-1.test".to_owned(),
        kind: "App".to_owned(),
        namespace: "web-1.test".to_owned(),
        name: name.to_owned(),
    };
    let why =
        (outcome == ApplyOutcome::Refused).then(|| "its release does not synchronize this kind".to_owned());
    ObjectResult { object, outcome, why, before: None, after: None }
}

#[test]
fn each_object_is_told_and_all_are_counted() {
    let screen = Screen::of_process(false);
    let results = [
        done("new", ApplyOutcome::Created),
        done("other", ApplyOutcome::Changed),
        done("same", ApplyOutcome::Unchanged),
        done("no", ApplyOutcome::Refused),
    ];
    let want = "\
created    web-1.test  App/web-1.test/new
changed    web-1.test  App/web-1.test/other
refused    web-1.test  App/web-1.test/no  its release does not synchronize this kind
1 refused, 1 created, 1 changed, 1 unchanged
";
    assert_eq!(results_text(&results, false, screen), want);
    assert!(
        results_text(&results, true, screen)
            .ends_with("it would be: 1 refused, 1 created, 1 changed, 1 unchanged\n")
    );
    assert_eq!(results_text(&[], false, screen), "nothing to do\n");
}

#[test]
fn exit_codes_say_what_became_of_objects() {
    let (good, same, bad) = (
        done("a", ApplyOutcome::Created),
        done("b", ApplyOutcome::Unchanged),
        done("c", ApplyOutcome::Refused),
    );
    let of = |results: &[&ObjectResult], dry_run| {
        exit(&results.iter().map(|done| (*done).clone()).collect::<Vec<_>>(), dry_run)
    };
    assert_eq!(of(&[&good, &same], false), Exit::Ok);
    assert_eq!(of(&[&good, &same], true), Exit::Differences);
    assert_eq!(of(&[&same], true), Exit::Ok);
    assert_eq!(of(&[&good, &bad], false), Exit::SomeFailed);
    assert_eq!(of(&[&good, &bad], true), Exit::SomeFailed);
    assert_eq!(of(&[&bad], false), Exit::Refused);
}

#[test]
fn a_difference_is_shown_field_by_field() {
    let app = |image: &str| json!({"kind": "App", "spec": {"image": image, "ports": [80]}});
    let mut changed = done("shop", ApplyOutcome::Changed);
    (changed.before, changed.after) = (Some(app("shop:1")), Some(app("shop:2")));
    let mut gone = done("old", ApplyOutcome::Deleted);
    gone.before = Some(app("old:1"));
    let want = "\
- web-1.test  App/web-1.test/old
~ web-1.test  App/web-1.test/shop
    spec.image: shop:1 -> shop:2
";
    assert_eq!(render(&changes(&[changed, gone, done("same", ApplyOutcome::Unchanged)])), want);
}

fn view(way: Direction) -> ObjectView {
    ObjectView {
        node: "web-1.test".parse().unwrap(),
        way,
        kind: "App".to_owned(),
        namespace: String::new(),
        name: "shop".to_owned(),
        uid: "u-1".to_owned(),
        digest: model::Digest::of(b"x"),
        size: 120,
        rev: 7,
        at: Timestamp(0),
        trace: None,
        delivered: Some(true),
        refused: None,
        manifest: Some(json!({"kind": "App", "metadata": {"name": "shop"}, "spec": {"ports": [80]}})),
        status: Some(json!({"phase": "Running"})),
    }
}

#[test]
fn an_object_is_shown_as_its_manifest_with_its_status() {
    let screen = Screen::of_process(false);
    let text = show(&view(Direction::Down), screen);
    assert!(
        text.starts_with("# web-1.test  App/shop\n# the control plane's word for the node\n# uid u-1"),
        "{text}"
    );
    let yaml = "kind: App\nmetadata:\n  name: shop\nspec:\n  ports:\n  - 80\nstatus:\n  phase: Running\n";
    assert!(text.ends_with(yaml), "{text}");
    let refused = ObjectView { refused: Some("no such field".to_owned()), ..view(Direction::Down) };
    let text = show(&refused, screen);
    assert!(text.contains("# delivered: refused: no such field\n# next: "), "{text}");
    let rows = list(&[view(Direction::Down), view(Direction::Up), refused], screen);
    let ends: Vec<&str> = rows.lines().map(|line| line.split("  ").last().unwrap().trim()).collect();
    assert_eq!(ends, ["DELIVERED", "yes", "-", "refused: no such field"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_told_at_once_and_nothing_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("m/a.yaml", "kind: App\nmetadata: {name: one}\n---\nkind: App\n".to_owned()),
        ("m/b.json", "{\"kind\": \"App\", \"metadata\": {}}".to_owned()),
    ];
    write(dir.path(), &files);
    // There is no control plane here: the mistakes come first.
    let output = muster(dir.path(), &["object", "apply", "-f", "m"]).await;
    assert_eq!(code(&output), 1);
    let text = err(&output);
    for told in [
        "error: 2 mistakes in manifests\n",
        "\n  m/a.yaml:",
        "  no-name  ",
        "\n  m/b.json",
        "hint: nothing was sent",
    ] {
        assert!(text.contains(told), "{told:?} in {text}");
    }
    let json = muster(dir.path(), &["object", "diff", "-f", "m", "--json"]).await;
    let parsed: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(parsed["error"]["details"][1]["file"], "m/b.json", "{}", out(&json));
    let nothing = muster(dir.path(), &["object", "apply", "-f", "m/none.yaml"]).await;
    assert!(err(&nothing).contains("cannot read m/none.yaml"), "{}", err(&nothing));
}
