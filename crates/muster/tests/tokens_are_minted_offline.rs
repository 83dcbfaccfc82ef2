//! ENR-1, ENR-9: `muster token mint` needs two files and no network; what it mints holds, and
//! what would not hold is not minted.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use test_support::programs::repo::{Control, changes, code, err, fleet_yaml, muster, out, publish};
use trust::token::{self, KeySource, TlsTermination};

#[tokio::test(flavor = "multi_thread")]
async fn the_token_alone_is_on_standard_output_and_holds() {
    let control = Control::start().await;
    let trust = control
        .operator()
        .await
        .call(&server::api::HEAD, server::api::operation::Empty {})
        .await
        .unwrap()
        .trust;
    let Control { dir, running, .. } = control;
    running.stop().await;
    let output =
        muster(dir.path(), &["token", "mint", "web-1.test", "--data", "data", "--ssh-host-key"]).await;
    assert_eq!(code(&output), 0, "{}", err(&output));
    let text = out(&output);
    assert_eq!(text.lines().count(), 1);
    let key = trust::SigningKey::from_seed(&[3; 32]).public();
    let claims = token::verify(text.trim(), &trust.root, "web-1.test", &key, cli::clock::now()).unwrap();
    assert_eq!((claims.key, claims.servers.len()), (KeySource::SshHost, 1));
    assert_eq!(claims.trust, trust.digest().unwrap());
    assert_eq!(claims.expires_at.since(claims.issued_at), Duration::from_secs(3600));
    assert!(err(&output).contains("muster-agent join"), "{}", err(&output));
}

/// A host that no entry matches can join, and gets nothing: whoever mints is warned where that can be known.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_no_entry_matches_is_named_where_the_fleet_can_be_asked() {
    let control = Control::start().await;
    let mint = async |host: &str| {
        let output = muster(control.dir.path(), &["token", "mint", host, "--data", "data"]).await;
        assert_eq!((code(&output), out(&output).lines().count()), (0, 1), "{}", err(&output));
        err(&output)
    };
    let warning = "warning: no entry of what is published matches";
    assert!(!mint("db-1.test").await.contains(warning), "nothing is published yet");
    let nodes = "nodes:\n  - match: [a.test, \"web-*\"]\n".to_owned();
    let fleet = changes(&[("fleet.yaml", fleet_yaml()), ("nodes.yaml", nodes)]);
    publish(&mut control.publisher().await, fleet).await;
    for named in ["a.test", "web-7"] {
        assert!(!mint(named).await.contains(warning));
    }
    let warned = mint("db-1.test").await;
    assert!(warned.contains(&format!("{warning} db-1.test: it can join, and gets no release")), "{warned}");
    assert!(warned.contains("then muster publish --operator data/operator.json"), "{warned}");
    let Control { dir, running, .. } = control;
    running.stop().await;
    let offline = muster(dir.path(), &["token", "mint", "db-1.test", "--data", "data"]).await;
    assert_eq!(code(&offline), 0);
    assert!(!err(&offline).contains("warning"), "{}", err(&offline));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_a_key_lives_for_an_hour_at_most() {
    let control = Control::start().await;
    let mint = async |arguments: &[&str]| {
        let mut all = vec!["token", "mint", "web-1.test", "--data", "data"];
        all.extend(arguments);
        muster(control.dir.path(), &all).await
    };
    let long = mint(&["--valid", "2h"]).await;
    assert_eq!((code(&long), out(&long)), (1, String::new()));
    assert!(err(&long).contains("name the key with --fingerprint"), "{}", err(&long));
    let bound = trust::SigningKey::from_seed(&[3; 32]).public().fingerprint();
    assert_eq!(code(&mint(&["--valid", "7d", "--fingerprint", &bound]).await), 0);
    assert_eq!(code(&mint(&["--fingerprint", "SHA256:short"]).await), 1);
    assert_eq!(code(&mint(&["--valid", "soon"]).await), 1);
}

/// IDN-4: a proxy reads the token on its way, and could enroll a key of its own with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_the_way_through_a_proxy_names_a_key() {
    let control = Control::start().await;
    let mint = async |arguments: &[&str]| {
        let mut all = vec!["token", "mint", "web-1.test", "--data", "data", "--proxy", "https://p.test:443"];
        all.extend(arguments);
        muster(control.dir.path(), &all).await
    };
    let unbound = mint(&[]).await;
    assert_eq!((code(&unbound), out(&unbound)), (1, String::new()));
    assert!(err(&unbound).contains("must name the key"), "{}", err(&unbound));
    assert!(err(&unbound).contains("`muster-agent fingerprint` prints it"), "{}", err(&unbound));
    let key = trust::SigningKey::from_seed(&[3; 32]).public();
    let bound = mint(&["--fingerprint", &key.fingerprint()]).await;
    assert_eq!(code(&bound), 0, "{}", err(&bound));
    let claims = token::peek(out(&bound).trim()).unwrap();
    assert_eq!(claims.tls_termination, TlsTermination::Proxy);
    assert_eq!(claims.expected_pubkey_fingerprint, Some(key.fingerprint()));
    assert_eq!(claims.servers, ["https://p.test:443"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_keys_and_bad_names_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let none = muster(dir.path(), &["token", "mint", "web-1.test"]).await;
    assert!(err(&none).contains("there is no root key at muster-data/root.key"), "{}", err(&none));
    let control = Control::start().await;
    let bad = muster(control.dir.path(), &["token", "mint", "Web 1", "--data", "data"]).await;
    assert_eq!(code(&bad), 1);
    assert!(err(&bad).contains("is not a hostname"), "{}", err(&bad));
}
