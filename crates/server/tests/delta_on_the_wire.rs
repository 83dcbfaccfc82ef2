//! DLT-1 to DLT-5, IDN-5, measured on real answers: an unchanged check-in carries nothing,
//! else only what changed travels, contents are fetched by digest, and only those that the
//! node's own set names.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::Method;
use model::exchange::{Answer, CheckIn, HeldRelease, SetOffer};
use model::object::{MAX_INLINE, ObjectKey};
use model::{Digest, Edit, Kind, ObjectSet};
use server::api::{RunRequest, RunRequested};
use test_support::fleet::release::{Made, Plan, make, module, params};
use test_support::fleet::{Fleet, Member, call, decoded, quiet, refused, refuses};
use wire::{Code, body, route};

/// The most of a blob in one answer.
const PART: usize = 1024 * 1024;

/// The bytes of objects or blobs, as large as asked, all different.
fn bytes(size: usize, seed: u8) -> Vec<u8> {
    (0..size).map(|at| (at as u64).wrapping_mul(2_654_435_761).to_be_bytes()[5] ^ seed).collect()
}

async fn publish(fleet: &Fleet, plan: &Plan) -> Made {
    let made = make(plan, &fleet.release_key());
    fleet.operator().await.publish(&made).await.unwrap();
    made
}

fn holds(held: HeldRelease) -> CheckIn {
    CheckIn { held: Some(held), ..quiet() }
}

/// The raw answer to a check-in, with its size as it came.
async fn answer(node: &Member, message: &CheckIn) -> (Answer, usize) {
    let response = node.send(node.signed(Method::POST, route::CHECKIN, body::encode(message).unwrap())).await;
    (decoded(&response).unwrap(), response.body().len())
}

fn set_of(answer: Answer) -> SetOffer {
    answer.offer.expect("an offer").set.expect("a set")
}

#[tokio::test]
async fn an_unchanged_check_in_is_answered_with_nothing() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a")]);
    let made = publish(&fleet, &plan).await;
    let (first, _) = answer(&node, &holds(made.held("web-1"))).await;
    assert!(first.want_traits && first.offer.is_none());
    let traits = serde_json::json!({ "os": "x" });
    let traits = model::exchange::TraitReport::whole(Digest::of(b"traits"), traits);
    let seen = Some(node.seen(&made.held("web-1"), 0).sign(&node.key).unwrap());
    answer(&node, &CheckIn { traits: Some(traits), seen, ..holds(made.held("web-1")) }).await;
    let response = node.send(node.signed(
        Method::POST,
        route::CHECKIN,
        body::encode(&holds(made.held("web-1"))).unwrap(),
    ));
    let response = response.await;
    assert_eq!(response.body().as_ref(), br#"{"nextCheckinSecs":300}"#, "DLT-1: nothing else");
}

#[tokio::test]
async fn a_new_release_of_the_same_root_moves_the_pointer_alone() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let id = fleet.enroll_info().fleet;
    let first = publish(&fleet, &Plan::new(&id, 1).node("web-1", &[params("a")])).await;
    let plan = Plan::new(&id, 2).node("web-1", &[params("a")]).node("web-2", &[params("b")]);
    let second = publish(&fleet, &plan).await;
    let (answered, _) = answer(&node, &holds(first.held("web-1"))).await;
    let offer = answered.offer.expect("the pointer moved");
    assert!(offer.set.is_none(), "DLT-2: the set is the same");
    assert_eq!((offer.header, offer.entry.root), (second.header.clone(), first.held("web-1").root));
    let (answered, _) = answer(&node, &holds(second.held("web-1"))).await;
    assert!(answered.offer.is_none());
}

