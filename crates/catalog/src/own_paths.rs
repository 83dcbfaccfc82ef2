//! [`refusal`]: what of a host is Muster's own, so that no resource may write, own or remove it.
//!
//! An agent that removed its own state would have to join anew, and could not say why.

use std::borrow::Cow;

use crate::state_directories::{AGENT_STATE, SERVER_STATE};
use crate::types::{BelowDirectory, Ensure, PathRole, RunState, Spec, UNIT_FOLDER};

/// Where sockets of running agents and control planes are.
pub const RUNTIME: &str = "/run/muster";
/// The same by the name that hosts had for it before; it leads there.
const RUNTIME_BEFORE: &str = "/var/run/muster";
/// Where the machine's administrator says what Muster does not find out.
pub const CONFIGURATION: &str = "/etc/muster";
/// Below [`CONFIGURATION`], and an administrator's, whom a module may stand for.
const TRAITS: &str = "/etc/muster/traits.d";
/// The units of the packages.
const UNITS: [&str; 3] = ["muster-agent.service", "muster-agent.path", "muster.service"];
/// Where systemd finds units of packages.
const PACKAGED_UNITS: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];

/// A path with one way to write it: without doubled slashes, `.` parts, and a slash at the end.
pub fn normalized(path: &str) -> Cow<'_, str> {
    let untidy = |pair: &[u8]| pair == b"//" || pair == b"/.";
    let tidy = path.len() > 1 && !path.ends_with('/') && !path.as_bytes().windows(2).any(untidy);
    if tidy {
        return Cow::Borrowed(path);
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    Cow::Owned(format!("/{}", parts.join("/")))
}

/// Why a resource is refused: it would write, own or remove what is Muster's own. `more` are directories and
/// files beside those of an installation with all defaults, which are refused wherever Muster is.
pub fn refusal(spec: &Spec, more: &[String]) -> Option<String> {
    if let Spec::Unit(unit) = spec
        && UNITS.contains(&unit.unit.as_str())
        && (unit.ensure == Ensure::Absent
            || unit.run == Some(RunState::Stopped)
            || unit.enabled == Some(false)
            || unit.masked == Some(true))
    {
        return Some(format!("{} is Muster's own; no resource stops or disables it", unit.unit));
    }
    let absent = spec.managed().is_some_and(|(_, ensure)| ensure == Ensure::Absent);
    let recurses = matches!(spec, Spec::Directory(directory) if directory.recurse) && absent;
    spec.paths(&|_| None).find_map(|found| {
        let takes_all = match found.role {
            PathRole::Written { .. } | PathRole::Directory(BelowDirectory::LeftAlone) => false,
            PathRole::Directory(BelowDirectory::Managed) => recurses,
            PathRole::Switched => true,
            PathRole::Contents => matches!(spec, Spec::Tree(_)),
            PathRole::Watched | PathRole::Probed => return None,
        };
        let path = normalized(&found.path);
        let own = own(&path, takes_all, more)?;
        Some(format!("{path} {}is Muster's own; no resource writes or removes it", own.words(&path)))
    })
}

/// Muster's own, in relation to a path.
enum Own {
    /// The path, or it is below this one.
    At(String),
    /// It is below the path.
    Below(String),
}

impl Own {
    fn words(&self, path: &str) -> String {
        match self {
            Own::At(own) if own == path => String::new(),
            Own::At(own) => format!("is below {own}, which "),
            Own::Below(own) => format!("holds {own}, which "),
        }
    }
}

fn own(path: &str, takes_all: bool, more: &[String]) -> Option<Own> {
    if within(path, TRAITS) {
        return None;
    }
    let relation = |own: &str| match () {
        () if within(path, own) => Some(Own::At(own.to_owned())),
        () if takes_all && within(own, path) => Some(Own::Below(own.to_owned())),
        () => None,
    };
    // Every resource of every run is asked about: a text is only made for one that is refused.
    let of_unit = |folder: &str| {
        let near = within(path, folder) || (takes_all && within(folder, path));
        near.then(|| UNITS.iter().find_map(|unit| relation(&format!("{folder}/{unit}"))))?
    };
    let fixed = [AGENT_STATE, SERVER_STATE, RUNTIME, RUNTIME_BEFORE, CONFIGURATION];
    fixed
        .into_iter()
        .find_map(relation)
        .or_else(|| [UNIT_FOLDER].into_iter().chain(PACKAGED_UNITS).find_map(of_unit))
        .or_else(|| more.iter().find_map(|own| relation(&normalized(own))))
}

/// Whether a path is another one, or below it.
fn within(path: &str, top: &str) -> bool {
    let rest = if top == "/" { Some(path) } else { path.strip_prefix(top) };
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
