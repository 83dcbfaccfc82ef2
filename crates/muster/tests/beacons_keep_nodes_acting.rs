//! ROL-4, IDN-8: `muster beacon` signs that what is published still counts, with the release key or with a key that
//! can sign nothing else; `muster status` warns from three quarters of a channel's freshness on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use cli::beacon::{BeaconError, BeaconSigner};
use cli::publish::{PublishError, Publisher};
use cli::screen::Screen;
use cli::signer::FleetSigner;
use cli::{credentials, status};
use model::Timestamp;
use server::api::operation::Empty;
use server::api::{self, EarlierReleaseView, StatusView};
use test_support::programs::repo::{
    Control, app_module, changes, code, err, fleet_yaml, muster, nodes_yaml, out, publish,
};
use trust::SigningKey;

fn repo() -> Vec<(&'static str, String)> {
    let ids: BTreeMap<String, String> = [("a.test".to_owned(), "1".to_owned())].into();
    vec![
        ("fleet.yaml", fleet_yaml()),
        ("modules/app/module.yaml", app_module("hello")),
        ("nodes.yaml", nodes_yaml(&ids)),
    ]
}

async fn view(control: &Control) -> StatusView {
    control.operator().await.call(&api::STATUS, Empty {}).await.unwrap()
}

fn signer(control: &Control, key: impl Into<FleetSigner>) -> BeaconSigner {
    BeaconSigner { credentials: control.credentials.clone(), key: key.into(), channel: None, release: None }
}

fn release_key(control: &Control) -> FleetSigner {
    credentials::release_key(None, &control.operator_file()).unwrap().key
}

