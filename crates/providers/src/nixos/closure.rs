//! A closure into the store of Nix: fetched, verified, imported (ROL-9).
//!
//! ```text
//! narinfo of each path, by a pinned key -> those that the store lacks, from below
//!   -> STAGING/HASH.ARCHIVE, some at a time (goes on where it broke off)
//!   -> in their order: unpacked -> SHA-256 and size -> nix-store --import
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use catalog::types::NixosSpec;
use converge::JobFailure;
use host::{End, Program};
use model::Digest;
use model::digest::Hasher;
use model::text::chain;
use trust::nix::{ClosureOrder, NarCompression, NarInfo, StorePath};

use super::source::{ClosureSource, SourceFailure, sources};
use super::{LOOK_WITHIN, left};
use crate::Kinds;
use crate::kinds::{MAX_OUTPUT, because, failure};
use crate::tools::ToolCall;

/// Read and written at a time, in bytes.
const PIECE: usize = 64 * 1024;
/// How many archives are fetched at a time: that many lie in the staging directory.
const FETCHES: usize = 4;
/// How many paths the sources are asked for at a time.
const ASKS: usize = 8;
/// The most paths that the store is asked for at once.
const ASK: usize = 500;
/// How long one archive may take at most.
const ARCHIVE_WITHIN: Duration = Duration::from_secs(3600);
/// What packing may add to an archive, in bytes, besides an eighth of it.
const PACKING: u64 = 64 * 1024;
/// `nix-store --import` reads: that a path comes, its archive, what is known of it, that none comes any more. The first is
/// printed here, the rest is read from standard input. `$1` the archive, `$2` nix-store.
const IMPORT: &str =
    r#"{ printf '\001\000\000\000\000\000\000\000' && cat -- "$1" && cat; } | "$2" --import"#;
/// The most memory of a program that unpacks, in KiB of its address space. What Nix packs at its hardest takes a quarter of it:
/// xz has a dictionary of at most 64 MiB, zstd a window of 128. The head of a hostile archive can ask for 4 GiB.
const UNPACK_KIB: u64 = 384 * 1024;
/// `$1` the packed archive, `$2` the archive, `$3` the most bytes of it, `$4` the program, `$5` its most memory. A program that
/// fails says so, unless it was cut off as the archive has too many bytes, which is seen when it is verified.
const UNPACK: &str = r#"umask 077
failed=$({ { (ulimit -v "$5" && exec "$4" -dc < "$1") || echo $? >&3; } | head -c "$3" > "$2"; } 3>&1)
[ -z "$failed" ] || [ "$(wc -c < "$2")" -ge "$3" ] || exit "$failed""#;

/// Whether the store has a path, with all that it needs.
pub(super) fn is_valid(kinds: &Kinds, path: &StorePath) -> Result<bool, String> {
    Ok(lacking(kinds, std::slice::from_ref(path))?.is_empty())
}

/// Those of these paths that the store lacks.
fn lacking(kinds: &Kinds, paths: &[StorePath]) -> Result<Vec<StorePath>, String> {
    let mut lacking = Vec::new();
    for paths in paths.chunks(ASK) {
        let mut argv = vec![kinds.nix.tool("nix-store"), "--check-validity".into(), "--print-invalid".into()];
        argv.extend(paths.iter().map(StorePath::to_string));
        let call = ToolCall { argv, input: &[], timeout: LOOK_WITHIN };
        let finished = kinds.tool(call)?;
        if finished.end != End::Exited(0) {
            return Err(format!("nix-store {}", failure(finished.end, &finished, LOOK_WITHIN)));
        }
        let printed = String::from_utf8_lossy(&finished.stdout.bytes).into_owned();
        let named = printed.lines().filter(|line| !line.is_empty()).map(str::parse::<StorePath>);
        for path in named {
            lacking.push(path.map_err(|error| format!("nix-store --print-invalid: {error}"))?);
        }
    }
    Ok(lacking)
}