#[tokio::test]
async fn only_what_changed_travels() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let id = fleet.enroll_info().fleet;
    let name = |n: usize| format!("module-{n:02}");
    let text = |n: usize| format!("unchanged-{n:02}-{}", "x".repeat(1000));
    let mut objects: Vec<_> = (0..50).map(|n| module(&name(n), &text(n), &[])).collect();
    let first = publish(&fleet, &Plan::new(&id, 1).node("web-1", &objects)).await;
    let (whole, whole_size) = answer(&node, &quiet()).await;
    let whole = set_of(whole);
    assert_eq!((whole.base, whole.delta.edits.len(), whole.contents.len()), (None, 50, 50));

    objects[7] = module(&name(7), "this one changed", &[]);
    objects[8] = module("module-new", "this one is new", &[]);
    let second = publish(&fleet, &Plan::new(&id, 2).node("web-1", &objects)).await;
    let (answered, size) = answer(&node, &holds(first.held("web-1"))).await;
    let set = set_of(answered);
    assert_eq!(set.base, Some(first.held("web-1").root));
    let edits: Vec<_> = set.delta.edits.iter().map(|(key, edit)| (key.name.to_string(), edit)).collect();
    assert!(
        matches!(
            edits.as_slice(),
            [(changed, Edit::Change { .. }), (gone, Edit::Remove { .. }), (new, Edit::Add { .. })]
                if changed == "module-07" && gone == "module-08" && new == "module-new"
        ),
        "{edits:?}"
    );
    assert_eq!(set.contents.len(), 2, "DLT-3: what the node holds does not travel again");
    assert!(set.contents.iter().all(|content| content.contains("this one")), "{:?}", set.contents);
    assert!(size < 4096 && size * 4 < whole_size, "{size} bytes for two of fifty, {whole_size} for all");
    // What arrives leads to the signed root.
    let held = &first.sets["web-1"];
    assert_eq!(held.apply(&set.delta).unwrap().root(), second.held("web-1").root);
}

#[tokio::test]
async fn from_a_root_not_known_here_all_is_named_and_fetched_by_digest() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let id = fleet.enroll_info().fleet;
    let objects = [params("a"), module("one", "first", &[]), module("two", "second", &[])];
    let made = publish(&fleet, &Plan::new(&id, 1).node("web-1", &objects)).await;
    let held = HeldRelease { root: Digest::of(b"from a database that was lost"), ..made.held("web-1") };
    let (answered, _) = answer(&node, &holds(held)).await;
    let set = set_of(answered);
    assert_eq!((set.base, set.contents.len()), (None, 0), "stubs alone");
    let named = ObjectSet::new().apply(&set.delta).unwrap();
    assert_eq!(named.root(), made.held("web-1").root);
    for (_, stub) in named.objects() {
        let response = node.blob(&stub.digest, None).await;
        assert_eq!(response.status(), 200);
        assert_eq!(Digest::of(response.body()), stub.digest, "DLT-4: verified by its name");
    }
    // Whoever asks for everything gets it, whatever it holds.
    let (answered, _) = answer(&node, &CheckIn { full: true, ..holds(made.held("web-1")) }).await;
    let set = set_of(answered);
    assert_eq!((set.base, set.delta.edits.len(), set.contents.len()), (None, 3, 3));
}

#[tokio::test]
async fn what_is_large_is_named_and_an_answer_is_bounded() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let id = fleet.enroll_info().fleet;
    let filler = "y".repeat(3900);
    let mut objects: Vec<_> = (0..200).map(|n| module(&format!("m-{n:03}"), &filler, &[])).collect();
    objects.push(module("large", &"z".repeat(MAX_INLINE as usize), &[]));
    let made = publish(&fleet, &Plan::new(&id, 1).node("web-1", &objects)).await;
    let (answered, size) = answer(&node, &quiet()).await;
    let set = set_of(answered);
    let inline: usize = set.contents.iter().map(String::len).sum();
    assert!(inline <= 256 * 1024 && inline > 200 * 1024, "{inline} bytes of contents in the answer");
    assert!(size < 512 * 1024, "{size}");
    let large = made.sets["web-1"].get(&ObjectKey::of(Kind::MODULE, "large")).unwrap();
    assert!(set.contents.iter().all(|content| Digest::of(content.as_bytes()) != large.digest));
    assert_eq!(node.blob(&large.digest, None).await.body().len() as u64, large.size);
}

