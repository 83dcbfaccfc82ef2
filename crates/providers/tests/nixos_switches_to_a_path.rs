//! ROL-9, ROL-10: a host with NixOS gets a closure from its cache, else from the control plane, by a pinned key alone, and
//! is switched to a path of the store and back to the one before, without the network. The programs of Nix and systemd are
//! scripts here that write down how they are called.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use catalog::types::{NixosSpec, Spec};
use model::Digest;
use providers::ClosureRelay;
use trust::SigningKey;
use trust::nix::{CacheKey, NarInfo, StorePath};

use crate::common::{LONG, Lab, lab};

/// `nix-store`: it knows the paths in `valid`, and takes in what it reads.
const NIX_STORE: &str = r#"#!/bin/sh
own=$(dirname "$0"); [ -e "$own/hang-nix-store" ] && exec sleep 1000
case $1 in
--check-validity)
    shift 2
    for path; do [ -e "$own/valid/${path##*/}" ] || echo "$path"; done ;;
--import)
    cat > "$own/imported.new"
    path=$(tr '\000' '\n' < "$own/imported.new" | grep -a '^/nix/store/' | head -n 1)
    [ -n "$path" ] || exit 1
    if [ -e "$own/die-at-${path##*/}" ]; then kill -9 $$; fi
    mv "$own/imported.new" "$own/imported-${path##*/}"
    echo "import ${path##*/}" >> "$own/calls"
    : > "$own/valid/${path##*/}" ;;
*) exit 1 ;;
esac
"#;
const NIX_ENV: &str = r#"#!/bin/sh
own=$(dirname "$0"); echo "nix-env $*" >> "$own/calls"
[ -e "$own/fail-nix-env" ] && { echo "error: no room"; exit 1; } >&2
[ -e "$own/valid/${4##*/}" ] || exit 1
profiles=$MUSTER_ROOT/nix/var/nix/profiles
ln -sfn "$4" "$profiles/system-7-link" && ln -sfn system-7-link "$profiles/system"
"#;
/// `systemctl`: the unit is active for as many looks as `active` says, then what `failed` says, or nothing.
const SYSTEMCTL: &str = r#"#!/bin/sh
own=$(dirname "$0"); left=$(cat "$own/active" 2>/dev/null || echo 0)
case $1 in
show)
    if [ "$left" -gt 0 ]; then
        echo $((left - 1)) > "$own/active"; echo "systemctl $*" >> "$own/calls"
        printf 'ActiveState=active\nResult=success\n'
    elif [ -e "$own/failed" ]; then cat "$own/failed"
    else printf 'ActiveState=inactive\nResult=success\nExecMainStatus=0\n'
    fi ;;
reset-failed) rm "$own/failed" && echo "systemctl reset-failed" >> "$own/calls" ;;
*) exit 1 ;;
esac
"#;
const SYSTEMD_RUN: &str = r#"#!/bin/sh
own=$(dirname "$0")
[ -e "$own/failed" ] && { echo "Unit muster-nixos-switch.service was already loaded" >&2; exit 1; }
for word; do
    case $word in
    --property=*) ;;
    --description=*) system=${word#--description=} ;;
    *) line="$line $word" ;;
    esac
