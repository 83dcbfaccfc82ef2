//! ROL-9: a node that reaches no cache gets a closure from the control plane: the paths that its release names and what
//! they need, with the signatures of their cache, in any range; nobody else gets anything.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::Bytes;
use data_encoding::BASE64;
use http::{Method, Response};
use model::Digest;
use server::api::closures::{ClosurePiece, ClosureProgress};
use test_support::fleet::release::{Plan, make, module};
use test_support::fleet::{Fleet, Member, call, problem, refused, refuses};
use wire::{Code, route};

/// More than what is held of one answer.
const SIZE: usize = 700_000;

/// A path by number; the hash has that digit alone.
fn hash(number: u8) -> String {
    number.to_string().repeat(32)
}

fn nar(number: u8) -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251) as u8 ^ number).collect()
}

fn narinfo(number: u8, needs: &[u8]) -> String {
    let needs: Vec<String> = needs.iter().map(|needs| format!("{}-p", hash(*needs))).collect();
    format!(
        "StorePath: /nix/store/{}-p\nURL: nar/{number}.nar\nCompression: none\nNarHash: sha256:{}\nNarSize: \
         {SIZE}\nReferences: {}\nSig: cache-1:{}\n",
        hash(number),
        Digest::of(&nar(number)),
        needs.join(" "),
        BASE64.encode(&[7; 64])
    )
}

async fn put(
    fleet: &Fleet,
    narinfo: String,
    from: u64,
    bytes: &[u8],
) -> Result<ClosureProgress, wire::Problem> {
    let piece = ClosurePiece { narinfo, from, bytes: BASE64.encode(bytes) };
    fleet.operator().await.post("/v1/closures", &piece).await
}

async fn get(node: &Member, name: &str, range: Option<&str>) -> Response<Bytes> {
    let path = route::CLOSURE.replace("{hash}", name);
    let mut request = node.signed(Method::GET, &path, Vec::new());
    if let Some(range) = range {
        request.headers_mut().insert("range", range.parse().unwrap());
    }
    call(&mut node.dial().await, request).await
}

/// A fleet in which web-1 has a closure of two paths, and web-2 another one.
async fn fleet() -> (Fleet, Member, Member) {
    let fleet = Fleet::start().await;
    let (one, two) = (fleet.node("web-1").await, fleet.node("web-2").await);
    for (number, needs) in [(0, &[][..]), (1, &[0]), (2, &[])] {
        let taken = put(&fleet, narinfo(number, needs), 0, &nar(number)).await.unwrap();
        assert_eq!((taken.held, taken.whole), (SIZE as u64, true));
    }
    let of = |number: u8| module("system", &format!("closure: /nix/store/{}-p", hash(number)), &[]);
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[of(1)]).node("web-2", &[of(2)]);
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    (fleet, one, two)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_the_closure_that_its_release_names() {
    let (_fleet, one, two) = fleet().await;
    for number in [1, 0] {
        // Both forms of the source: the hash, and the whole name.
        for name in [hash(number), format!("{}-p", hash(number))] {
            let answer = get(&one, &name, None).await;
            let text = String::from_utf8(answer.body().to_vec()).unwrap();
            assert_eq!(
                (answer.status().as_u16(), &answer.headers()["content-type"]),
                (200, &"text/x-nix-narinfo".parse().unwrap())
            );
            let info: trust::nix::NarInfo = text.parse().unwrap();
            assert_eq!(info.path.hash(), hash(number));
            assert!(text.contains("Sig: cache-1:"), "nodes verify it: {text}");
            assert_eq!(info.url, Digest::of(&nar(number)).to_string(), "what the archive is asked for by");
        }
        let digest = Digest::of(&nar(number)).to_string();
        let answer = get(&one, &digest, None).await;
        assert_eq!(
            (answer.status().as_u16(), answer.headers()["content-length"].to_str().unwrap()),
            (200, "700000")
        );
        assert!(answer.body() == &nar(number));
        // In parts, as it is resumed.
        let mut got = Vec::new();
        for end in [1000, 300_000, SIZE] {
            let answer = get(&one, &digest, Some(&format!("bytes={}-{}", got.len(), end - 1))).await;
            assert_eq!(answer.status(), 206);
            let range = format!("bytes {}-{}/{SIZE}", got.len(), end - 1);
            assert_eq!(answer.headers()["content-range"], range.as_str());
            got.extend_from_slice(answer.body());
        }
        assert!(got == nar(number));
        let open = get(&one, &digest, Some("bytes=600000-")).await;
        assert!(open.status() == 206 && open.body() == &nar(number)[600_000..]);
        let behind = get(&one, &digest, Some("bytes=700000-")).await;
        assert_eq!(problem(&behind).code, Code::RangeBehindEnd.as_str());
        assert_eq!(
            (behind.status().as_u16(), behind.headers()["content-range"].to_str().unwrap()),
            (416, "bytes */700000")
        );
    }
    // Of another node's closure nothing, nor of what is not there: the answers are alike.
    for name in
        [hash(1), hash(0), hash(9), Digest::of(&nar(0)).to_string(), Digest::of(b"nothing").to_string()]
    {
        refused(&get(&two, &name, None).await, Code::NotEntitled);
    }
    for name in ["x", "..%2F..%2Fetc%2Fpasswd", "%00", "0000"] {
        refused(&get(&one, name, None).await, Code::NotFound);
    }
    one.survives().await;
}

/// A closure that a release names and nobody uploaded is unknown; who is not pointed to anything gets nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_uploaded_is_unknown() {
    let fleet = Fleet::start().await;
    let (one, two) = (fleet.node("web-1").await, fleet.node("web-2").await);
    let of = module("system", &format!("closure: /nix/store/{}-p", hash(5)), &[]);
    let plan = Plan::new(&fleet.enroll_info().fleet, 1).node("web-1", &[of]);
    fleet.operator().await.publish(&make(&plan, &fleet.release_key())).await.unwrap();
    refused(&get(&one, &hash(5), None).await, Code::NotFound);
    refused(&get(&one, &hash(6), None).await, Code::NotEntitled);
    refused(&get(&two, &hash(5), None).await, Code::NotEntitled);
    assert!(!fleet.dir.path().join("closures").exists(), "nothing is made for who does not use it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_resumed_and_verified() {
    let fleet = Fleet::start().await;
    refuses(put(&fleet, narinfo(1, &[0]), 0, &nar(1)).await, Code::Incomplete);
    let held = async |from: u64, bytes: &[u8]| {
        put(&fleet, narinfo(0, &[]), from, bytes).await.map(|taken| (taken.held, taken.whole))
    };
    assert_eq!(held(0, &nar(0)[..1000]).await.unwrap(), (1000, false));
    assert_eq!(held(0, &[]).await.unwrap(), (1000, false));
    assert_eq!(held(1000, &nar(0)[1000..]).await.unwrap(), (SIZE as u64, true));
    // Other bytes than the narinfo says, more of them, and what is no narinfo.
    refuses(put(&fleet, narinfo(2, &[]), 0, &nar(3)).await, Code::BadBody);
    refuses(put(&fleet, narinfo(2, &[]), 0, &[nar(2), vec![0]].concat()).await, Code::BodyTooLarge);
    refuses(put(&fleet, "StorePath: /nix/store/../../etc/x".to_owned(), 0, &[]).await, Code::BadBody);
    refuses(put(&fleet, narinfo(2, &[]).replace("none", "xz"), 0, &[]).await, Code::BadBody);
}