#[tokio::test]
async fn a_run_request_overrides_what_is_held_until_it_is_confirmed() {
    let mut fleet = Fleet::start().await;
    let mut node = fleet.node("web-1").await;
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[params("a")]);
    let made = publish(&fleet, &plan).await;
    let held = || holds(made.held("web-1"));
    assert!(answer(&node, &held()).await.0.run_request.is_none());
    let mut operator = fleet.operator().await;
    let request = RunRequest { nodes: vec!["web-1".to_owned()] };
    let requested: RunRequested = operator.post("/v1/run-requests", &request).await.unwrap();
    // Not lost when the control plane starts anew (DLT-5).
    fleet.stop().await;
    fleet.start_again().await;
    node.url = fleet.url();
    let (answered, _) = answer(&node, &held()).await;
    assert_eq!(answered.run_request, Some(requested.number));
    let set = set_of(answered);
    assert_eq!((set.base, set.delta.edits.len()), (None, 1), "levels 1 and 2 are overridden");
    // Another number confirms nothing.
    let (answered, _) = answer(&node, &CheckIn { run_confirmed: Some(requested.number - 1), ..held() }).await;
    assert_eq!(answered.run_request, Some(requested.number));
    let (answered, _) = answer(&node, &CheckIn { run_confirmed: Some(requested.number), ..held() }).await;
    assert_eq!((answered.run_request, answered.offer), (None, None));
    assert_eq!(fleet.operator().await.node("web-1").await.run_request, None);
    // One for a node that is not there is refused as a whole.
    let both = RunRequest { nodes: vec!["web-1".to_owned(), "web-9".to_owned()] };
    refuses(fleet.operator().await.post::<_, RunRequested>("/v1/run-requests", &both).await, Code::NotFound);
    assert_eq!(fleet.operator().await.node("web-1").await.run_request, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_is_answered_when_there_is_something_to_say() {
    let fleet = Fleet::start().await;
    let node = std::sync::Arc::new(fleet.node("web-1").await);
    let id = fleet.enroll_info().fleet;
    let first = publish(&fleet, &Plan::new(&id, 1).node("web-1", &[params("a")])).await;
    let waiting = |held: HeldRelease| {
        let node = node.clone();
        tokio::spawn(async move {
            node.post::<_, Answer>("/v1/agent/checkin?wait=25", &holds(held)).await.unwrap()
        })
    };
    let poll = waiting(first.held("web-1"));
    heard_of(&fleet).await;
    let second = publish(&fleet, &Plan::new(&id, 2).node("web-1", &[params("b")])).await;
    let answered = poll.await.unwrap();
    assert_eq!(answered.offer.unwrap().entry.root, second.held("web-1").root);
    let poll = waiting(second.held("web-1"));
    let request = RunRequest { nodes: vec!["web-1".to_owned()] };
    let requested: RunRequested = fleet.operator().await.post("/v1/run-requests", &request).await.unwrap();
    assert_eq!(poll.await.unwrap().run_request, Some(requested.number));
}

/// Waits until the node's call has arrived.
async fn heard_of(fleet: &Fleet) {
    test_support::wait::until("the node has called", || async {
        fleet.operator().await.node("web-1").await.last_seen
    })
    .await;
}

/// IDN-5: a digest alone opens nothing.
#[tokio::test]
async fn a_node_gets_only_what_its_own_set_names() {
    let fleet = Fleet::start().await;
    let (one, two) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let id = fleet.enroll_info().fleet;
    let secret = bytes(20_000, 1);
    let holder = module("app", "with a blob", &[&secret]);
    let content = Digest::of(&holder.1);
    let mut plan =
        Plan::new(&id, 1).node("web-1", std::slice::from_ref(&holder)).node("web-2", &[params("b")]);
    plan.blobs = vec![secret.clone()];
    publish(&fleet, &plan).await;
    let blob = Digest::of(&secret);
    for digest in [&blob, &content] {
        assert_eq!(one.blob(digest, None).await.status(), 200);
        refused(&two.blob(digest, None).await, Code::NotEntitled);
        // The word of the node that it holds the other's set changes nothing.
        let held = HeldRelease { root: plan_root(&plan, "web-1"), ..held_of(&fleet, &plan, "web-2") };
        two.check_in(&holds(held)).await.unwrap();
        refused(&two.blob(digest, None).await, Code::NotEntitled);
    }
    // What is not there at all is refused alike: the answer tells nothing.
    refused(&two.blob(&Digest::of(b"nothing"), None).await, Code::NotEntitled);
    // Pointed to it now, and the other no more.
    let mut plan = Plan::new(&id, 2).node("web-1", &[params("a")]).node("web-2", &[holder]);
    plan.blobs = vec![secret];
    publish(&fleet, &plan).await;
    assert_eq!(two.blob(&blob, None).await.status(), 200);
    refused(&one.blob(&blob, None).await, Code::NotEntitled);
    one.survives().await;
}

fn plan_root(plan: &Plan, hostname: &str) -> Digest {
    make(plan, &test_support::fleet::new_key()).sets[hostname].root()
}

fn held_of(fleet: &Fleet, plan: &Plan, hostname: &str) -> HeldRelease {
    make(plan, &fleet.release_key()).held(hostname)
}

#[tokio::test]
async fn a_blob_of_10_mib_comes_in_ranges_and_is_resumed() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let blob = bytes(10 * 1024 * 1024 + 77, 3);
    let digest = Digest::of(&blob);
    let app = module("app", "with a blob", &[&blob]);
    let mut plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[app]);
    plan.blobs = vec![blob.clone()];
    publish(&fleet, &plan).await;
    let mut got: Vec<u8> = Vec::new();
    let mut answers = 0;
    while got.len() < blob.len() {
        let response = node.blob(&digest, Some(got.len() as u64)).await;
        assert_eq!(response.status(), 206);
        let end = got.len() + response.body().len() - 1;
        let range = format!("bytes {}-{end}/{}", got.len(), blob.len());
        assert_eq!(response.headers()["content-range"], range.as_str());
        assert!(response.body().len() <= PART, "one answer is bounded");
        // Broken off in the middle, it goes on from what was got.
        let keep = if answers == 1 { 1000 } else { response.body().len() };
        got.extend_from_slice(&response.body()[..keep]);
        answers += 1;
    }
    assert_eq!(Digest::of(&got), digest);
    assert!(answers >= blob.len() / PART, "{answers} answers");
    // At the end there is nothing more, and beyond it neither.
    for from in [blob.len() as u64, blob.len() as u64 + 1, u64::MAX] {
        let response = node.blob(&digest, Some(from)).await;
        assert_eq!((response.status().as_u16(), response.body().len()), (206, 0), "from {from}");
        assert!(response.headers()["content-range"].to_str().unwrap().ends_with(&format!("/{}", blob.len())));
    }
    // A range that cannot be read is none.
    let path = route::BLOB.replace("{digest}", &digest.to_string());
    let ranges = [
        ("bytes=10-19", &blob[10..20]),
        ("bytes=-5", &blob[blob.len() - 5..]),
        ("bytes=x-", &blob[..PART]),
        ("lines=1-2", &blob[..PART]),
        ("bytes=99999999999999999999-", &blob[..PART]),
    ];
    for (range, part) in ranges {
        let mut request = node.signed(Method::GET, &path, Vec::new());
        request.headers_mut().insert("range", range.parse().unwrap());
        let response = call(&mut node.dial().await, request).await;
        assert_eq!(response.status(), 206, "{range}");
        assert!(response.body() == part, "{range} has {} bytes", response.body().len());
    }
    node.survives().await;
}

#[tokio::test]
async fn changed_traits_are_laid_over_those_that_are_kept() {
    let fleet = Fleet::start().await;
    let node = fleet.node("web-1").await;
    let whole = |family: &str, name: &str| {
        let values = serde_json::json!({"os": {"family": family}, "network": {"hostname": name}});
        model::exchange::TraitReport::whole(Digest::of(values.to_string().as_bytes()), values)
    };
    let say = async |traits| answer(&node, &CheckIn { traits: Some(traits), ..quiet() }).await.0;
    let (one, two, three) = (whole("debian", "a"), whole("debian", "b"), whole("alpine", "b"));
    say(one.clone()).await;
    say(two.since(&one)).await;
    let kept = async || {
        let report: model::exchange::TraitReport =
            fleet.operator().await.get("/v1/nodes/web-1/traits").await.unwrap();
        report
    };
    assert_eq!(kept().await, two);
    // What they differ from is not kept: nothing is mixed, and all are asked for.
    let asked = say(three.since(&one)).await;
    assert_eq!(kept().await, two);
    assert!(asked.want_traits || answer(&node, &quiet()).await.0.want_traits);
}
