//! Durations as the fleet repo writes them: `90s`, `5m`, `24h`, `7d`, `1h30m`.

/// The longest duration, in seconds: ten years.
pub const MAX_SECS: u32 = 10 * 365 * 24 * 3600;

const UNITS: [(char, u64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// Reads a duration to whole seconds.
///
/// # Errors
/// When the text has no unit, an unknown one, or is longer than [`MAX_SECS`].
pub fn parse(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is not a duration; write one such as 90s, 5m, 24h or 7d");
    let mut total: u64 = 0;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let unit = rest[digits..].chars().next().ok_or_else(wrong)?;
        let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
        let count: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        total = count.checked_mul(scale).and_then(|secs| secs.checked_add(total)).ok_or_else(wrong)?;
        rest = &rest[digits + unit.len_utf8()..];
    }
    match u32::try_from(total) {
        Ok(secs) if secs <= MAX_SECS => Ok(secs),
        _ => Err(format!("`{text}` is longer than ten years")),
    }
}

/// Writes seconds in the largest unit that divides them: `3600` reads `1h`.
pub fn show(secs: u32) -> String {
    let secs = u64::from(secs);
    match UNITS.iter().find(|(_, scale)| secs > 0 && secs.is_multiple_of(*scale)) {
        Some((unit, scale)) => format!("{}{unit}", secs / scale),
        None => format!("{secs}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, show};

    #[test]
    fn reads_units_and_refuses_bare_numbers() {
        for (text, secs) in [("90s", 90), ("5m", 300), ("1h30m", 5400), ("7d", 604_800), ("0s", 0)] {
            assert_eq!(parse(text), Ok(secs), "{text}");
        }
        for text in ["", "5", "m", "5 m", "5y", "-5m", "99999999999w", "11000d"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(show(5400), "90m");
        assert_eq!(show(0), "0s");
        assert_eq!(show(604_800), "1w");
    }
}