/// Brings a closure into the store. What was imported before a failure stays, and the rest of an archive is fetched the next
/// time.
pub(super) fn fetch(kinds: &Kinds, spec: &NixosSpec, deadline: Instant) -> Result<(), JobFailure> {
    let Some(staging) = kinds.nix.staging.clone() else {
        return Err("this command fetches no closure; the running agent does".to_owned().into());
    };
    let failed = |error: std::io::Error| format!("{} cannot be used: {error}", staging.display());
    std::fs::create_dir_all(&staging).map_err(failed)?;
    let sources = sources(kinds, spec)?;
    let given_up = AtomicBool::new(false);
    let fetch =
        ClosureFetch { kinds, spec, deadline, staging: &staging, sources: &sources, given_up: &given_up };
    fetch.import_all(fetch.walk()?)?;
    // All is in the store: what lies here is of what was given up.
    std::fs::remove_dir_all(&staging).map_err(failed)?;
    Ok(())
}

struct ClosureFetch<'f> {
    kinds: &'f Kinds,
    spec: &'f NixosSpec,
    deadline: Instant,
    staging: &'f Path,
    sources: &'f [ClosureSource],
    /// What is fetched ahead is needed no more.
    given_up: &'f AtomicBool,
}

/// What a source said of a path.
struct ToldPath {
    info: NarInfo,
    source: usize,
}

