//! `custom` on a host: a script that speaks JSON, pinned by its hash (EXE-2).

use model::text::chain;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use catalog::types::{CustomSpec, Script};
use converge::JobFailure;
use converge::kinds::{Applied, Checked, custom};
use host::{End, FinishedCommand, Host, Program};
use model::Digest;

use crate::Kinds;
use crate::kinds::{because, failure, output, text};

/// How long a script may run where its resource says nothing.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
/// The largest script or program, in bytes, that is run.
pub const MAX_SCRIPT: u64 = 32 * 1024 * 1024;

/// What came of trying a script out.
#[derive(Clone, Debug)]
pub struct ScriptTest {
    /// What it answered; else why that is no answer.
    pub reply: Result<custom::ScriptReply, String>,
    /// What it wrote to its standard output, its beginning.
    pub stdout: String,
    /// What it wrote to its standard error, its beginning.
    pub stderr: String,
    /// How long it took.
    pub duration: Duration,
    /// The script's hash, to pin it by.
    pub digest: Digest,
}

/// Runs a script of this machine once with a request (JSON `{name, state, params}`) over a
/// host, the way an agent does, for `muster-agent executor test`.
///
/// # Errors
/// In words, when the script cannot be read or started, is not executable, or the host is
/// rooted and lets no command run.
pub fn test_script(
    host: &Host,
    path: &Path,
    request: &[u8],
    timeout: Duration,
) -> Result<ScriptTest, String> {
    if !host.exec_allowed() {
        return Err("under --root nothing runs unless --allow-exec is given too".to_owned());
    }
    let shown = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let bytes = executable(&shown, file)?;
    let started = Instant::now();
    let finished = run(host, &shown, &bytes, request.to_vec(), timeout)?;
    let printed = |output: &host::ProcessOutput| String::from_utf8_lossy(&output.bytes).into_owned();
    Ok(ScriptTest {
        reply: reply(&finished, timeout).map_err(String::from),
        stdout: printed(&finished.stdout),
        stderr: printed(&finished.stderr),
        duration: started.elapsed(),
        digest: Digest::of(&bytes),
    })
}

/// A plan asks a script that knows dry runs, and never starts another; before an apply
/// there is nothing to ask, because running the script is the apply.
pub(crate) fn check(
    kinds: &Kinds,
    name: &str,
    spec: &CustomSpec,
    timeout: Duration,
    plan: bool,
) -> Result<Checked, JobFailure> {
    if !plan || !spec.dry_run {
        return Ok(Checked {
            note: Some("cannot be undone: only the script knows what it does".to_owned()),
            ..Checked::unknown()
        });
    }
    let reply = ask(kinds, name, spec, timeout, true)?;
    Ok(match reply.changed {
        true => Checked::differs(Checked::NOTHING, custom::edit(spec)),
        false => Checked::in_sync(Checked::NOTHING),
    })
}

pub(crate) fn apply(
    kinds: &Kinds,
    name: &str,
    spec: &CustomSpec,
    timeout: Duration,
) -> Result<Applied, JobFailure> {
    let changed = ask(kinds, name, spec, timeout, false)?.changed;
    Ok(Applied { edit: changed.then(|| custom::edit(spec)), changed, output: None })
}

fn ask(
    kinds: &Kinds,
    name: &str,
    spec: &CustomSpec,
    timeout: Duration,
    dry_run: bool,
) -> Result<custom::ScriptReply, JobFailure> {
    let (shown, bytes) = script(kinds, &spec.script)?;
    let request = custom::request(spec, name, dry_run);
    let finished = run(&kinds.host, shown, &bytes, request, timeout)?;
    let reply = reply(&finished, timeout)?;
    if reply.error.is_empty() { Ok(reply) } else { Err(reply.error.into()) }
}

/// The script's bytes, verified against the hash that it is pinned by.
fn script<'a>(kinds: &Kinds, script: &'a Script) -> Result<(&'a str, Vec<u8>), String> {
    let (path, digest, bytes) = match script {
        Script::Shipped { path, digest, .. } => (path, digest, bounded(path, kinds.blob(digest)?)?),
        Script::Host { path, digest } => {
            let file = kinds.host.open_file(path).map_err(text)?;
            let file = file.ok_or_else(|| format!("the script {path} does not exist"))?;
            (path, digest, executable(path, file)?)
        }
    };
    let is = Digest::of(&bytes);
    if is != *digest {
        return Err(format!(
            "the script {path} was not started: its hash is {}, it is pinned to {}",
            is.short(),
            digest.short()
        ));
    }
    Ok((path, bytes))
}

/// The bytes of a script on disk, if it may be executed.
fn executable(path: &str, file: std::fs::File) -> Result<Vec<u8>, String> {
    let metadata = file.metadata().map_err(|error| format!("cannot read {path}: {error}"))?;
    if !metadata.is_file() {
        return Err(format!("{path} is not a file"));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(format!("the script {path} is not executable; set its mode, for example 0755"));
    }
    bounded(path, file)
}

fn bounded(path: &str, read: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    read.take(MAX_SCRIPT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read the script {path}: {error}"))?;
    if bytes.len() as u64 > MAX_SCRIPT {
        return Err(format!("the script {path} is over {MAX_SCRIPT} bytes"));
    }
    Ok(bytes)
}

fn run(
    host: &Host,
    path: &str,
    bytes: &[u8],
    request: Vec<u8>,
    timeout: Duration,
) -> Result<FinishedCommand, String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let script = host::SealedScript::new(name, bytes)
        .map_err(|error| format!("cannot load the script {path}: {error}"))?;
    // One byte over the bound is enough to see that a reply is too long.
    let limit = custom::MAX_REPLY + 1;
    let command =
        host::Command { stdin: request, ..host::Command::new(Program::Script(script), timeout, limit) };
    host.run(&command).map_err(|error| format!("the script {path}: {}", chain(&error)))
}

/// Reads the reply of a script that ended by itself; its exit code does not matter.
fn reply(finished: &FinishedCommand, timeout: Duration) -> Result<custom::ScriptReply, JobFailure> {
    match finished.end {
        End::Exited(_) => {}
        End::Signaled(_) | End::TimedOut | End::Cancelled => {
            let message = format!("the script {}", failure(finished.end, finished, timeout));
            return Err(because(finished.end, "", message));
        }
    }
    if finished.stdout.total > custom::MAX_REPLY as u64 {
        return Err(format!(
            "the script printed {} bytes; a reply has at most {}",
            finished.stdout.total,
            custom::MAX_REPLY
        )
        .into());
    }
    custom::reply(&finished.stdout.bytes).map_err(|why| {
        let errors = FinishedCommand { stdout: host::ProcessOutput::default(), ..finished.clone() };
        match output(&errors) {
            Some(errors) => format!("{why}; its errors: {errors}").into(),
            None => why.into(),
        }
    })
}
