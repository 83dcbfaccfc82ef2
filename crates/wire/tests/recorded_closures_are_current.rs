//! ROL-9: docs/exchanges/closure.txt shows how a node gets a closure from the control plane, in both forms of its name;
//! MUSTER_BLESS=1 writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use model::Digest;
use trust::SigningKey;
use trust::nix::{CacheKey, NarInfo};
use wire::{Code, Problem, body, route};

const NAME: &str = "0c6kzph7l0dcbfmjap64f0czdafn3b7x-nixos-system-web-1-25.11";
const NAR: &[u8] = b"an archive of 24 bytes..";

fn refusal(code: Code) -> String {
    let problem = Problem { request_id: Some("5e0f2a11-7".to_owned()), ..Problem::from(code) };
    String::from_utf8(body::encode(&problem).unwrap()).unwrap()
}

fn recorded() -> String {
    let key = SigningKey::from_seed(&[7; 32]);
    let digest = Digest::of(NAR);
    let text = format!(
        "StorePath: /nix/store/{NAME}\nURL: {digest}\nCompression: none\nNarHash: sha256:{digest}\nNarSize: \
         {}\nReferences: {NAME}\n",
        NAR.len()
    );
    let info: NarInfo = text.parse().unwrap();
    let signature = key.sign(info.fingerprint().as_bytes());
    let info = info.signed("cache.example.com-1", &signature);
    // What is recorded is what a node takes.
    let public = key.public().to_string();
    let pinned: CacheKey =
        format!("cache.example.com-1:{}", public.split_once(':').unwrap().1).parse().unwrap();
    let read: NarInfo = info.to_string().parse().unwrap();
    read.verified(&format!("/nix/store/{NAME}").parse().unwrap(), std::slice::from_ref(&pinned)).unwrap();
    let get = |name: &str| format!("GET {}\n", route::CLOSURE.replace("{hash}", name));
    [
        "# Each request is signed, as in renew.txt; headers are left out here but for those that count.\n",
        "# The release of the node names the closure. What is known of it, by its hash, or by its whole name; the same\n",
        "# of each path that it needs.\n",
        &get(&NAME[..32]),
        "\n",
        &get(NAME),
        "\n200\nContent-Type: text/x-nix-narinfo\n\n",
        &info.to_string(),
        &format!("\n# The key that the release pins: {pinned}\n"),
        "# The archive, by the hash that is signed; whole, or on from where it broke off.\n",
        &get(&digest.to_string()),
        "Range: bytes=11-\n\n206\nContent-Type: application/x-nix-nar\nContent-Length: 13\nContent-Range: bytes 11-23/24\n\n",
        std::str::from_utf8(&NAR[11..]).unwrap(),
        "\n\n# Behind the end.\n",
        &get(&digest.to_string()),
        "Range: bytes=24-\n\n416\nContent-Range: bytes */24\n\n",
        &refusal(Code::RangeBehindEnd),
        "\n\n# A closure that the release names and nobody uploaded.\n404\n\n",
        &refusal(Code::NotFound),
        "\n\n# One that the node's release does not name, whether it is there or not.\n403\n\n",
        &refusal(Code::NotEntitled),
        "\n",
    ]
    .concat()
}

#[test]
fn what_is_recorded_is_what_is_sent() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exchanges/closure.txt");
    let recorded = recorded();
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, &recorded).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, recorded, "MUSTER_BLESS=1 writes docs/exchanges/closure.txt anew");
}
