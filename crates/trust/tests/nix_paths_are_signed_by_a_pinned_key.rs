//! ROL-9: what a Nix cache says of a path counts by the signature of a pinned key, and names nothing outside of the store.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use trust::SigningKey;
use trust::nix::{
    CacheKey, ClosureOrder, ClosureOrderError, NarCompression, NarInfo, NarInfoError, StorePath,
};

const HASHES: [&str; 4] = [
    "0c6kzph7l0dcbfmjap64f0czdafn3b7x",
    "1c6kzph7l0dcbfmjap64f0czdafn3b7x",
    "2c6kzph7l0dcbfmjap64f0czdafn3b7x",
    "3c6kzph7l0dcbfmjap64f0czdafn3b7x",
];

fn path(number: usize) -> StorePath {
    StorePath::of_name(&format!("{}-part-{number}", HASHES[number])).unwrap()
}

fn text(number: usize, needs: &[usize]) -> String {
    let references: Vec<String> = needs.iter().map(|number| path(*number).name().to_owned()).collect();
    format!(
        "StorePath: {}\nURL: nar/{number}.nar\nCompression: none\nNarHash: \
         sha256:0mdqa9w1p6cmli6976v4wi0sw9r4p5prkj7lzfd1877wk11c9c73\nNarSize: 112\nReferences: {}\n",
        path(number),
        references.join(" ")
    )
}

fn info(number: usize, needs: &[usize]) -> NarInfo {
    text(number, needs).parse().unwrap()
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

fn public(name: &str, seed: u8) -> CacheKey {
    let text = key(seed).public().to_string();
    format!("{name}:{}", text.split_once(':').unwrap().1).parse().unwrap()
}

fn signed(info: NarInfo, name: &str, seed: u8) -> NarInfo {
    let signature = key(seed).sign(info.fingerprint().as_bytes());
    info.signed(name, &signature)
}

#[test]
fn what_is_signed_has_the_form_of_nix() {
    let info = info(0, &[0, 1]);
    assert_eq!(
        info.fingerprint(),
        format!(
            "1;{0};sha256:0mdqa9w1p6cmli6976v4wi0sw9r4p5prkj7lzfd1877wk11c9c73;112;{0},{1}",
            path(0),
            path(1)
        )
    );
}

#[test]
fn only_a_pinned_key_counts() {
    let pinned = [public("cache-1", 7)];
    let good = signed(info(0, &[1]), "cache-1", 7);
    assert_eq!(good.clone().verified(&path(0), &pinned), Ok(good.clone()));
    let reread: NarInfo = good.to_string().parse().unwrap();
    assert_eq!(reread, good, "it is written as it is read");
    assert!(matches!(info(0, &[]).verified(&path(0), &pinned), Err(NarInfoError::Unsigned(_))));
    assert!(matches!(good.clone().verified(&path(1), &pinned), Err(NarInfoError::OtherPath(_))));
    let other = signed(info(0, &[]), "cache-1", 8);
    assert!(matches!(other.verified(&path(0), &pinned), Err(NarInfoError::OtherKeys { .. })));
    let renamed = signed(info(0, &[]), "cache-2", 7);
    assert!(matches!(renamed.verified(&path(0), &pinned), Err(NarInfoError::OtherKeys { .. })));
    // Each signed field, changed behind the signature.
    for (from, to) in
        [("NarSize: 112", "NarSize: 113"), ("9c73\n", "9c72\n"), (path(1).name(), path(2).name())]
    {
        let text = good.to_string();
        assert!(text.contains(from));
        let changed: NarInfo = text.replacen(from, to, 1).parse().unwrap();
        assert!(changed.verified(&path(0), &pinned).is_err(), "{from}");
    }
    // Where it lies is not signed, and decides nothing.
    let moved: NarInfo = good.to_string().replace("URL: nar/0.nar", "URL: elsewhere").parse().unwrap();
    assert!(moved.verified(&path(0), &pinned).is_ok());
}

#[test]
fn what_leads_elsewhere_or_cannot_be_read_is_refused() {
    let good = text(0, &[1]);
    for (from, to) in [
        ("URL: nar/0.nar", "URL: ../../etc/shadow"),
        ("URL: nar/0.nar", "URL: nar/../../x"),
        ("URL: nar/0.nar", "URL: nar/%2e%2e/x"),
        ("URL: nar/0.nar", "URL: /nar/x"),
        ("URL: nar/0.nar", "URL: http://other/x"),
        ("URL: nar/0.nar", "URL: "),
        ("StorePath: /nix/store/", "StorePath: /nix/store/../"),
        ("References: ", "References: ../../etc/passwd "),
        ("NarSize: 112", "NarSize: 0"),
        ("NarSize: 112", "NarSize: 99999999999999"),
        ("NarSize: 112", "NarSize: -1"),
        ("NarSize: 112", "NarSize: 112\nNarSize: 113"),
        ("NarHash: sha256:", "NarHash: md5:"),
        ("Compression: none", "Compression: br"),
        ("Compression: none", "Compression none"),
        ("NarSize: 112\n", ""),
        ("References: ", "Sig: nothing\nReferences: "),
    ] {
        let changed = good.replacen(from, to, 1);
        assert_ne!(changed, good, "{from}");
        assert!(changed.parse::<NarInfo>().is_err(), "{to}");
    }
    let unsaid: NarInfo = good.replace("Compression: none\n", "Other: field\n").parse().unwrap();
    assert_eq!(unsaid.compression, NarCompression::Bzip2, "as Nix has it");
}

#[test]
fn a_closure_is_imported_from_below() {
    let order = |infos: Vec<NarInfo>, is_there: usize| {
        let mut order = ClosureOrder::of(path(0));
        let mut left = infos;
        loop {
            let asked = order.next_asked();
            if asked.is_empty() {
                return order.finish(|needed| *needed == path(is_there));
            }
            for asked in asked {
                if let Some(at) = left.iter().position(|info| info.path == asked) {
                    order.found(left.remove(at)).unwrap();
                }
            }
        }
    };
    let names = |infos: &[NarInfo]| infos.iter().map(|info| info.path.clone()).collect::<Vec<_>>();
    let ordered = order(vec![info(0, &[0, 1, 2]), info(1, &[2, 3]), info(2, &[])], 3).unwrap();
    assert_eq!(names(&ordered), [path(2), path(1), path(0)]);
    let lacking = order(vec![info(0, &[1, 2]), info(1, &[])], 3);
    assert_eq!(lacking, Err(ClosureOrderError::Lacking(path(2))));
    let cycle = order(vec![info(0, &[1]), info(1, &[2]), info(2, &[1])], 3);
    assert!(matches!(cycle, Err(ClosureOrderError::Cycle(_))));
}
