//! [`WatchView`]: what is watched, as status and doctor show it.

use model::Contention;
use serde::{Deserialize, Serialize};

/// What is watched, what is not, and what fights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchView {
    /// Resources of which something is watched.
    pub resources: u32,
    /// Directories that are watched.
    pub directories: u32,
    /// Units that are watched.
    pub units: u32,
    /// Kernel parameters that are read now and then.
    pub parameters: u32,
    /// Directories that are there and not watched.
    #[serde(default)]
    pub unwatched: u32,
    /// The kernel parameter whose limit keeps directories from being watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Why some directory is not watched for another reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Why units are not watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units_problem: Option<String>,
    /// Why nobody can be named who changes something again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub culprits_problem: Option<String>,
    /// How often what is watched was looked at because events were lost.
    #[serde(default)]
    pub scans: u64,
    /// What something else changes again and again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contended: Vec<Contention>,
}

impl WatchView {
    /// In one line.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} resources in {} directories, {} units, {} kernel parameters",
            self.resources, self.directories, self.units, self.parameters
        );
        if self.unwatched > 0 {
            text.push_str(&format!("; {} directories are NOT watched", self.unwatched));
        }
        if self.scans > 0 {
            text.push_str(&format!(
                "; events were lost, and what they were of was looked at {} times",
                self.scans
            ));
        }
        text
    }
}