#[tokio::test(flavor = "multi_thread")]
async fn a_beacon_is_signed_for_what_is_published() {
    let control = Control::start().await;
    let of_release = signer(&control, release_key(&control));
    let nothing = of_release.sign(Timestamp(1)).await;
    assert!(matches!(nothing, Err(BeaconError::NothingPublished(None))), "{nothing:?}");
    publish(&mut control.publisher().await, changes(&repo())).await;
    let at = view(&control).await.channels[0].signed_at.plus(Duration::from_millis(5));
    let signed = of_release.sign(at).await.unwrap();
    assert_eq!((signed.len(), signed[0].beacon.seq), (1, 1));
    assert_eq!(view(&control).await.channels[0].signed_at, at);
    let stranger = signer(&control, SigningKey::from_seed(&[7; 32])).sign(at).await;
    assert!(matches!(stranger, Err(BeaconError::OtherKey(_))), "{stranger:?}");
    let older = of_release.sign(at.minus(Duration::from_secs(1))).await;
    let Err(BeaconError::Call(error)) = older else { panic!("{older:?}") };
    assert!(error.is(wire::Code::BeaconOlder), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_may_have_a_key_that_signs_beacons_alone() {
    let key = SigningKey::from_seed(&[5; 32]);
    let control = Control::start_with(&[("beacon.key", key.to_file().to_string())]).await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let at = view(&control).await.channels[0].signed_at.plus(Duration::from_millis(5));
    let found = credentials::beacon_key(None, &control.operator_file()).unwrap();
    assert_eq!(found.public(), key.public(), "the one beside the credentials");
    signer(&control, found).sign(at).await.unwrap();
    assert_eq!(view(&control).await.channels[0].signed_at, at);
    signer(&control, release_key(&control)).sign(at.plus(Duration::from_millis(1))).await.unwrap();
    let path = control.dir.path().join("data/beacon.key");
    let key = credentials::ReleaseKey { key: key.into(), path };
    let publisher = Publisher::connect(control.credentials.clone(), [key]).await;
    assert!(matches!(publisher.map(|_| ()), Err(PublishError::OtherKey(_))), "it publishes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verb_says_how_long_it_counts_and_what_is_wrong() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let operator = control.operator_file().display().to_string();
    let run = async |arguments: &[&str]| {
        muster(control.dir.path(), &[&["beacon", "--operator", &operator], arguments].concat()).await
    };
    let signed = run(&[]).await;
    assert_eq!(code(&signed), 0, "{}", err(&signed));
    assert!(out(&signed).starts_with("channel stable: release 1 still counts, for 24 h"), "{}", out(&signed));
    let nowhere = run(&["--channel", "lab"]).await;
    assert_eq!(code(&nowhere), 1);
    assert!(err(&nowhere).contains("nothing is published in channel lab"), "{}", err(&nowhere));
    assert_eq!(code(&run(&["--every", "0s"]).await), 1);
}

/// Release 1 went to all at once; 2 and 3 by rollouts, the first of which is kept.
async fn after_rollouts(control: &Control) {
    let waves = "rollouts:\n  stable:\n    waves:\n      - {name: rest, gate: {soak: 30m}}\n";
    let by_rollout = |greeting: &str| {
        let mut files = repo();
        files[1].1 = app_module(greeting);
        files.push(("rollouts.yaml", waves.to_owned()));
        changes(&files)
    };
    publish(&mut control.publisher().await, changes(&repo())).await;
    publish(&mut control.publisher().await, by_rollout("second")).await;
    publish(&mut control.publisher().await, by_rollout("third")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_release_is_signed_for_by_its_number_alone() {
    let control = Control::start().await;
    after_rollouts(&control).await;
    let operator = control.operator_file().display().to_string();
    let run = async |arguments: &[&str]| {
        muster(control.dir.path(), &[&["beacon", "--operator", &operator], arguments].concat()).await
    };
    let stored = async |seq: &str| {
        let sql = format!("SELECT count(*) FROM beacon WHERE seq = {seq}");
        let database = rusqlite::Connection::open(control.dir.path().join("data/muster.db")).unwrap();
        database.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert!(out(&run(&[]).await).starts_with("channel stable: release 3 still counts, for 24 h"));
    assert_eq!((stored("2").await, stored("3").await), (0, 1), "without its number only the newest is");
    let signed = run(&["--release", "2"]).await;
    let said = out(&signed);
    assert_eq!(code(&signed), 0, "{}", err(&signed));
    assert!(said.starts_with("channel stable: release 2 still counts, for 24 h"), "{said}");
    assert!(said.ends_with(", beside the newest, 3\n"), "{said}");
    assert_eq!(stored("2").await, 1);

    for (arguments, says, next) in [
        (&["--release", "1"][..], "no rollout has release 1 in use", "`muster rollout"),
        (&["--release", "3"], "release 3 is not before the newest", "`muster beacon"),
        (&["--release", "9"], "release 9 is not kept", "`muster release"),
        (&["--release", "2", "--channel", "lab"], "nothing is published in channel lab", "`muster status"),
        (&["--release", "1", "--every", "1h"], "no rollout has release 1 in use", "`muster rollout"),
    ] {
        let refused = run(arguments).await;
        assert_eq!(code(&refused), 1, "{arguments:?}");
        let said = err(&refused);
        assert!(said.contains(says) && said.contains(next), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_warns_of_an_earlier_release_too() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let mut view = view(&control).await;
    let signed_at = view.channels[0].signed_at;
    let text = |view: &StatusView| status::text(view, Screen::of_process(false));
    assert!(!text(&view).contains("no signature since"));
    for (fresh_until, want) in [
        (signed_at.plus(Duration::from_secs(3600)), "stop taking actions at"),
        (signed_at.minus(Duration::from_secs(1)), "take no actions since"),
    ] {
        view.channels[0].earlier_due = vec![EarlierReleaseView { seq: 41, signed_at, fresh_until }];
        let text = text(&view);
        assert!(text.contains(&format!("no signature since {signed_at} for release 41")), "{text}");
        assert!(
            text.contains(want) && text.contains("`muster beacon --channel stable --release 41`"),
            "{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_warns_from_three_quarters_on() {
    let control = Control::start().await;
    publish(&mut control.publisher().await, changes(&repo())).await;
    let whole = view(&control).await;
    let text = |hours: u64| {
        let mut view = whole.clone();
        let age = Duration::from_secs(3600 * hours);
        let channel = &mut view.channels[0];
        channel.signed_at = channel.signed_at.minus(age);
        channel.fresh_until = channel.fresh_until.minus(age);
        channel.warns_at = channel.warns_at.map(|at| at.minus(age));
        status::text(&view, Screen::of_process(false))
    };
    assert!(!text(17).contains("no signature since"), "{}", text(17));
    for (hours, want) in [(19, "nodes stop taking actions at"), (25, "nodes take no actions since")] {
        let text = text(hours);
        assert!(text.contains("channel stable: no signature since ") && text.contains(want), "{text}");
        assert!(text.contains("`muster publish --repo DIR` or `muster beacon`"), "{text}");
    }
}