impl ClosureFetch<'_> {
    fn goes_on(&self) -> Result<(), String> {
        match (self.kinds.host.is_cancelled(), left(self.deadline).is_zero()) {
            (true, _) => Err("the agent is stopping".to_owned()),
            _ if self.given_up.load(Ordering::Relaxed) => Err("another archive failed".to_owned()),
            (_, true) => Err("the closure was not fetched in time; the next run goes on".to_owned()),
            _ => Ok(()),
        }
    }

    /// What the store lacks of the closure, from below.
    fn walk(&self) -> Result<Vec<ToldPath>, String> {
        let mut order = ClosureOrder::of(self.spec.closure.clone());
        let mut told_by: BTreeMap<StorePath, usize> = BTreeMap::new();
        loop {
            let asked = lacking(self.kinds, &order.next_asked())?;
            if asked.is_empty() {
                break;
            }
            for paths in asked.chunks(ASKS) {
                self.goes_on()?;
                for told in self.ask_all(paths) {
                    let told = told?;
                    told_by.insert(told.info.path.clone(), told.source);
                    order.found(told.info).map_err(|error| error.to_string())?;
                }
            }
        }
        // What was not found is what the store has.
        let order = order.finish(|_| true).map_err(|error| error.to_string())?;
        let told = |info: NarInfo| {
            let source = told_by.get(&info.path).copied().unwrap_or_default();
            ToldPath { info, source }
        };
        Ok(order.into_iter().map(told).collect())
    }

    /// What the sources say of some paths, in the order of these.
    fn ask_all(&self, paths: &[StorePath]) -> Vec<Result<ToldPath, String>> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = paths.iter().map(|path| scope.spawn(|| self.ask(path))).collect();
            let panicked = |_| Err("what a source said could not be read".to_owned());
            asked.into_iter().map(|asked| asked.join().unwrap_or_else(panicked)).collect()
        })
    }

    /// The first that says something of a path which counts.
    fn ask(&self, path: &StorePath) -> Result<ToldPath, String> {
        let mut why = Vec::new();
        for (source, asked) in self.sources.iter().enumerate() {
            match asked.info(path, self.spec) {
                Ok(info) => return Ok(ToldPath { info, source }),
                Err(SourceFailure::Lacks | SourceFailure::BehindEnd) => {
                    why.push(format!("{} does not have it", asked.name()))
                }
                Err(SourceFailure::Failed(reason)) => why.push(format!("{}: {reason}", asked.name())),
            }
        }
        if why.is_empty() {
            why.push(
                "there is nobody to ask: no cache is declared, and the control plane is not to be asked"
                    .into(),
            );
        }
        Err(format!("{path} is to be had nowhere: {}", why.join("; ")))
    }

    /// Imports paths in their order, while the archives of those that follow are fetched.
    fn import_all(&self, order: Vec<ToldPath>) -> Result<(), JobFailure> {
        let mut left = order.into_iter().map(Arc::new).peekable();
        std::thread::scope(|scope| {
            let mut ahead: VecDeque<(Arc<ToldPath>, _)> = VecDeque::new();
            loop {
                // Two paths may have one archive, which lies there once.
                let is_apart = |told: &Arc<ToldPath>, ahead: &VecDeque<(Arc<ToldPath>, _)>| {
                    ahead.iter().all(|(other, _)| other.info.nar_hash != told.info.nar_hash)
                };
                while ahead.len() < FETCHES
                    && let Some(told) = left.next_if(|told| is_apart(told, &ahead))
                {
                    let fetched = told.clone();
                    let fetch = move || self.download(self.source_of(&fetched), &fetched.info);
                    ahead.push_back((told, scope.spawn(fetch)));
                }
                let Some((told, fetched)) = ahead.pop_front() else { return Ok(()) };
                let panicked = |_| Err("the archive could not be fetched".to_owned().into());
                let imported = self.import_from(&told, fetched.join().unwrap_or_else(panicked));
                if imported.is_err() {
                    self.given_up.store(true, Ordering::Relaxed);
                    return imported;
                }
            }
        })
    }

    fn source_of(&self, told: &ToldPath) -> &ClosureSource {
        &self.sources[told.source]
    }

    /// Imports a path by what one source said and gave, else by what the next does.
    fn import_from(&self, told: &ToldPath, fetched: Result<(), JobFailure>) -> Result<(), JobFailure> {
        let first = match fetched.and_then(|()| self.import(self.source_of(told), &told.info)) {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        let (name, path) = (self.source_of(told).name(), &told.info.path);
        for source in self.sources.iter().skip(told.source + 1) {
            self.goes_on()?;
            if let Ok(info) = source.info(path, self.spec)
                && self.download(source, &info).and_then(|()| self.import(source, &info)).is_ok()
            {
                tracing::warn!(path = path.name(), from = name, "an archive came from the next source");
                return Ok(());
            }
        }
        Err(JobFailure { message: format!("{name}: {}", first.message), ..first })
    }

    /// Where an archive lies as its source packs it: two may pack it differently.
    fn packed(&self, source: &ClosureSource, info: &NarInfo) -> PathBuf {
        let from = match info.compression {
            NarCompression::None => String::new(),
            _ => Digest::of(format!("{} {}", source.name(), info.url).as_bytes()).short(),
        };
        self.staging.join(format!("{}{from}.{}", info.nar_hash, info.compression.as_str()))
    }

    /// Imports a path whose archive was fetched.
    fn import(&self, source: &ClosureSource, info: &NarInfo) -> Result<(), JobFailure> {
        self.goes_on()?;
        let packed = self.packed(source, info);
        let nar = match info.compression {
            NarCompression::None => packed.clone(),
            compression => self.unpack(info, compression, &packed)?,
        };
        let verified = verify(&nar, info);
        let imported = verified.map_err(JobFailure::from).and_then(|()| self.hand_over(info, &nar));
        for file in [&nar, &packed] {
            // A cut-off import is made anew from the archive, which is fetched again.
            let _ = std::fs::remove_file(file);
        }
        imported
    }

    /// Fetches what lies at the source, from where it broke off.
    fn download(&self, source: &ClosureSource, info: &NarInfo) -> Result<(), JobFailure> {
        self.goes_on()?;
        let packed = &self.packed(source, info);
        let most = match info.compression {
            NarCompression::None => info.nar_size,
            _ => info.nar_size + info.nar_size / 8 + PACKING,
        };
        let whole = match info.compression {
            NarCompression::None => Some(info.nar_size),
            _ => info.file_size,
        };
        let failed = |error: std::io::Error| format!("{}: {error}", packed.display());
        let mut file =
            OpenOptions::new().append(true).create(true).mode(0o600).open(packed).map_err(failed)?;
        let mut held = file.metadata().map_err(failed)?.len();
        if held > most {
            file.set_len(0).map_err(failed)?;
            held = 0;
        }
        if whole == Some(held) {
            return Ok(());
        }
        let within = left(self.deadline).min(ARCHIVE_WITHIN);
        let mut from = match source.archive(info, held, most, within) {
            Ok(from) => from,
            // It is whole, or something else, which is seen when it is verified.
            Err(SourceFailure::BehindEnd) => return Ok(()),
            Err(SourceFailure::Lacks) => {
                return Err(format!("the archive of {} is not there", info.path).into());
            }
            Err(SourceFailure::Failed(why)) => return Err(why.into()),
        };
        let mut piece = vec![0; PIECE];
        loop {
            self.goes_on()?;
            let count = from.read(&mut piece).map_err(|error| format!("{}: {}", info.path, chain(&error)))?;
            if count == 0 {
                break;
            }
            held += count as u64;
            if held > most {
                drop(from);
                let _ = std::fs::remove_file(packed);
                return Err(format!("the archive of {} has more than {most} bytes", info.path).into());
            }
            file.write_all(&piece[..count]).map_err(failed)?;
        }
        Ok(())
    }

    fn unpack(
        &self,
        info: &NarInfo,
        compression: NarCompression,
        packed: &Path,
    ) -> Result<PathBuf, JobFailure> {
        let nar = self.staging.join(format!("{}.nar", info.nar_hash));
        // One byte more than it may have shows that it has too many.
        let (most, memory) = ((info.nar_size + 1).to_string(), UNPACK_KIB.to_string());
        let tool = self.kinds.nix.tool(compression.as_str());
        let arguments = [&*text_of(packed), &text_of(&nar), &most, &tool, &memory];
        if let Err(error) = self.shell(compression.as_str(), UNPACK, &arguments, &[]) {
            for file in [packed, &*nar] {
                let _ = std::fs::remove_file(file);
            }
            return Err(error);
        }
        Ok(nar)
    }

    fn hand_over(&self, info: &NarInfo, nar: &Path) -> Result<(), JobFailure> {
        let store = self.kinds.nix.tool("nix-store");
        self.shell("nix-store", IMPORT, &[&text_of(nar), &store], &info.export_end())
    }

    /// Runs a script; `what` is the program in it whose end is the script's.
    fn shell(&self, what: &str, script: &str, arguments: &[&str], input: &[u8]) -> Result<(), JobFailure> {
        let timeout = left(self.deadline);
        let mut argv: Vec<String> = ["/bin/sh", "-c", script, "sh"].map(str::to_owned).into();
        argv.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let mut command = host::Command::new(Program::Argv(argv), timeout, MAX_OUTPUT);
        command.stdin = input.to_vec();
        let finished = self.kinds.host.run(&command).map_err(|error| chain(&error))?;
        match finished.end {
            End::Exited(0) => Ok(()),
            end => Err(because(end, what, format!("{what} {}", failure(end, &finished, timeout)))),
        }
    }
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

/// Whether an archive is the one that was signed.
fn verify(nar: &Path, info: &NarInfo) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", nar.display());
    let mut file = File::open(nar).map_err(failed)?;
    let (mut hasher, mut size, mut piece) = (Hasher::new(), 0, vec![0; PIECE]);
    loop {
        let count = file.read(&mut piece).map_err(failed)?;
        if count == 0 {
            break;
        }
        size += count as u64;
        hasher.update(&piece[..count]);
    }
    let found = hasher.finish();
    if size == info.nar_size && found == info.nar_hash {
        return Ok(());
    }
    let (path, wanted) = (&info.path, info.nar_hash);
    Err(format!(
        "the archive of {path} is sha256:{found} ({size} bytes) and not the signed sha256:{wanted} ({} bytes); nothing \
         of it was imported",
        info.nar_size
    ))
}
