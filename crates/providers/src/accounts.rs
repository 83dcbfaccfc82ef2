//! The databases of users and groups: read once for all resources, written by their own tools.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use converge::JobFailure;
use converge::kinds::accounts::AccountDatabase;
use converge::kinds::user::AccountCall;
use host::{End, FileVersion};
use model::FailureCode;

use crate::Kinds;
use crate::kinds::{because, failure, text};
use crate::query::proc::Proc;
use crate::tools::{ToolCall, tool_name};

/// The files, in the order of [`AccountDatabase::parse`].
const FILES: [&str; 3] = ["/etc/passwd", "/etc/shadow", "/etc/group"];
/// Where they are.
const FOLDER: &str = "/etc";
/// The largest of them, in bytes, that is read.
const MAX_DATABASE: u64 = 16 * 1024 * 1024;
/// What `usermod` and `userdel` exit with where a process runs as the user.
const BUSY: i32 = 8;
/// What `useradd` and `groupadd` exit with where the name is taken.
const TAKEN: i32 = 9;
/// The most processes that a message names.
const MAX_NAMED: usize = 5;

/// The database as it was read last, and what its files were then.
#[derive(Debug, Default)]
pub(crate) struct KeptAccounts(Mutex<Option<(AccountStamps, Arc<AccountDatabase>)>>);

type AccountStamps = [Option<FileVersion>; FILES.len()];

impl Kinds {
    /// The users and groups of the host's own files; they are read again when one of them changed.
    pub(crate) fn account_database(&self) -> Result<Arc<AccountDatabase>, String> {
        let mut stamps = AccountStamps::default();
        for (stamp, path) in stamps.iter_mut().zip(FILES) {
            *stamp = self.host.stamp(path).map_err(text)?;
        }
        let mut kept = self.account_files.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, database)) = kept.as_ref().filter(|(then, _)| *then == stamps) {
            return Ok(Arc::clone(database));
        }
        let mut texts: [String; FILES.len()] = Default::default();
        for (file, path) in texts.iter_mut().zip(FILES) {
            let bytes = self.host.read_followed(path, MAX_DATABASE).map_err(text)?.unwrap_or_default();
            *file = String::from_utf8_lossy(&bytes).into_owned();
        }
        let database = Arc::new(AccountDatabase::parse(&texts[0], &texts[1], &texts[2]));
        *kept = Some((stamps, Arc::clone(&database)));
        Ok(database)
    }

    /// Calls the tools in order, up to the first that fails. `uid` is the user's whom they are about.
    pub(crate) fn call_account_tools(
        &self,
        calls: Vec<AccountCall>,
        uid: Option<u32>,
        timeout: Duration,
    ) -> Result<(), JobFailure> {
        let called = calls.into_iter().try_for_each(|call| self.call_account_tool(call, uid, timeout));
        // Owners of files that come next are looked up anew.
        self.host.accounts_now().map_err(text)?;
        called
    }

    fn call_account_tool(
        &self,
        call: AccountCall,
        uid: Option<u32>,
        timeout: Duration,
    ) -> Result<(), JobFailure> {
        let mut argv = vec![call.tool.to_owned()];
        if self.host.rooted() {
            argv.extend(["--root".to_owned(), self.host.root().display().to_string()]);
        }
        argv.extend(call.arguments);
        let name = tool_name(&argv);
        let finished = self.tool(ToolCall { argv, input: call.input.as_bytes(), timeout })?;
        let why = match finished.end {
            End::Exited(0) => return Ok(()),
            End::Exited(BUSY) => uid.map(|uid| self.holders(uid)).unwrap_or_default(),
            End::Exited(TAKEN) => " (a name service such as LDAP may have one of this name)".to_owned(),
            _ => String::new(),
        };
        let message = format!("{name} {}{why}", failure(finished.end, &finished, timeout));
        // The tools say that they cannot lock the database, and to try again later.
        if self.host.usage(FOLDER).is_ok_and(|usage| usage.read_only) {
            let message = format!("{message}; the file system is read-only; remount it writable");
            return Err(JobFailure::new(FailureCode::ReadOnly, "", message));
        }
        Err(match finished.end {
            End::Exited(BUSY) => JobFailure::new(FailureCode::InUse, "", message),
            end => because(end, &name, message),
        })
    }

    /// The processes that run as a user, for a message.
    fn holders(&self, uid: u32) -> String {
        let proc = Proc::of(&self.host);
        let of_user = |pid: &u32| {
            let status = proc.text(format!("{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("Uid:").map(str::to_owned));
            line.is_some_and(|line| line.split_whitespace().any(|number| number == uid.to_string()))
        };
        let pids = proc.processes().unwrap_or_default();
        let named = |pid: u32| format!("{} ({pid})", proc.name(pid).unwrap_or_default());
        let held: Vec<String> = pids.into_iter().filter(of_user).take(MAX_NAMED).map(named).collect();
        match held.is_empty() {
            true => String::new(),
            false => format!("; these run as it: {}; end them, the next run tries again", held.join(", ")),
        }
    }
}
