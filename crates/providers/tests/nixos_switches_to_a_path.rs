//! ROL-9, ROL-10: a host with NixOS gets a closure from its cache, else from the control plane, by a pinned key alone, and
//! is switched to a path of the store and back to the one before, without the network. The programs of Nix and systemd are
//! scripts here that write down how they are called.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
mod nixos_lab;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Stdio;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use catalog::types::{NixosSpec, Spec};
use model::Digest;
use trust::nix::NarInfo;

use crate::common::LONG;
use crate::nixos_lab::*;

#[test]
fn a_closure_comes_from_its_cache_from_below_and_is_switched_to_by_its_path() {
    let nix = nix_lab();
    let cache = CacheServer::with(&[signed(1, &[1, 2, 3, 9]), signed(2, &[3]), signed(3, &[])]);
    let relay = Arc::new(RelayedPaths::default());
    nix.lab.kinds.relay_closures(relay.clone());
    let wanted = Spec::Nixos(spec(1, &[&cache]));
    nix.apply_within(&wanted, LONG).unwrap();
    let system = path(1);
    assert_eq!(
        nix.calls(),
        [
            format!("import {}", path(3).name()),
            format!("import {}", path(2).name()),
            format!("import {}", system.name()),
            format!("nix-env -p /nix/var/nix/profiles/system --set {system}"),
            format!("{SWITCH} {system}/bin/switch-to-configuration switch"),
        ]
    );
    // What Nix reads: that a path comes, its archive, what is known of it, the end.
    let read = fs::read(nix.bin.join(format!("imported-{}", path(2).name()))).unwrap();
    let expected = [&1_u64.to_le_bytes()[..], &nar(2), &signed(2, &[3]).export_end()].concat();
    assert!(read == expected);
    assert_eq!(nix.link("/run/current-system"), system.to_string());
    let roots = |nix: &NixLab| {
        let mut names: Vec<String> = fs::read_dir(nix.lab.path("/nix/var/nix/gcroots/muster"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(roots(&nix), [path(1).name(), path(9).name()], "the system, and the one before");
    assert!(!nix.staging.exists(), "nothing is left of it");
    assert!(relay.asked.lock().unwrap().is_empty(), "the cache has all of it");
    assert_eq!(cache.asked().iter().filter(|asked| asked.contains(path(9).hash())).count(), 0, "it is there");
    // Again: nothing to do.
    let calls = nix.calls().len();
    assert_eq!(nix.lab.check(&wanted).edit, None);
    nix.apply_within(&wanted, LONG).unwrap();
    assert_eq!(nix.calls().len(), calls);
    // Back to what ran before, by its path, while nothing answers; without anything that would be fetched.
    drop(std::mem::take(&mut *cache.served.lock().unwrap()));
    let before = cache.asked().len();
    let back = Spec::Nixos(NixosSpec { control_plane: false, ..spec(9, &[]) });
    nix.apply_within(&back, LONG).unwrap();
    assert_eq!(
        nix.calls()[calls..],
        [
            format!("nix-env -p /nix/var/nix/profiles/system --set {}", path(9)),
            format!("{SWITCH} {}/bin/switch-to-configuration switch", path(9)),
        ]
    );
    assert_eq!((nix.link("/run/current-system"), cache.asked().len()), (path(9).to_string(), before));
    assert_eq!(roots(&nix), [path(1).name(), path(9).name()]);
}

#[test]
fn the_control_plane_gives_what_no_cache_does() {
    // One cache that cannot be reached, one that lacks a path; the control plane has that one.
    let nix = nix_lab();
    let gone = CacheServer { url: "http://127.0.0.1:9/cache".to_owned(), ..CacheServer::start() };
    let cache = CacheServer::with(&[signed(1, &[2])]);
    let relay = Arc::new(RelayedPaths { infos: vec![signed(1, &[2]), signed(2, &[])], ..Default::default() });
    nix.lab.kinds.relay_closures(relay.clone());
    nix.apply_within(&Spec::Nixos(spec(1, &[&gone, &cache])), LONG).unwrap();
    let parts = [0, 90_000, 180_000].map(|from| format!("{} from {from}", Digest::of(&nar(2)).short()));
    assert_eq!(relay.asked.lock().unwrap()[..], [&[path(2).hash().to_owned()][..], &parts].concat());
    assert_eq!(nix.link("/run/current-system"), path(1).to_string());
    // It is not believed more than a cache is, and not asked where the release says so.
    for (spec, why) in [
        (NixosSpec { control_plane: false, ..spec(3, &[]) }, "there is nobody to ask"),
        (spec(3, &[]), "the control plane does not have it"),
    ] {
        assert!(nix.fails(&Spec::Nixos(spec)).contains(why));
    }
    let nix = nix_lab();
    let forged = RelayedPaths { infos: vec![signed_by(8, info(1, &[]))], ..Default::default() };
    nix.lab.kinds.relay_closures(Arc::new(forged));
    let why = nix.fails(&Spec::Nixos(spec(1, &[])));
    assert!(why.contains("by none of the pinned keys"), "{why}");
    nix.is_as_before();
}

#[test]
fn what_is_not_signed_or_not_what_was_signed_is_not_imported() {
    let served = |below: &str, served: Served| (below.to_owned(), served);
    let text = |info: &NarInfo| Served::Bytes(info.to_string().into_bytes());
    let of_top = format!("{}.narinfo", path(1).hash());
    let mut flipped = nar(1);
    flipped[150_000] ^= 1;
    let endless = signed(1, &[2]).to_string();
    let cases = [
        (served(&of_top, text(&info(1, &[2]))), "nobody signed"),
        (served(&of_top, text(&signed_by(8, info(1, &[2])))), "by none of the pinned keys"),
        (served(&of_top, text(&signed(3, &[]))), "was not asked for"),
        (
            served(&of_top, Served::Bytes(endless.replace("nar/1.nar", "../../x").into_bytes())),
            "URL of the narinfo",
        ),
        (served(&of_top, Served::Bytes(vec![b'x'; 2 << 20])), "at most 1048576"),
        (served(&of_top, Served::Endless), "longer than"),
        (served("nar/1.nar", Served::Bytes(flipped)), "not the signed"),
        (served("nar/1.nar", Served::Bytes(nar(1)[..100_000].to_vec())), "100000 bytes"),
        (served("nar/1.nar", Served::Bytes([nar(1), vec![0]].concat())), "at most 200000"),
        (served("nar/1.nar", Served::Endless), "more than 200000 bytes"),
        (
            served(&format!("{}.narinfo", path(2).hash()), Served::Bytes(b"gone".to_vec())),
            "line 1 of the narinfo",
        ),
    ];
    for ((below, served), expected) in cases {
        let nix = nix_lab();
        let cache = CacheServer::with(&[signed(1, &[2]), signed(2, &[])]);
        cache.serve(&below, served);
        let why = nix.fails(&Spec::Nixos(spec(1, &[&cache])));
        assert!(why.contains(expected), "{below}: {why}");
        assert!(!nix.calls().contains(&format!("import {}", path(1).name())), "{below}");
        nix.is_as_before();
        // Once the cache is right it goes on, whatever came before.
        cache.says(&signed(1, &[2]));
        cache.says(&signed(2, &[]));
        cache.serve("nar/1.nar", Served::Bytes(nar(1)));
        nix.apply_within(&Spec::Nixos(spec(1, &[&cache])), LONG)
            .unwrap_or_else(|why| panic!("{below}: {why}"));
        assert_eq!(nix.link("/run/current-system"), path(1).to_string());
    }
    // A path that is needed and is nowhere.
    let nix = nix_lab();
    let cache = CacheServer::with(&[signed(1, &[2])]);
    let why = nix.fails(&Spec::Nixos(spec(1, &[&cache])));
    assert!(why.contains(path(2).name()) && why.contains("does not have it"), "{why}");
    nix.is_as_before();
}

#[test]
fn a_fetch_that_hangs_or_dies_goes_on_where_it_was() {
    let nix = nix_lab();
    let cache = CacheServer::with(&[signed(1, &[2]), signed(2, &[])]);
    cache.serve("nar/1.nar", Served::Hangs);
    let wanted = Spec::Nixos(spec(1, &[&cache]));
    let why = nix.apply_within(&wanted, Duration::from_secs(2)).unwrap_err();
    assert!(why.contains("longer than"), "{why}");
    nix.is_as_before();
    assert_eq!(nix.calls(), [format!("import {}", path(2).name())], "what came before stays");
    // As if the agent had been killed in the middle.
    let partial = nix.staging.join(format!("{}.none", Digest::of(&nar(1))));
    fs::write(&partial, &nar(1)[..120_000]).unwrap();
    cache.serve("nar/1.nar", Served::Bytes(nar(1)));
    nix.touch(&format!("die-at-{}", path(1).name()));
    let why = nix.fails(&wanted);
    assert!(why.contains("nix-store"), "{why}");
    assert!(cache.asked().contains(&"/cache/nar/1.nar from 120000".to_owned()), "{:?}", cache.asked());
    nix.is_as_before();
    fs::remove_file(nix.bin.join(format!("die-at-{}", path(1).name()))).unwrap();
    nix.apply_within(&wanted, LONG).unwrap();
    let imports = nix.calls().iter().filter(|call| call.starts_with("import")).count();
    assert_eq!(imports, 2, "each once");
}

#[test]
fn packed_archives_are_unpacked_within_their_size() {
    let gzip = |bytes: &[u8]| {
        let mut child =
            std::process::Command::new("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&bytes).unwrap());
        let packed = child.wait_with_output().unwrap().stdout;
        writer.join().unwrap();
        packed
    };
    let packed: NarInfo =
        signed(1, &[]).to_string().replace("Compression: none", "Compression: gzip").parse().unwrap();
    let (nix, cache) = (nix_lab(), CacheServer::with(std::slice::from_ref(&packed)));
    cache.serve("nar/1.nar", Served::Bytes(gzip(&nar(1))));
    nix.apply_within(&Spec::Nixos(spec(1, &[&cache])), LONG).unwrap();
    let read = fs::read(nix.bin.join(format!("imported-{}", path(1).name()))).unwrap();
    assert!(read == [&1_u64.to_le_bytes()[..], &nar(1), &packed.export_end()].concat());
    // What unpacks to far more, and what is not packed at all.
    for (bytes, why) in
        [(gzip(&vec![0; 100 << 20]), "200001 bytes"), (b"no gzip".to_vec(), "gzip exited with")]
    {
        let (nix, cache) = (nix_lab(), CacheServer::with(std::slice::from_ref(&packed)));
        cache.serve("nar/1.nar", Served::Bytes(bytes));
        let failed = nix.fails(&Spec::Nixos(spec(1, &[&cache])));
        assert!(failed.contains(why), "{failed}");
        nix.is_as_before();
    }
}

/// The dictionary that the head of an archive asks for is memory that its unpacking takes before the first byte.
#[test]
fn an_archive_that_takes_much_memory_to_unpack_is_refused() {
    let Ok(made) = std::process::Command::new("xz").arg("--version").output() else {
        return eprintln!("skipped: there is no xz here");
    };
    assert!(made.status.success());
    let xz = |preset: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), nar(1)).unwrap();
        let packed = std::process::Command::new("xz").args([preset, "-c"]).arg(file.path()).output().unwrap();
        assert!(packed.status.success());
        packed.stdout
    };
    let packed: NarInfo =
        signed(1, &[]).to_string().replace("Compression: none", "Compression: xz").parse().unwrap();
    let lab = |bytes: Vec<u8>| {
        let (nix, cache) = (nix_lab(), CacheServer::with(std::slice::from_ref(&packed)));
        symlink("/usr/bin/xz", nix.bin.join("xz")).unwrap();
        cache.serve("nar/1.nar", Served::Bytes(bytes));
        (nix, cache)
    };
    // The hardest that there is by name.
    let (nix, cache) = lab(xz("-9e"));
    nix.apply_within(&Spec::Nixos(spec(1, &[&cache])), LONG).unwrap();
    let (nix, cache) = lab(with_dictionary_of_4_gib(xz("-6")));
    let failed = nix.fails(&Spec::Nixos(spec(1, &[&cache])));
    assert!(failed.contains("xz exited with") && failed.contains("memory"), "{failed}");
    nix.is_as_before();
    assert!(
        !nix.staging.exists() || fs::read_dir(&nix.staging).unwrap().next().is_none(),
        "nothing is left of it"
    );
}

/// The same archive, whose first block says that it needs all that xz knows.
fn with_dictionary_of_4_gib(mut packed: Vec<u8>) -> Vec<u8> {
    // After the stream's header of 12 bytes: the length of the block's header in words, flags, then one filter: LZMA2 (0x21)
    // with one byte of properties, the size of its dictionary.
    let length = (usize::from(packed[12]) + 1) * 4;
    let header = &mut packed[12..12 + length];
    let filter = header.windows(2).position(|two| two == [0x21, 1]).unwrap();
    header[filter + 2] = 40;
    let mut crc = !0_u32;
    for byte in &header[..length - 4] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    header[length - 4..].copy_from_slice(&(!crc).to_le_bytes());
    packed
}

#[test]
fn a_switch_that_fails_hangs_or_is_under_way_is_told() {
    let cache = CacheServer::with(&[signed(1, &[])]);
    let wanted = Spec::Nixos(spec(1, &[&cache]));
    // The profile cannot be set: nothing is switched.
    let nix = nix_lab();
    nix.touch("fail-nix-env");
    let why = nix.fails(&wanted);
    assert!(why.contains("no room"), "{why}");
    assert_eq!(nix.link("/run/current-system"), path(9).to_string());
    // Units of the new system do not start.
    let nix = nix_lab();
    nix.touch("fail-switch");
    let why = nix.fails(&wanted);
    assert!(why.contains("systemd-run exited with 4"), "{why}");
    // It never ends.
    let nix = nix_lab();
    nix.touch("hang-switch");
    let why = nix.apply_within(&wanted, Duration::from_secs(3)).unwrap_err();
    assert!(why.contains("did not end within"), "{why}");
    // The agent was restarted by a switch that goes on: it waits, and switches after it.
    let nix = nix_lab();
    fs::write(nix.bin.join("active"), "3").unwrap();
    nix.apply_within(&wanted, LONG).unwrap();
    let waited = nix.calls().iter().filter(|call| call.starts_with("systemctl show")).count();
    assert_eq!((waited, nix.link("/run/current-system")), (3, path(1).to_string()));
    // What it leads to is there already, and the switch is not done.
    fs::write(nix.bin.join("active"), "1").unwrap();
    assert!(nix.lab.check(&wanted).edit.is_some());
    assert_eq!(nix.lab.check(&wanted).edit, None);
    // A host without NixOS.
    let nix = nix_lab();
    fs::remove_file(nix.lab.path("/run/current-system")).unwrap();
    fs::remove_file(nix.lab.path("/nix/var/nix/profiles/system")).unwrap();
    let why = nix.fails(&wanted);
    assert!(why.contains("runs no NixOS"), "{why}");
}

/// What waits for one answer after the other takes hours for a system of thousands of paths.
#[test]
fn several_are_fetched_at_a_time_and_imported_in_their_order() {
    let nix = nix_lab();
    let parts = [2, 3, 4, 5];
    let all = [vec![signed(1, &parts)], parts.map(|part| signed(part, &[])).to_vec()].concat();
    let cache = CacheServer::with(&all);
    let (infos, archives) = (Arc::new(Barrier::new(4)), Arc::new(Barrier::new(4)));
    for part in parts {
        let info = signed(part, &[]);
        let text = info.to_string().into_bytes();
        cache.serve(&format!("{}.narinfo", info.path.hash()), Served::Together(text, infos.clone()));
        cache.serve(&info.url, Served::Together(nar(part), archives.clone()));
    }
    nix.apply_within(&Spec::Nixos(spec(1, &[&cache])), Duration::from_secs(20)).unwrap();
    let calls = nix.calls();
    let imports: Vec<&String> = calls.iter().filter(|call| call.starts_with("import")).collect();
    assert_eq!((imports.len(), imports[4]), (5, &format!("import {}", path(1).name())), "from below");
    assert!(!nix.staging.exists(), "nothing is left of it");
    // Two paths with one archive: it lies there once at a time.
    let same = |number: u8, needs: &[u8]| -> NarInfo {
        let mut info = info(number, needs);
        info.nar_hash = Digest::of(&nar(7));
        signed_by(7, info)
    };
    let (nix, cache) = (nix_lab(), CacheServer::start());
    for info in [same(2, &[]), same(3, &[]), signed(1, &[2, 3])] {
        cache.says(&info);
        let bytes = if info.path == path(1) { nar(1) } else { nar(7) };
        cache.serve(&info.url, Served::Bytes(bytes));
    }
    nix.apply_within(&Spec::Nixos(spec(1, &[&cache])), LONG).unwrap();
    assert_eq!(nix.calls().iter().filter(|call| call.starts_with("import")).count(), 3);
}