done
echo "systemd-run$line" >> "$own/calls"
[ -e "$own/hang-switch" ] && exec sleep 1000
for word; do case $word in /nix/store/*) ln -sfn "${word%/bin/*}" "$MUSTER_ROOT/run/current-system" ;; esac; done
[ -e "$own/fail-switch" ] || exit 0
printf 'ActiveState=failed\nResult=exit-code\nExecMainStatus=4\nDescription=%s\n' "$system" > "$own/failed"
exit 4
"#;

struct NixLab {
    lab: Lab,
    bin: PathBuf,
    staging: PathBuf,
}

fn path(number: u8) -> StorePath {
    StorePath::of_name(&format!("{}-part-{number}", number.to_string().repeat(32))).unwrap()
}

/// A host that runs path 9.
fn nix_lab() -> NixLab {
    let Lab { dir, blobs, kinds } = lab();
    let (bin, staging) = (dir.path().join("tools"), dir.path().join("staging"));
    for directory in ["run", "nix/var/nix/profiles", "nix/var/nix/gcroots", "tools/valid"] {
        fs::create_dir_all(dir.path().join(directory)).unwrap();
    }
    let tools = [
        ("nix-store", NIX_STORE),
        ("nix-env", NIX_ENV),
        ("systemctl", SYSTEMCTL),
        ("systemd-run", SYSTEMD_RUN),
    ];
    for (name, script) in tools {
        fs::write(bin.join(name), script).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink("/bin/gzip", bin.join("gzip")).unwrap();
    fs::write(bin.join("valid").join(path(9).name()), "").unwrap();
    symlink(path(9).to_string(), dir.path().join("run/current-system")).unwrap();
    symlink("system-6-link", dir.path().join("nix/var/nix/profiles/system")).unwrap();
    symlink(path(9).to_string(), dir.path().join("nix/var/nix/profiles/system-6-link")).unwrap();
    let kinds = kinds.with_nix_tools(bin.clone()).staging_closures_in(staging.clone());
    NixLab { lab: Lab { dir, blobs, kinds }, bin, staging }
}

impl NixLab {
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.bin.join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    fn touch(&self, name: &str) {
        fs::write(self.bin.join(name), "").unwrap();
    }

    fn link(&self, path: &str) -> String {
        fs::read_link(self.lab.path(path)).unwrap().display().to_string()
    }

    /// Nothing was switched.
    fn is_as_before(&self) {
        assert_eq!(self.link("/run/current-system"), path(9).to_string());
        assert_eq!(self.link("/nix/var/nix/profiles/system"), "system-6-link");
        assert!(
            !self.calls().iter().any(|call| call.starts_with("nix-env") || call.starts_with("systemd-run"))
        );
    }

    fn apply_within(&self, spec: &Spec, within: Duration) -> Result<(), String> {
        let checked = self.lab.check(spec);
        self.lab.kinds.apply("system", spec, &checked, within).map(drop).map_err(String::from)
    }

    fn fails(&self, spec: &Spec) -> String {
        self.apply_within(spec, LONG).expect_err("it cannot be had")
    }
}

fn nar(number: u8) -> Vec<u8> {
    (0..200_000_u32).map(|at| (at % 7 + 1) as u8 ^ number).collect()
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

/// What a cache says of a path that needs others.
fn info(number: u8, needs: &[u8]) -> NarInfo {
    let needs: Vec<String> = needs.iter().map(|needs| path(*needs).name().to_owned()).collect();
    let text = format!(
        "StorePath: {}\nURL: nar/{number}.nar\nCompression: none\nNarHash: sha256:{}\nNarSize: {}\nReferences: {}\n",
        path(number),
        Digest::of(&nar(number)),
        nar(number).len(),
        needs.join(" ")
    );
    text.parse().unwrap()
}

fn signed_by(seed: u8, info: NarInfo) -> NarInfo {
    let signature = key(seed).sign(info.fingerprint().as_bytes());
    info.signed("cache-1", &signature)
}

fn signed(number: u8, needs: &[u8]) -> NarInfo {
    signed_by(7, info(number, needs))
}

fn spec(number: u8, caches: &[&CacheServer]) -> NixosSpec {
    let public = key(7).public().to_string();
    let pinned: CacheKey = format!("cache-1:{}", public.split_once(':').unwrap().1).parse().unwrap();
    NixosSpec {
        closure: path(number),
        caches: caches.iter().map(|cache| cache.url.clone()).collect(),
        cache_keys: vec![pinned],
        control_plane: true,
        ca_file: "/none".to_owned(),
    }
}

#[derive(Clone)]
enum Served {
    Bytes(Vec<u8>),
    /// Its head, then nothing, without an end.
    Hangs,
    /// Without a length, for ever.
    Endless,
    /// Once so many are asked for at the same time.
    Together(Vec<u8>, Arc<Barrier>),
}

/// A cache over HTTP.
struct CacheServer {
    url: String,
    served: Arc<Mutex<BTreeMap<String, Served>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl CacheServer {
    fn start() -> CacheServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/cache", listener.local_addr().unwrap());
        let (served, asked) = (Arc::<Mutex<BTreeMap<_, _>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (of_thread, told) = (served.clone(), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (served, asked) = (of_thread.clone(), told.clone());
                std::thread::spawn(move || answer(stream, &served, &asked));
            }
        });
        CacheServer { url, served, asked }
    }

    /// With these paths and their archives.
    fn with(infos: &[NarInfo]) -> CacheServer {
        let cache = CacheServer::start();
        for info in infos {
            cache.says(info);
            let number = info.path.name()[..1].parse().unwrap();
            cache.serve(&info.url, Served::Bytes(nar(number)));
        }
        cache
    }

    fn says(&self, info: &NarInfo) {
        self.serve(&format!("{}.narinfo", info.path.hash()), Served::Bytes(info.to_string().into_bytes()));
    }

    fn serve(&self, below: &str, served: Served) {
        self.served.lock().unwrap().insert(format!("/cache/{below}"), served);
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, served: &Mutex<BTreeMap<String, Served>>, asked: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let path = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default().to_owned();
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let range =
        head.iter().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-')?.parse().ok());
    let range: Option<usize> = range;
    asked
        .lock()
        .unwrap()
        .push(format!("{path}{}", range.map(|from| format!(" from {from}")).unwrap_or_default()));
    let found = served.lock().unwrap().get(&path).cloned();
    // Who hung up hears nothing.
    let _ = match found {
        None => stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"),
        Some(Served::Together(bytes, others)) => {
            others.wait();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len());
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes))
        }
        Some(Served::Bytes(bytes)) => {
            let (from, all) = (range.unwrap_or(0), bytes.len());
            let line = if range.is_some() {
                format!("206 Partial Content\r\ncontent-range: bytes {from}-{}/{all}", all - 1)
            } else {
                "200 OK".to_owned()
            };
            let head = format!("HTTP/1.1 {line}\r\ncontent-length: {}\r\n\r\n", all - from);
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes[from..]))
        }
        Some(Served::Hangs) => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\nx");
            // Until the other side gives up.
            let heard = stream.set_read_timeout(None);
            BufReader::new(&stream).lines().for_each(drop);
            heard
        }
        Some(Served::Endless) => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[7; 65536]).is_ok() {}
            Ok(())
        }
    };
}

/// A control plane with some paths.
#[derive(Default)]
struct RelayedPaths {
    infos: Vec<NarInfo>,
    asked: Mutex<Vec<String>>,
}

impl ClosureRelay for RelayedPaths {
    fn narinfo(&self, hash: &str) -> Result<Option<Vec<u8>>, String> {
        self.asked.lock().unwrap().push(hash.to_owned());
        let found = self.infos.iter().find(|info| info.path.hash() == hash);
        Ok(found.map(|info| info.to_string().into_bytes()))
    }

    fn archive(&self, digest: &Digest, from: u64) -> Result<Vec<u8>, String> {
        self.asked.lock().unwrap().push(format!("{} from {from}", digest.short()));
        let info = self.infos.iter().find(|info| info.nar_hash == *digest).ok_or("unknown")?;
        let bytes = nar(info.path.name()[..1].parse().unwrap());
        Ok(bytes[usize::try_from(from).unwrap()..].iter().copied().take(90_000).collect())
    }
}

const SWITCH: &str =
    "systemd-run --unit=muster-nixos-switch --no-ask-password --quiet --service-type=exec --wait";

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

/// ROL-7: the switch restarted the agent that waited for it, and failed afterwards.
#[test]
fn an_agent_that_a_switch_restarted_learns_how_it_ended() {
    let cache = CacheServer::with(&[signed(1, &[])]);
    let wanted = Spec::Nixos(spec(1, &[&cache]));
    let nix = nix_lab();
    nix.apply_within(&wanted, LONG).unwrap();
    let failed = |number: u8| {
        let system = path(number);
        let shown = format!("ActiveState=failed\nResult=exit-code\nExecMainStatus=4\nDescription={system}\n");
        fs::write(nix.bin.join("failed"), shown).unwrap();
    };
    // All is where it leads to, and yet the switch failed: that is said once.
    failed(1);
    assert!(nix.lab.check(&wanted).edit.is_some(), "it is seen");
    let why = nix.fails(&wanted);
    assert!(why.contains("outlived the agent") && why.contains("it exited with 4"), "{why}");
    assert_eq!(nix.calls().last().unwrap(), "systemctl reset-failed");
    assert_eq!(nix.lab.check(&wanted).edit, None);
    // The way back does not mind it, and takes its unit's place.
    failed(1);
    let back = Spec::Nixos(NixosSpec { control_plane: false, ..spec(9, &[]) });
    nix.apply_within(&back, LONG).unwrap();
    assert_eq!(nix.link("/run/current-system"), path(9).to_string());
    assert_eq!(nix.lab.check(&back).edit, None, "and its failure is nobody's any more");
    // One that was waited for is told as before, and stands in nobody's way.
    nix.touch("fail-switch");
    let why = nix.fails(&wanted);
    assert!(why.contains("systemd-run exited with 4"), "{why}");
    fs::remove_file(nix.bin.join("fail-switch")).unwrap();
    nix.apply_within(&back, LONG).unwrap();
    nix.apply_within(&wanted, LONG).unwrap();
    // One that is under way and ends well was the switch: it is not made again.
    let calls = nix.calls().len();
    let checked = {
        fs::write(nix.bin.join("active"), "3").unwrap();
        nix.lab.check(&wanted)
    };
    nix.lab.kinds.apply("system", &wanted, &checked, LONG).unwrap();
    assert!(nix.calls()[calls..].iter().all(|call| call.starts_with("systemctl show")), "{:?}", nix.calls());
}

/// CNV-12: what only a boot changes asks for one, as a package does, and no more once the host is back.
#[test]
fn another_kernel_asks_for_a_boot() {
    let cache = CacheServer::with(&[signed(1, &[])]);
    let wanted = Spec::Nixos(spec(1, &[&cache]));
    let back = Spec::Nixos(NixosSpec { control_plane: false, ..spec(9, &[]) });
    let nix = nix_lab();
    let kernel = |number: u8, name: &str, to: &str| {
        let system = nix.lab.path(&path(number).to_string());
        fs::create_dir_all(&system).unwrap();
        let _ = fs::remove_file(system.join(name));
        symlink(to, system.join(name)).unwrap();
    };
    symlink(path(9).to_string(), nix.lab.path("/run/booted-system")).unwrap();
    for name in ["kernel", "initrd", "kernel-modules"] {
        [1, 9].iter().for_each(|number| kernel(*number, name, &format!("/nix/store/{name}-a")));
    }
    let asks = || fs::read_to_string(nix.lab.path("/run/reboot-required.pkgs")).ok();
    nix.apply_within(&wanted, LONG).unwrap();
    assert_eq!(asks(), None, "the same kernel");
    nix.apply_within(&back, LONG).unwrap();
    kernel(1, "kernel-modules", "/nix/store/kernel-modules-b");
    nix.apply_within(&wanted, LONG).unwrap();
    assert_eq!(asks().as_deref(), Some("nixos-kernel-modules\n"));
    assert!(nix.lab.path("/run/reboot-required").exists());
    nix.apply_within(&back, LONG).unwrap();
    assert_eq!((asks(), nix.lab.path("/run/reboot-required").exists()), (None, false));
    // What somebody else asks for stays.
    nix.lab.write("/run/reboot-required.pkgs", b"libc6\n");
    nix.apply_within(&wanted, LONG).unwrap();
    nix.apply_within(&back, LONG).unwrap();
    assert_eq!(asks().as_deref(), Some("libc6\n"));
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
