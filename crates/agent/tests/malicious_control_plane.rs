//! ROL-4, DLT-4, CNV-5: a control plane that was broken into holds the real CA and speaks the
//! real protocol, but not the release key. A real agent refuses whatever it makes up, says so
//! by code, keeps what it holds, and adopts the next honest release.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use model::exchange::{HeldRelease, Offer, SetOffer};
use model::log::FactBody;
use model::selection::SelectionEntry;
use model::{Digest, Edit, Timestamp};
use test_support::scripted::stage::{BLOB_PART, DAY, OfferPlan, RELEASE, Spoil, Stage, join, make, plan};
use test_support::scripted::{DaemonProcess, ScriptedControl, key, now};
use test_support::wait::until;
use trust::{Beacon, Header, signed};

/// A joined host with its daemon, and the control plane that it calls.
struct Scene {
    stage: Stage,
    daemon: DaemonProcess,
    root: PathBuf,
    _control: ScriptedControl,
    _dir: tempfile::TempDir,
}

impl Scene {
    /// The host holds release 5 and is converged on it.
    async fn at_release_5() -> Scene {
        let stage = Stage::default();
        let answers = stage.clone();
        let control =
            ScriptedControl::start(&["127.0.0.1"], move |parts, body| answers.answer(parts, &body)).await;
        let dir = tempfile::tempdir().unwrap();
        let (state, root) = (dir.path().join("state"), dir.path().join("root"));
        std::fs::create_dir_all(root.join("etc")).unwrap();
        join(&control, &state, &root);
        let daemon = DaemonProcess::start(&state, &root);
        let scene = Scene { stage, daemon, root, _control: control, _dir: dir };
        // Before its first contact it may not take a signal yet.
        until("the first contact", async || (scene.stage.play().check_ins > 0).then_some(())).await;
        scene.adopts(&plan(5, "five\n")).await;
        scene
    }

    fn motd(&self) -> String {
        std::fs::read_to_string(self.root.join("etc/motd")).unwrap_or_default()
    }

    /// An honest release is adopted and converged on.
    async fn adopts(&self, plan: &OfferPlan) {
        let made = make(plan);
        let header = signed::digest(&made.offer.header);
        {
            let mut play = self.stage.play();
            play.spoil = None;
            play.contents.extend(made.contents);
            play.offer = Some(made.offer);
        }
        until(&format!("release {} is adopted and converged on", plan.seq), async || {
            self.daemon.nudge();
            let play = self.stage.play();
            let held = play.held.as_ref().is_some_and(|held| held.header == header);
            // Its fact may come after a check-in that holds it.
            let said = play.facts.values().any(
                |fact| matches!(&fact.body, FactBody::Adopted { header: adopted, .. } if *adopted == header),
            );
            drop(play);
            (held && said && self.motd() == plan.motd).then_some(())
        })
        .await;
    }

    /// Since a fact nothing was adopted.
    fn holds_still(&self, what: &str, since: u64, held: Option<&HeldRelease>) {
        let play = self.stage.play();
        assert_eq!(play.held.as_ref(), held, "{what}");
        let mut new = play.facts.range(since + 1..).map(|(_, fact)| &fact.body);
        assert!(!new.any(|body| matches!(body, FactBody::Adopted { .. })), "{what}: it was adopted");
    }

