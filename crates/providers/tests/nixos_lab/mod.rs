//! A host with NixOS: its programs are scripts that write down how they are called; a cache, a control plane, their keys.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use catalog::types::{NixosSpec, Spec};
use model::Digest;
use providers::ClosureRelay;
use trust::SigningKey;
use trust::nix::{CacheKey, NarInfo, StorePath};

use crate::common::{LONG, Lab, lab};

/// `nix-store`: it knows the paths in `valid`, and takes in what it reads.
pub const NIX_STORE: &str = r#"#!/bin/sh
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
pub const NIX_ENV: &str = r#"#!/bin/sh
own=$(dirname "$0"); echo "nix-env $*" >> "$own/calls"
[ -e "$own/fail-nix-env" ] && { echo "error: no room"; exit 1; } >&2
[ -e "$own/valid/${4##*/}" ] || exit 1
profiles=$MUSTER_ROOT/nix/var/nix/profiles
ln -sfn "$4" "$profiles/system-7-link" && ln -sfn system-7-link "$profiles/system"
"#;
/// `systemctl`: the unit is active for as many looks as `active` says, then what `failed` says, or nothing.
pub const SYSTEMCTL: &str = r#"#!/bin/sh
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
pub const SYSTEMD_RUN: &str = r#"#!/bin/sh
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

pub struct NixLab {
    pub lab: Lab,
    pub bin: PathBuf,
    pub staging: PathBuf,
}

pub fn path(number: u8) -> StorePath {
    StorePath::of_name(&format!("{}-part-{number}", number.to_string().repeat(32))).unwrap()
}

/// A host that runs path 9.
pub fn nix_lab() -> NixLab {
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
    pub fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.bin.join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    pub fn touch(&self, name: &str) {
        fs::write(self.bin.join(name), "").unwrap();
    }

    pub fn link(&self, path: &str) -> String {
        fs::read_link(self.lab.path(path)).unwrap().display().to_string()
    }

    /// Nothing was switched.
    pub fn is_as_before(&self) {
        assert_eq!(self.link("/run/current-system"), path(9).to_string());
        assert_eq!(self.link("/nix/var/nix/profiles/system"), "system-6-link");
        assert!(
            !self.calls().iter().any(|call| call.starts_with("nix-env") || call.starts_with("systemd-run"))
        );
    }

    pub fn apply_within(&self, spec: &Spec, within: Duration) -> Result<(), String> {
        let checked = self.lab.check(spec);
        self.lab.kinds.apply("system", spec, &checked, within).map(drop).map_err(String::from)
    }

    pub fn fails(&self, spec: &Spec) -> String {
        self.apply_within(spec, LONG).expect_err("it cannot be had")
    }
}

pub fn nar(number: u8) -> Vec<u8> {
    (0..200_000_u32).map(|at| (at % 7 + 1) as u8 ^ number).collect()
}

pub fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

/// What a cache says of a path that needs others.
pub fn info(number: u8, needs: &[u8]) -> NarInfo {
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

pub fn signed_by(seed: u8, info: NarInfo) -> NarInfo {
    let signature = key(seed).sign(info.fingerprint().as_bytes());
    info.signed("cache-1", &signature)
}

pub fn signed(number: u8, needs: &[u8]) -> NarInfo {
    signed_by(7, info(number, needs))
}

pub fn spec(number: u8, caches: &[&CacheServer]) -> NixosSpec {
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
pub enum Served {
    Bytes(Vec<u8>),
    /// Its head, then nothing, without an end.
    Hangs,
    /// Without a length, for ever.
    Endless,
    /// Once so many are asked for at the same time.
    Together(Vec<u8>, Arc<Barrier>),
}

/// A cache over HTTP.
pub struct CacheServer {
    pub url: String,
    pub served: Arc<Mutex<BTreeMap<String, Served>>>,
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl CacheServer {
    pub fn start() -> CacheServer {
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
    pub fn with(infos: &[NarInfo]) -> CacheServer {
        let cache = CacheServer::start();
        for info in infos {
            cache.says(info);
            let number = info.path.name()[..1].parse().unwrap();
            cache.serve(&info.url, Served::Bytes(nar(number)));
        }
        cache
    }

    pub fn says(&self, info: &NarInfo) {
        self.serve(&format!("{}.narinfo", info.path.hash()), Served::Bytes(info.to_string().into_bytes()));
    }

    pub fn serve(&self, below: &str, served: Served) {
        self.served.lock().unwrap().insert(format!("/cache/{below}"), served);
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

pub fn answer(mut stream: TcpStream, served: &Mutex<BTreeMap<String, Served>>, asked: &Mutex<Vec<String>>) {
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
pub struct RelayedPaths {
    pub infos: Vec<NarInfo>,
    pub asked: Mutex<Vec<String>>,
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

pub const SWITCH: &str =
    "systemd-run --unit=muster-nixos-switch --no-ask-password --quiet --service-type=exec --wait";
