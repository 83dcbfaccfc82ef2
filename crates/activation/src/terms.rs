//! [`ActivationTerms`]: what a release asks of its own activation (ROL-7).

use std::time::Duration;

use model::time::millis_form;
use serde::{Deserialize, Serialize};

/// The most tries to confirm within one window.
pub const MAX_TRIES: u8 = 5;
/// The most boots that a generation which asked for a reboot may take until it is confirmed.
pub const MAX_BOOTS: u8 = 3;
/// The shortest confirm window: a contact must fit into each of [`MAX_TRIES`] shares of it.
pub const MIN_WINDOW: Duration = Duration::from_secs(10);
/// The longest confirm window.
pub const MAX_WINDOW: Duration = Duration::from_secs(24 * 3600);
/// The longest time that a switch may have.
pub const MAX_SWITCH: Duration = Duration::from_secs(6 * 3600);

/// Whether a generation is confirmed without the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContactRule {
    /// The control plane must answer within the window, or the node returns.
    Required,
    /// The channel's nodes may be offline: at the end of the window the probes alone decide.
    ProbesAlone,
}

/// What a node does with a generation that it has confirmed, while the rollout is under way: when an enforcing probe
/// goes on failing, and when the rollout is halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterConfirm {
    /// It stays, and tells.
    Stay,
    /// It returns to the generation before.
    Return,
}

/// What a release asks of its own activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivationTerms {
    /// How long a switch may take, in milliseconds in the durable form.
    #[serde(rename = "switchMillis", with = "millis_form")]
    pub switch: Duration,
    /// How long the generation has to be confirmed after the switch, in milliseconds in the durable form.
    #[serde(rename = "windowMillis", with = "millis_form")]
    pub window: Duration,
    /// How many tries to confirm are spread over the window.
    pub tries: u8,
    /// How many boots it may take where the switch itself asked for a reboot.
    pub boots: u8,
    /// Whether the control plane must answer.
    pub contact: ContactRule,
    /// What follows when it fails after it was confirmed.
    pub after_confirm: AfterConfirm,
}

impl Default for ActivationTerms {
    fn default() -> ActivationTerms {
        ActivationTerms {
            switch: Duration::from_secs(3600),
            window: Duration::from_secs(600),
            tries: MAX_TRIES,
            boots: MAX_BOOTS,
            contact: ContactRule::Required,
            after_confirm: AfterConfirm::Stay,
        }
    }
}

/// Why terms cannot be gone by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckTermsError {
    /// The window is too short or too long.
    #[error("a confirm window has {MIN_WINDOW:?} to {MAX_WINDOW:?}, not {0:?}")]
    Window(Duration),
    /// There is no try, or there are too many.
    #[error("there are 1 to {MAX_TRIES} tries to confirm, not {0}")]
    Tries(u8),
    /// There is no boot, or there are too many.
    #[error("a generation has 1 to {MAX_BOOTS} boots, not {0}")]
    Boots(u8),
    /// The switch has no time, or too much.
    #[error("a switch has up to {MAX_SWITCH:?}, not {0:?}")]
    Switch(Duration),
}

impl ActivationTerms {
    /// Whether all of it is within bounds.
    ///
    /// # Errors
    /// The first bound that is broken.
    pub fn check(&self) -> Result<(), CheckTermsError> {
        if !(MIN_WINDOW..=MAX_WINDOW).contains(&self.window) {
            return Err(CheckTermsError::Window(self.window));
        }
        if !(1..=MAX_TRIES).contains(&self.tries) {
            return Err(CheckTermsError::Tries(self.tries));
        }
        if !(1..=MAX_BOOTS).contains(&self.boots) {
            return Err(CheckTermsError::Boots(self.boots));
        }
        if self.switch.is_zero() || self.switch > MAX_SWITCH {
            return Err(CheckTermsError::Switch(self.switch));
        }
        Ok(())
    }

    /// How far into the window a try begins: the tries have equal shares of it.
    pub(crate) fn try_begins(&self, number: u8) -> Duration {
        self.window / u32::from(self.tries.max(1)) * u32::from(number)
    }

    /// The try in whose share of the window a time lies, counted from 0.
    pub(crate) fn try_at(&self, into_window: Duration) -> u8 {
        (1..self.tries)
            .take_while(|number| self.try_begins(*number) <= into_window)
            .count()
            .try_into()
            .unwrap_or(0)
    }
}