    /// What is offered is refused by this code, told once, and changes nothing.
    async fn refuses(&mut self, what: &str, offer: Offer, code: &str) {
        let (before, held, asked) = {
            let play = self.stage.play();
            (play.facts.keys().next_back().copied().unwrap_or(0), play.held.clone(), play.blobs_asked)
        };
        self.stage.play().offer = Some(offer);
        let refusals = || {
            let play = self.stage.play();
            let new = play.facts.range(before + 1..).map(|(_, fact)| fact.body.clone());
            let refused = new.filter_map(|body| match body {
                FactBody::Refused { code, message } => Some((code, message)),
                FactBody::Adopted { .. } => panic!("{what}: it was adopted"),
                _ => None,
            });
            refused.collect::<Vec<_>>()
        };
        until(&format!("{what}: refused"), async || {
            self.daemon.nudge();
            (!refusals().is_empty()).then_some(())
        })
        .await;
        // Offered again and again, it is the same news.
        let contacts = self.stage.play().check_ins + 3;
        until("three more contacts", async || {
            self.daemon.nudge();
            (self.stage.play().check_ins >= contacts).then_some(())
        })
        .await;
        let told = refusals();
        assert_eq!(told.len(), 1, "{what}: told once: {told:?}");
        assert_eq!(told[0].0, code, "{what}: {}", told[0].1);
        assert!(!told[0].1.is_empty());
        let play = self.stage.play();
        assert_eq!(play.held, held, "{what}: it holds what it held");
        assert_eq!(play.blobs_asked, asked, "{what}: nothing of it was fetched");
        drop(play);
        assert_eq!(self.motd(), "five\n", "{what}");
        assert!(self.daemon.is_alive());
    }
}

