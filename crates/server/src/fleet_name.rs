//! [`FleetName`]: what an operator calls a fleet, and how it shows in the fleet's id.

use std::fmt;
use std::str::FromStr;

use model::FleetId;
use model::id::ParseIdError;

/// The digits that make fleets of one name different.
const DIGITS: usize = 8;
/// The name of a fleet for which none was chosen.
const DEFAULT: &str = "fleet";

/// The first part of a fleet's id, as an operator chooses it: `acme` of `acme-3f9a12cd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetName(String);

impl FleetName {
    /// The id of a new fleet of this name.
    ///
    /// # Errors
    /// None for random digits in hexadecimal.
    pub fn id(&self, random: &[u8; DIGITS / 2]) -> Result<FleetId, ParseIdError> {
        format!("{}-{}", self.0, data_encoding::HEXLOWER.encode(random)).parse()
    }

    /// Whether a fleet has this name, or is named by its whole id.
    pub fn is_of(&self, fleet: &FleetId) -> bool {
        let digits = |rest: &str| rest.len() == DIGITS && rest.bytes().all(|b| b.is_ascii_hexdigit());
        let rest = fleet.as_str().strip_prefix(self.0.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-').is_some_and(digits))
    }
}

impl Default for FleetName {
    fn default() -> FleetName {
        FleetName(DEFAULT.to_owned())
    }
}

/// A text that gives no fleet's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fleet's name has a to z, 0 to 9, '-' and '_', a letter or digit first, and is at most 91 long")]
pub struct ParseFleetNameError;

impl FromStr for FleetName {
    type Err = ParseFleetNameError;

    fn from_str(text: &str) -> Result<FleetName, ParseFleetNameError> {
        let name = FleetName(text.to_owned());
        name.id(&[0; DIGITS / 2]).map(|_| name).map_err(|_| ParseFleetNameError)
    }
}

impl fmt::Display for FleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_fleet_has_the_name_before_its_digits_or_its_whole_id() {
        let fleet: FleetId = "acme-eu-0123abcd".parse().unwrap();
        let of = |name: &str| name.parse::<FleetName>().unwrap().is_of(&fleet);
        assert!(of("acme-eu") && of("acme-eu-0123abcd"));
        assert!(!of("acme") && !of("acme-e") && !of("acme-eu-0123") && !of("fleet"));
    }

    #[test]
    fn a_name_that_gives_no_id_is_none() {
        for text in ["", "Acme", "a b", "-a", "ä", &"a".repeat(92)] {
            assert!(text.parse::<FleetName>().is_err(), "{text:?}");
        }
        assert!("a".repeat(91).parse::<FleetName>().is_ok());
    }
}
