//! [`Contention`]: a resource that something else changes again and again (CNV-7).

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::text::{bounded_line, one_line};
use crate::time::{short, when};

/// The most contentions that a fact names; the rest is counted.
pub const MAX_CONTENTIONS: usize = 20;
/// The longest resource, program or unit that is kept of a node, in bytes.
pub const MAX_PROGRAM: usize = 200;

/// A resource that is put right and changed again, so that the node puts it right ever less often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contention {
    /// `module/type:name`.
    pub resource: String,
    /// When it was first put right of late.
    pub since: Timestamp,
    /// How often it was put right since.
    pub corrections: u32,
    /// How long the node waits before it puts it right again, in seconds.
    pub wait_secs: u64,
    /// Who changed it last; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<Culprit>,
    /// Why that is not known; absent where it is, and of an agent that does not say why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprit_unknown: Option<UnknownCulprit>,
}

/// Why nobody can be named who changes a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownCulprit {
    /// The kernel does not let the agent ask who writes: it lacks `CAP_SYS_ADMIN`, or a filter of system
    /// calls refuses fanotify.
    Refused,
    /// The kernel has no fanotify, or not for this file system.
    Unsupported,
    /// A limit is reached: of the kernel, or of the agent.
    Limit,
    /// Nobody was seen to write the resource's files.
    NotSeen,
    /// A process wrote whose number the kernel hides from the agent: it is outside of the agent's container.
    Hidden,
    /// A reason that a newer agent knows.
    #[serde(other)]
    Other,
}

/// What an agent found out of who changes a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CulpritFinding {
    /// This process.
    Named(Culprit),
    /// Nobody can be named, for this reason.
    Unknown(UnknownCulprit),
}

impl CulpritFinding {
    /// Whether it replaces one that is known: a program says more than a number, and a number more than a
    /// reason.
    pub fn says_more_than(&self, known: &CulpritFinding) -> bool {
        match (self, known) {
            (CulpritFinding::Named(found), CulpritFinding::Named(_)) => found.program.is_some(),
            (CulpritFinding::Unknown(_), CulpritFinding::Named(_)) => false,
            (CulpritFinding::Named(_) | CulpritFinding::Unknown(_), CulpritFinding::Unknown(_)) => true,
        }
    }
}

/// A process that changed what is managed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Culprit {
    /// Its number.
    pub pid: u32,
    /// Its program; absent when it had ended before the agent could look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The unit of systemd that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Culprit {
    /// Whether both are of one program: a process that begins anew each time is one culprit.
    pub fn is_like(&self, other: &Culprit) -> bool {
        match (&self.program, &other.program) {
            (None, None) => self.unit == other.unit,
            (mine, others) => mine == others && self.unit == other.unit,
        }
    }
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.program {
            Some(program) => write!(f, "{program} (pid {}", self.pid)?,
            None => write!(f, "a process that has ended (pid {}", self.pid)?,
        }
        match &self.unit {
            Some(unit) => write!(f, ", {unit})"),
            None => write!(f, ")"),
        }
    }
}

impl UnknownCulprit {
    /// What follows "not known".
    fn clause(self) -> &'static str {
        match self {
            UnknownCulprit::Refused => " (the kernel refuses fanotify to the agent)",
            UnknownCulprit::Unsupported => " (the kernel or the file system has no fanotify)",
            UnknownCulprit::Limit => " (a limit of fanotify is reached)",
            UnknownCulprit::NotSeen => " (nobody was seen to write its files)",
            UnknownCulprit::Hidden => " (a process outside of the agent's container)",
            UnknownCulprit::Other => "",
        }
    }
}

/// As much of it as is kept of a node beside its log: at most [`MAX_CONTENTIONS`], short texts.
pub fn kept(resources: &[Contention]) -> Vec<Contention> {
    let clip = |text: &mut String| *text = bounded_line(text, MAX_PROGRAM).into_owned();
    let mut kept: Vec<Contention> = resources.iter().take(MAX_CONTENTIONS).cloned().collect();
    for contention in &mut kept {
        clip(&mut contention.resource);
        let culprit = contention.culprit.iter_mut();
        culprit.flat_map(|culprit| culprit.program.iter_mut().chain(&mut culprit.unit)).for_each(clip);
    }
    kept
}

impl Contention {
    /// Whether both tell people the same: how often and how long changes by itself.
    pub fn tells_the_same(&self, other: &Contention) -> bool {
        let culprits = match (&self.culprit, &other.culprit) {
            (None, None) => self.culprit_unknown == other.culprit_unknown,
            (Some(mine), Some(others)) => mine.is_like(others),
            _ => false,
        };
        self.is_same_fight(other) && culprits
    }

    /// Whether both are of one resource, since one time, whoever changes it.
    pub fn is_same_fight(&self, other: &Contention) -> bool {
        self.resource == other.resource && self.since == other.since
    }

    /// Which resource is changed, and by whom: what the control plane says of a node in one line. Unescaped.
    pub fn summary(&self) -> String {
        format!("{} is changed again and again by: {}", self.resource, self.culprit_text())
    }

    /// All of it in one line, for the journal, status and `doctor`. Unescaped.
    pub fn text(&self, now: Timestamp) -> String {
        format!("{}: {}", self.resource, self.details(now))
    }

    /// All but the resource, where that is named already. Unescaped.
    pub fn details(&self, now: Timestamp) -> String {
        format!(
            "changed again and again since {}, put right {} times, now at most every {}; changed by: {}",
            when(self.since, now),
            self.corrections,
            short(Duration::from_secs(self.wait_secs)),
            self.culprit_text()
        )
    }

    /// Who changes it, in words.
    fn culprit_text(&self) -> String {
        match (&self.culprit, self.culprit_unknown) {
            (Some(culprit), _) => one_line(&culprit.to_string()).into_owned(),
            (None, Some(why)) => format!("not known{}", why.clause()),
            (None, None) => "not known".to_owned(),
        }
    }
}