/// Every way of making something up that the release key did not sign, or not for this node,
/// or not now.
fn made_up() -> Vec<(&'static str, Offer, &'static str)> {
    let six = || plan(6, "evil\n");
    let honest = make(&six()).offer;
    let with_header = |header| Offer { header, ..honest.clone() };
    let mut unsigned = honest.header.clone();
    unsigned.signatures.clear();
    let mut flipped = honest.header.clone();
    flipped.payload = flipped.payload.replace(r#""seq":6"#, r#""seq":7"#);
    let mut other_sort = make(&OfferPlan { label: Some("c"), ..six() }).offer.header;
    let beacon = beacon_for(&honest, RELEASE, now());
    other_sort.signatures = beacon.signatures.clone();
    let mut of_another = honest.clone();
    of_another.entry.root = Digest::of(b"another node's");
    let mut swapped = honest.clone();
    if let Some(SetOffer { delta, .. }) = &mut swapped.set {
        let first = delta.edits.values_mut().next().unwrap();
        let Edit::Add { to } = first else { panic!("all is new") };
        to.digest.0[0] ^= 1;
    }
    let missing = Offer { set: None, ..make(&OfferPlan { label: Some("d"), ..six() }).offer };
    let odd_base = {
        let mut offer = honest.clone();
        offer.set.as_mut().unwrap().base = Some(Digest::of(b"held by nobody"));
        offer
    };
    let two_days_ago = now().minus(DAY * 2);
    vec![
        ("unsigned", with_header(unsigned), "release-unsigned"),
        (
            "another key's",
            make(&OfferPlan { signer: 9, label: Some("a"), ..six() }).offer,
            "release-signature",
        ),
        (
            "the root key's",
            make(&OfferPlan { signer: 3, label: Some("b"), ..six() }).offer,
            "release-signature",
        ),
        ("a flipped digit", with_header(flipped), "release-signature"),
        ("a beacon's signature", with_header(other_sort), "release-signature"),
        ("another fleet", make(&OfferPlan { fleet: "other-1", ..six() }).offer, "release-other-fleet"),
        ("older", make(&plan(4, "evil\n")).offer, "release-older"),
        (
            "the same number again",
            make(&OfferPlan { label: Some("x"), ..plan(5, "evil\n") }).offer,
            "release-two-headers",
        ),
        ("stale", make(&OfferPlan { created: two_days_ago, ..six() }).offer, "release-stale"),
        ("of tomorrow", make(&OfferPlan { created: now().plus(DAY), ..six() }).offer, "release-future"),
        ("another node's proof", of_another, "release-proof"),
        (
            "another channel's entry",
            Offer {
                entry: SelectionEntry { channel: "canary".parse().unwrap(), ..honest.entry.clone() },
                ..honest.clone()
            },
            "release-other-channel",
        ),
        ("an object of another content", swapped, "release-other-root"),
        ("the set left out", missing, "release-other-root"),
        ("a base that is not held", odd_base, "release-malformed"),
        (
            "a beacon of nobody",
            Offer {
                beacon: Some(beacon_for(&honest, 9, now())),
                ..make(&OfferPlan { created: two_days_ago, ..six() }).offer
            },
            "beacon-signature",
        ),
    ]
}

fn beacon_for(offer: &Offer, signer: u8, at: Timestamp) -> model::exchange::Signed {
    let header: Header = serde_json::from_str(&offer.header.payload).unwrap();
    let (seq, digest) = (header.seq, signed::digest(&offer.header));
    let beacon = Beacon { fleet: header.fleet, channel: header.channel, seq, header: digest, at };
    signed::sign(&beacon, &[&key(signer)]).unwrap()
}

#[tokio::test]
async fn what_the_release_key_did_not_sign_for_this_node_now_is_refused() {
    let mut scene = Scene::at_release_5().await;
    let mut codes = std::collections::BTreeSet::new();
    for (what, offer, code) in made_up() {
        scene.refuses(what, offer, code).await;
        codes.insert(code);
    }
    assert_eq!(codes.len(), 12, "every refusal that there is: {codes:?}");
    // An edit behind its back is healed by what it holds, whatever it is offered.
    std::fs::write(scene.root.join("etc/motd"), "by hand\n").unwrap();
    until("healed", async || {
        scene.daemon.nudge();
        (scene.motd() == "five\n").then_some(())
    })
    .await;
    scene.adopts(&plan(6, "six\n")).await;
}

/// A release whose pieces are not what they should be is not adopted, and what was kept of
/// them does not stand in the way of the right ones.
#[tokio::test]
async fn a_spoiled_piece_is_not_used_and_not_kept() {
    let scene = Scene::at_release_5().await;
    let spoils: [(&str, Spoil); 3] = [
        ("a flipped bit", |mut bytes| {
            bytes[0] ^= 1;
            bytes
        }),
        ("nothing at all", |_| Vec::new()),
        ("more than announced", |mut bytes| {
            bytes.extend_from_slice(&[7; 1000]);
            bytes
        }),
    ];
    for (number, (what, spoil)) in (6u64..).zip(spoils) {
        let text = format!("release {number}\n{}", "x".repeat(2 * BLOB_PART + 10));
        let plan = OfferPlan { blob: Some(text.clone().into_bytes()), ..plan(number, &text) };
        let made = make(&plan);
        let (before, motd, held) = (scene.stage.last(), scene.motd(), scene.stage.play().held.clone());
        let asked = {
            let mut play = scene.stage.play();
            play.spoil = Some(spoil);
            play.contents.extend(made.contents);
            play.offer = Some(made.offer);
            play.blobs_asked + 4
        };
        until(&format!("{what}: asked for several times"), async || {
            scene.daemon.nudge();
            (scene.stage.play().blobs_asked >= asked).then_some(())
        })
        .await;
        scene.holds_still(what, before, held.as_ref());
        assert_eq!(scene.motd(), motd, "{what}");
        scene.adopts(&plan).await;
    }
}

/// Contents inside an answer count only by their digest.
#[tokio::test]
async fn a_changed_content_in_the_answer_is_fetched_anew() {
    let scene = Scene::at_release_5().await;
    let six = plan(6, "six\n");
    let mut made = make(&six);
    for text in &mut made.offer.set.as_mut().unwrap().contents {
        *text = text.replace("six", "evil");
    }
    let asked = scene.stage.play().blobs_asked;
    {
        let mut play = scene.stage.play();
        play.contents.extend(made.contents);
        play.offer = Some(made.offer);
    }
    until("release 6 is converged on", async || {
        scene.daemon.nudge();
        let motd = scene.motd();
        assert!(!motd.contains("evil"));
        (motd == "six\n").then_some(())
    })
    .await;
    assert_eq!(scene.stage.play().blobs_asked, asked + 1, "the one that was changed is fetched");
}
