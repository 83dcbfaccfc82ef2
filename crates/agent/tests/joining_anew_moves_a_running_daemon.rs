//! ENR-7, IDN-2, IDN-8: what `join` writes beside a daemon that runs is taken up before the next check-in, though the control
//! plane before answers: sessions and streams lead elsewhere, and no renewal writes over it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::identity::{self, Membership};
use agent::membership::{MembershipFile, TakeUpError};
use agent::state::StateDir;
use model::replication::{Mode, TransportPolicy};
use net::ServerUrl;
use net::issue::{CertificateRequest, node_request, node_validity};
use test_support::agent_local::printed;
use test_support::agent_pair::{NODE, Pair, says};
use test_support::fleet;
use test_support::wait::until;
use tokio::net::{TcpListener, TcpStream};
use trust::chain::{self, ChainHead, SlotChange, SlotName};
use trust::token::{self, KeySource};
use wire::enroll::RenewAnswer;

/// Another address of a control plane.
struct OtherAddress {
    url: ServerUrl,
    /// Connections that are open.
    open: Arc<AtomicUsize>,
}

impl OtherAddress {
    async fn of(pair: &Pair) -> OtherAddress {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (there, open) = (pair.fleet.url().authority(), Arc::<AtomicUsize>::default());
        let counted = open.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (there, open) = (there.clone(), counted.clone());
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(there).await.unwrap();
                    open.fetch_add(1, Ordering::SeqCst);
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        OtherAddress { url, open }
    }
}

fn file_of(pair: &Pair) -> StateDir {
    StateDir::create(&pair.state()).unwrap()
}

fn membership(pair: &Pair) -> Membership {
    file_of(pair).membership().unwrap().unwrap()
}

