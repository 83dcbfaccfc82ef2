//! The code of every mistake, and what `muster help CODE` says of it: the table is `codes.txt`.

use std::sync::LazyLock;

/// A code and its explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagnosticCode {
    /// `E` and three digits. A code keeps its meaning for ever.
    pub code: &'static str,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// Why it is refused, and what to do.
    pub text: &'static str,
}

/// Every code, sorted: in the file a line with code and title, then one with the text.
pub static CODES: LazyLock<Vec<DiagnosticCode>> = LazyLock::new(|| {
    let mut lines = include_str!("codes.txt").lines();
    let code = || {
        let (code, title) = lines.next()?.split_once(' ')?;
        Some(DiagnosticCode { code, title, text: lines.next()?.trim_start() })
    };
    std::iter::from_fn(code).collect()
});

/// What a code means.
pub fn explain(code: &str) -> Option<&'static DiagnosticCode> {
    CODES.iter().find(|known| known.code.eq_ignore_ascii_case(code))
}
