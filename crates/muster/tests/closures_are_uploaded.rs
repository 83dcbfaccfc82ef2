//! ROL-9: `muster closure upload` sends a closure from the folder of a binary cache, from below, goes on where it broke off, and
//! names what is wrong with a folder.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::Path;

use data_encoding::BASE64;
use model::Digest;
use server::api::closures::{ClosurePiece, ClosureProgress, PUT_CLOSURE};
use test_support::programs::repo::{Control, code, err, muster, out};

/// Of three pieces.
const SIZE: usize = 9_000_000;

fn name(number: u8) -> String {
    format!("{}-part-{number}", number.to_string().repeat(32))
}

fn nar(number: u8) -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251) as u8 ^ number).collect()
}

/// A path as `nix copy --to 'file:///DIR?compression=none'` writes it.
fn put(cache: &Path, number: u8, needs: &[u8], key: &str) {
    let needs: Vec<String> = needs.iter().map(|needs| name(*needs)).collect();
    let narinfo = format!(
        "StorePath: /nix/store/{}\nURL: nar/{number}.nar\nCompression: none\nFileSize: {SIZE}\nNarHash: sha256:{}\n\
         NarSize: {SIZE}\nReferences: {}\n{key}",
        name(number),
        Digest::of(&nar(number)),
        needs.join(" "),
    );
    fs::create_dir_all(cache.join("nar")).unwrap();
    fs::write(cache.join(format!("nar/{number}.nar")), nar(number)).unwrap();
    fs::write(cache.join(format!("{}.narinfo", number.to_string().repeat(32))), narinfo).unwrap();
}

/// What the verb says, with its exit code.
async fn upload(control: &Control, path: &str, from: &str) -> (i32, String) {
    let operator = control.operator_file().display().to_string();
    let arguments = ["closure", "upload", path, "--from", from, "--operator", &operator];
    let done = muster(control.dir.path(), &arguments).await;
    (code(&done), format!("{}{}", out(&done), err(&done)))
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_folder_and_on_from_where_it_broke_off() {
    let (control, dir) = (Control::start().await, tempfile::tempdir().unwrap());
    let (cache, key) = (dir.path().join("cache"), format!("Sig: cache-1:{}\n", BASE64.encode(&[7; 64])));
    let from = cache.to_str().unwrap();
    put(&cache, 0, &[], &key);
    put(&cache, 1, &[0, 1], &key);
    let top = format!("/nix/store/{}", name(1));
    // As if it had broken off in what lies below.
    let narinfo = fs::read_to_string(cache.join(format!("{}.narinfo", "0".repeat(32)))).unwrap();
    let piece = ClosurePiece { narinfo, from: 0, bytes: BASE64.encode(&nar(0)[..4_000_000]) };
    let held: ClosureProgress = control.operator().await.call(&PUT_CLOSURE, piece).await.unwrap();
    assert_eq!((held.held, held.whole), (4_000_000, false));
    let (exit, text) = upload(&control, &top, from).await;
    assert_eq!(exit, 0, "{text}");
    let sent = 2 * SIZE - 4_000_000;
    assert_eq!(
        text,
        format!(
            "{top}\n2 paths, 2 of them sent now ({sent} bytes), each with what it needs\nsigned by cache-1, which nodes \
             verify by their `cache_keys`\n"
        )
    );
    let (exit, text) = upload(&control, &format!("{top}/"), from).await;
    assert!(exit == 0 && text.contains("2 paths, 0 of them sent now (0 bytes)"), "{text}");
    // One of its paths is signed by nobody: a node would refuse it.
    put(&cache, 2, &[0], "");
    let (exit, text) = upload(&control, &format!("/nix/store/{}", name(2)), from).await;
    assert!(exit == 0 && text.contains("no key signed all of them"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named() {
    let (control, dir) = (Control::start().await, tempfile::tempdir().unwrap());
    let cache = dir.path().join("cache");
    let (from, top) = (cache.to_str().unwrap(), format!("/nix/store/{}", name(1)));
    let refused = async |path: &str, from: &str, why: &[&str]| {
        let (exit, text) = upload(&control, path, from).await;
        assert_eq!(exit, 1, "{text}");
        why.iter().for_each(|why| assert!(text.contains(why), "{why:?} is not in\n{text}"));
    };
    let info = cache.join(format!("{}.narinfo", "1".repeat(32)));
    refused("web-1", from, &["`web-1` is no path of the Nix store, such as /nix/store/HASH-NAME"]).await;
    refused(&top, from, &["cannot read", "No such file", "hint: --from names the folder of a binary cache"])
        .await;
    put(&cache, 1, &[0], "");
    // What it needs is not in the folder.
    refused(&top, from, &["cannot read", &format!("{}.narinfo", "0".repeat(32))]).await;
    put(&cache, 0, &[], "");
    let good = fs::read_to_string(&info).unwrap();
    let declared = |from: &str, to: &str| fs::write(&info, good.replace(from, to)).unwrap();
    declared("Compression: none", "Compression: xz");
    refused(
        &top,
        from,
        &["is packed", "hint: make the folder with `nix copy --to 'file:///DIR?compression=none'"],
    )
    .await;
    declared("StorePath: /nix/store/1", "StorePath: /nix/store/2");
    refused(&top, from, &["is of /nix/store/2", "and not of"]).await;
    declared(&format!("NarSize: {SIZE}"), "NarSize: 99999999999999");
    refused(&top, from, &["cannot be used", "99999999999999 bytes", "at most 17179869184"]).await;
    declared("NarHash", "Hash");
    refused(&top, from, &["the narinfo has no NarHash"]).await;
    declared(&format!("NarSize: {SIZE}"), "NarSize: 9");
    refused(&top, from, &["has other than the 9 bytes that its narinfo says"]).await;
    // Other bytes of the right length: the control plane finds it, and what came is gone.
    declared("", "");
    fs::write(cache.join("nar/1.nar"), nar(3)).unwrap();
    for _ in 0..2 {
        refused(&top, from, &["the archive is not what its narinfo says, and begins anew"]).await;
    }
    fs::write(cache.join("nar/1.nar"), nar(1)).unwrap();
    let (exit, text) = upload(&control, &top, from).await;
    assert!(exit == 0 && text.contains("2 paths, 1 of them sent now (9000000 bytes)"), "{text}");
    // Another build of the same path.
    let other = good.replace(&Digest::of(&nar(1)).to_string(), &Digest::of(&nar(3)).to_string());
    fs::write(&info, other).unwrap();
    refused(&top, from, &["is here with other bytes"]).await;
}