/// Joins anew by a token that names another address, while a daemon runs.
async fn moves(mode: Mode, transport: TransportPolicy, links: usize) {
    let mut pair = Pair::new(&says(mode, None, transport)).await;
    let daemon = pair.daemon();
    until("it holds the release", async || pair.operator.node(NODE).await.held).await;
    let begun = |log: &str| log.matches("a link begins").count();
    until("its link is open", async || (begun(&daemon.log()) >= links).then_some(())).await;
    let other = OtherAddress::of(&pair).await;
    let mut claims = pair.fleet.claims(NODE);
    claims.servers = vec![other.url.to_string()];
    let token = token::mint(&claims, &pair.fleet.root_key()).unwrap();
    let before = begun(&daemon.log());
    let (code, joined) = tokio::task::block_in_place(|| printed(&pair.agent(&["join", "--token", &token])));
    assert_eq!(code, Some(0), "{joined}");
    assert!(joined.contains("the daemon that runs here takes it up now"), "{joined}");
    let taken_up = |log: &str| log.matches("a new certificate is taken up").count();
    until("the daemon speaks with the other address", async || {
        // The connection of `join` may still be counted; the daemon's is opened after what it logs.
        let (log, is_there) = (daemon.log(), other.open.load(Ordering::SeqCst) > 0);
        (is_there && taken_up(&log) > 0 && begun(&log) >= before + links).then_some(())
    })
    .await;
    let log = daemon.log();
    assert_eq!(taken_up(&log), 1, "{log}");
    assert!(!log.contains("the control plane cannot be reached"), "no check-in failed: {log}");
    assert_eq!(membership(&pair).servers, [other.url]);
    daemon.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_lead_elsewhere() {
    moves(Mode::Off, TransportPolicy::Auto, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_ends_and_the_next_leads_elsewhere() {
    moves(Mode::Managed, TransportPolicy::Grpc, 1).await;
}

/// A renewal that is answered after `join` wrote is refused until that is taken up.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_writes_over_nothing() {
    let pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let key = identity::key(KeySource::Own, &pair.state(), &pair.root()).unwrap();
    let first = membership(&pair);
    let file = MembershipFile::of(&pair.state(), first.clone(), key.clone());
    let answer = || {
        let csr = CertificateRequest::read(&node_request(&key, &first.hostname).unwrap()).unwrap();
        let (id, validity) = (key.public().node_id(), node_validity(fleet::now()));
        let ca = pair.fleet.node_ca();
        let cert_pem = ca.issue_node(&csr, &id, &first.hostname, [3; 16], validity).unwrap();
        RenewAnswer::of(cert_pem)
    };
    let refused = |what: &str| {
        let before = serde_json::to_value(membership(&pair)).unwrap();
        assert!(matches!(file.keep(answer()), Err(TakeUpError::JoinedAnew)), "{what}");
        assert_eq!(serde_json::to_value(membership(&pair)).unwrap(), before, "{what}");
    };
    assert!(file.written().unwrap().is_none(), "nothing was written");

    let elsewhere: ServerUrl = "https://127.0.0.9:1".parse().unwrap();
    file_of(&pair)
        .save_membership(&Membership { servers: vec![elsewhere.clone()], ..first.clone() })
        .unwrap();
    refused("other servers");
    let change = file.written().unwrap().unwrap();
    assert!(change.moved && change.session.unwrap().credentials.urls == [elsewhere.clone()]);
    assert!(change.pinned.is_none() && file.written().unwrap().is_none());
    file.keep(answer()).unwrap();
    assert_eq!(membership(&pair).servers, [elsewhere]);
    assert!(file.written().unwrap().is_none(), "what it wrote itself is no news");

    let proxied = |proxy| Membership { proxy, ..membership(&pair) };
    let proxy = Some(Arc::new("http://u:canary@127.0.0.9:1".parse().unwrap()));
    file_of(&pair).save_membership(&proxied(proxy.clone())).unwrap();
    refused("another proxy (WIR-7)");
    let change = file.written().unwrap().unwrap();
    assert!(change.moved && change.session.unwrap().credentials.proxy == proxy);
    file.keep(answer()).unwrap();
    assert_eq!(membership(&pair).proxy, proxy);
    assert!(!format!("{:?}", membership(&pair)).contains("canary"));
    file_of(&pair).save_membership(&proxied(None)).unwrap();
    assert!(file.written().unwrap().unwrap().moved);

    let (other_ca, _) = net::issue::Ca::generate("other", fleet::now()).unwrap();
    let known = membership(&pair);
    let both = format!("{}{}", known.ca_pem, other_ca.cert_pem());
    file_of(&pair).save_membership(&Membership { ca_pem: both, ..known.clone() }).unwrap();
    refused("another CA");
    file_of(&pair).save_membership(&known).unwrap();
    assert!(file.written().unwrap().is_none(), "it is as before");

    let head = ChainHead::of(first.trust.clone());
    let change = SlotChange::Replace(fleet::new_key().public());
    let trust = chain::next_version(&head, SlotName::Release, change, None, fleet::now()).unwrap();
    file_of(&pair).save_membership(&Membership { trust: trust.clone(), ..membership(&pair) }).unwrap();
    refused("another trust document");
    let change = file.written().unwrap().unwrap();
    assert!(change.session.is_none() && !change.moved && change.pinned.as_ref() == Some(&trust));
    file.keep(answer()).unwrap();
    assert_eq!(membership(&pair).trust, trust);
    // Where it is lost, the chain that was left is not begun again.
    std::fs::remove_file(pair.state().join("membership.json")).unwrap();
    file.put_back().unwrap();
    assert_eq!(membership(&pair).trust, trust);
}

/// WIR-7: `proxy` and a renewal at the same moment both come to be, in whichever order.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_and_a_renewal_at_once_are_both_kept() {
    const ROUNDS: usize = 100;
    let pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let key = identity::key(KeySource::Own, &pair.state(), &pair.root()).unwrap();
    let first = membership(&pair);
    for round in 0..ROUNDS {
        let file = MembershipFile::of(&pair.state(), membership(&pair), key.clone());
        let csr = CertificateRequest::read(&node_request(&key, &first.hostname).unwrap()).unwrap();
        let (id, validity) = (key.public().node_id(), node_validity(fleet::now()));
        let cert_pem =
            pair.fleet.node_ca().issue_node(&csr, &id, &first.hostname, [3; 16], validity).unwrap();
        let proxy: Arc<net::ProxyUrl> = Arc::new(format!("http://127.0.0.9:{}", round + 1).parse().unwrap());
        let start = std::sync::Barrier::new(2);
        let kept = std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                let dir = file_of(&pair);
                let written = dir.membership_turn().unwrap();
                let member = written.membership().unwrap().unwrap();
                written.save(&Membership { proxy: Some(proxy.clone()), ..member }).unwrap();
            });
            start.wait();
            file.keep(RenewAnswer::of(cert_pem.clone()))
        });
        let after = membership(&pair);
        assert_eq!(after.proxy, Some(proxy), "round {round}");
        match kept {
            Ok(_) => assert_eq!(after.cert_pem, cert_pem, "round {round}"),
            Err(error) => assert!(matches!(error, TakeUpError::JoinedAnew), "round {round}: {error:?}"),
        }
    }
}

/// A host that is given another CA speaks with nobody of the one before, at the same place either: it may be stolen.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_under_another_ca_is_given_up() {
    let mut pair = Pair::new(&says(Mode::Off, None, TransportPolicy::Auto)).await;
    let daemon = pair.daemon();
    until("it holds the release", async || pair.operator.node(NODE).await.held).await;
    let (other, _) = net::issue::Ca::generate("other", fleet::now()).unwrap();
    let (file, mut member) = (file_of(&pair), membership(&pair));
    member.ca_pem = other.cert_pem().to_owned();
    let cert = CertificateRequest::read(&member_request(&pair, &member)).unwrap();
    let validity = node_validity(fleet::now());
    member.cert_pem = other.issue_node(&cert, &member.node_id, &member.hostname, [9; 16], validity).unwrap();
    file.save_membership(&member).unwrap();
    let refusals = || daemon.log().matches("is not this fleet's control plane").count();
    until("it believes nobody there", async || (refusals() > 0).then_some(())).await;
    let (heard, refused) = (pair.operator.node(NODE).await.last_seen, refusals());
    until("it tries again", async || (refusals() > refused + 1).then_some(())).await;
    assert_eq!(pair.operator.node(NODE).await.last_seen, heard, "nothing is said over what was open");
}

fn member_request(pair: &Pair, member: &Membership) -> String {
    let key = identity::key(KeySource::Own, &pair.state(), &pair.root()).unwrap();
    node_request(&key, &member.hostname).unwrap()
}
