//! `sudo` on a host: a file that `visudo` has read before it has its name.

use std::path::Path;
use std::time::Duration;

use catalog::types::SudoSpec;
use converge::JobFailure;
use converge::kinds::mode_field;
use host::{End, FileWrite};
use model::{Digest, Edit, Fields, PathOwnership, PathState};

use crate::Kinds;
use crate::kinds::{fault, output, text};
use crate::provider::{ChangeTurn, StateChange, StateProvider, as_declared};
use crate::tools::ToolCall;

/// The program that checks rules.
const VISUDO: &str = "/usr/sbin/visudo";
/// How a rule is owned and permitted: sudo reads no other.
const OWNERSHIP: PathOwnership = PathOwnership { mode: Some(0o440), uid: Some(0), gid: Some(0) };
/// How long a check of a rule may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

impl StateProvider for SudoSpec {
    fn observe(&self, kinds: &Kinds) -> Result<Option<Fields>, String> {
        let Some(content) = kinds.text_file(&self.path)? else { return Ok(None) };
        let PathState::File { mode, uid, gid, .. } = kinds.look(&self.path)? else { return Ok(None) };
        Ok(Some(Fields::from([
            ("content".to_owned(), content),
            ("mode".to_owned(), mode_field(mode)),
            ("owner".to_owned(), format!("{uid}:{gid}")),
        ])))
    }

    fn desired(&self, _: Option<&Fields>) -> Result<Option<Fields>, String> {
        as_declared(self)
    }

    fn refuse(&self, kinds: &Kinds, edit: &Edit<Fields>) -> Result<(), String> {
        match edit.to().and_then(|to| to.get("content")) {
            Some(content) => check(kinds, Path::new("-"), content.as_bytes()),
            None => Ok(()),
        }
    }

    fn set(&self, kinds: &Kinds, change: StateChange<'_>) -> Result<Option<String>, JobFailure> {
        let StateChange { now, to, .. } = change;
        let Some(to) = to else { return kinds.host.remove_file(&self.path).map(|_| None).map_err(fault) };
        let content = to.get("content").or_else(|| now?.get("content")).map_or("", String::as_str);
        let write = FileWrite {
            content: &mut content.as_bytes(),
            digest: Digest::of(content.as_bytes()),
            ownership: OWNERSHIP,
            default_mode: 0o440,
            backup: false,
            validate: Some(&|temporary| check(kinds, temporary, &[])),
        };
        kinds.host.write(&self.path, write).map(|()| None).map_err(fault)
    }

    fn turn(&self) -> ChangeTurn {
        ChangeTurn::Files
    }
}

/// Asks `visudo` whether a file, or its input, is right.
fn check(kinds: &Kinds, file: &Path, input: &[u8]) -> Result<(), String> {
    if !kinds.host.rooted() && !kinds.host.exists(VISUDO).map_err(text)? {
        return Err(format!("there is no {VISUDO} to check the rule; declare the package `sudo` before it"));
    }
    let argv = [VISUDO, "--check", "--file", &file.display().to_string()];
    let finished = kinds.tool(ToolCall { input, ..ToolCall::new(&argv, CHECK_TIMEOUT) })?;
    match finished.end {
        End::Exited(0) => Ok(()),
        End::TimedOut => Err(format!("visudo did not end within {} s", CHECK_TIMEOUT.as_secs())),
        End::Exited(_) | End::Signaled(_) | End::Cancelled => {
            let said = output(&finished).unwrap_or_default();
            Err(format!("visudo refuses the rule: {}", said.replace(&*file.to_string_lossy(), "the rule")))
        }
    }
}
