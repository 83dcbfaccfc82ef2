//! Freshness: how long the newest signature for a release lets a control plane speak (ROL-4, IDN-11).
//!
//! ```text
//! signed_at ------- 1/4 ------------- 3/4 ------------ window + slack --------->
//!   a control plane that has the key signs anew    status warns    the node is not fresh
//! ```
//!
//! What is held is enforced for ever; freshness ends only what the control plane may ask for by it.

use std::time::Duration;

use model::Timestamp;
use model::time::SLACK;
use serde::{Deserialize, Serialize};

use crate::adopt::Floor;
use crate::release::{Beacon, Header};

/// The newest signature for a release, and how long it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Freshness {
    /// When the newest verified header or beacon for it was signed.
    pub signed_at: Timestamp,
    /// The header's freshness, in seconds.
    pub window_secs: u64,
}

impl Freshness {
    /// That of a header, with the newest beacon for it.
    pub fn of(header: &Header, beacon: Option<&Beacon>) -> Freshness {
        let signed_at = beacon.map_or(header.created, |beacon| beacon.at.max(header.created));
        Freshness { signed_at, window_secs: header.freshness_secs }
    }

    /// That of a named fallback, by its own: it is as fresh as what names it, and no longer than that or it says itself.
    pub fn of_fallback(self, floor: &Floor) -> Freshness {
        Freshness {
            signed_at: self.signed_at.max(floor.newest_signature),
            window_secs: self.window_secs.min(floor.freshness_secs.unwrap_or(u64::MAX)),
        }
    }

    fn window(self) -> Duration {
        Duration::from_secs(self.window_secs)
    }

    /// The last moment at which it is fresh, by a clock that may be off by the slack.
    pub fn ends_at(self) -> Timestamp {
        self.signed_at.plus(self.window()).plus(SLACK)
    }

    /// Whether it is past its window and the slack, by the time that trust goes by.
    pub fn is_over(self, now: Timestamp) -> bool {
        now > self.ends_at()
    }

    /// From when on people are told that another signature is due: three quarters of the window.
    pub fn warns_at(self) -> Timestamp {
        self.signed_at.plus(self.window() / 4 * 3)
    }

    /// From when on a control plane that has the key signs anew: a quarter of the window.
    pub fn renews_at(self) -> Timestamp {
        self.signed_at.plus(self.window() / 4)
    }
}
