//! [`fits`] and [`path_fits`]: whether one argument, or one path, is what a pattern allows.
//!
//! Whoever asks for work may be hostile: an argument that a pattern with `*` or `?` takes can
//! be no option, no climb to a parent directory, and no text that a terminal obeys.

use lang::glob::Glob;

/// The longest argument or path, in bytes.
pub const MAX_ARGUMENT: usize = 4096;
/// The longest pattern, in bytes.
pub const MAX_PATTERN: usize = 512;

/// Why a text is no argument, path or pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Longer than [`MAX_ARGUMENT`], or a pattern longer than [`MAX_PATTERN`].
    #[error("it is too long")]
    TooLong,
    /// NUL, a newline or another control character.
    #[error("it holds a control character, such as NUL or a newline")]
    Control,
    /// Three stars in a row.
    #[error("it holds `***`; `*` is any text without a slash, `**` any text")]
    Stars,
    /// It does not begin with a slash.
    #[error("it is not absolute")]
    Relative,
    /// It has a component `..`.
    #[error("it has a component `..`")]
    Climbs,
    /// A pattern of paths with `//`, `/./`, or a slash at its end, which no path matches.
    #[error("it holds `//` or `/./`, or ends with a slash, so no path matches it")]
    Untidy,
}

/// Whether an argument is what a pattern allows (OPS-2). `*` is any run of characters without
/// a slash, `**` any run, `?` one character that is no slash. A pattern without them means
/// itself. With them it takes no empty text, none that begins with `-` unless the pattern
/// does, and no path that leads elsewhere than it reads: with `..`, `.` or an empty part.
pub fn fits(pattern: &str, argument: &str) -> bool {
    if pattern.len() > MAX_PATTERN || plain(argument).is_err() {
        return false;
    }
    if !has_wildcard(pattern) {
        return pattern == argument;
    }
    let option = argument.starts_with('-') && !pattern.starts_with('-');
    // `rm -r /srv/data/*` must not take `/srv/data/` itself.
    let folder = argument.ends_with('/') && !pattern.ends_with('/');
    let escapes = option || folder || climbs(argument) || idles(argument);
    !argument.is_empty() && !escapes && Glob::parse(pattern).matches(argument, '/')
}

/// Whether a path in the form that [`tidy_path`] gives is what a pattern allows.
pub fn path_fits(pattern: &str, path: &str) -> bool {
    path_pattern(pattern).is_ok()
        && (path != "/" || pattern == "/")
        && Glob::parse(pattern).matches(path, '/')
}

/// Whether a pattern means more than itself.
pub fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

/// Whether a text may be an argument at all.
///
/// # Errors
/// What is wrong with it.
pub fn plain(argument: &str) -> Result<(), TextError> {
    if argument.len() > MAX_ARGUMENT {
        return Err(TextError::TooLong);
    }
    if argument.chars().any(char::is_control) { Err(TextError::Control) } else { Ok(()) }
}

/// An absolute path with nothing in it to be resolved: `//` and `/./` are one slash, a slash
/// at the end is dropped. Links are not looked at: whoever opens the path must not follow one
/// out of what is allowed.
///
/// # Errors
/// When it is relative, climbs with `..`, or is no text for a path.
pub fn tidy_path(path: &str) -> Result<String, TextError> {
    plain(path)?;
    if !path.starts_with('/') {
        return Err(TextError::Relative);
    }
    let mut tidy = String::with_capacity(path.len());
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            return Err(TextError::Climbs);
        }
        tidy.push('/');
        tidy.push_str(part);
    }
    Ok(if tidy.is_empty() { "/".to_owned() } else { tidy })
}

/// Whether a text is a pattern of arguments.
///
/// # Errors
/// What is wrong with it.
pub fn pattern(text: &str) -> Result<(), TextError> {
    if text.len() > MAX_PATTERN {
        return Err(TextError::TooLong);
    }
    plain(text)?;
    if text.contains("***") { Err(TextError::Stars) } else { Ok(()) }
}

/// Whether a text is a pattern of paths.
///
/// # Errors
/// What is wrong with it.
pub fn path_pattern(text: &str) -> Result<(), TextError> {
    pattern(text)?;
    match tidy_path(text) {
        Ok(tidy) if tidy == text => Ok(()),
        Ok(_) => Err(TextError::Untidy),
        Err(error) => Err(error),
    }
}

/// A component `..`, also behind `=`, `:` or the like: `--file=../x`. `a..b` is none.
fn climbs(argument: &str) -> bool {
    argument.match_indices("..").any(|(at, _)| {
        let before = argument[..at].chars().next_back();
        let after = argument[at + 2..].chars().next();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '.') && after.is_none_or(|c| c == '/')
    })
}

/// A part of a path that stands for nothing: `//`, but not that of a URL, or `/./`.
fn idles(argument: &str) -> bool {
    let empty = |(at, _): (usize, &str)| !argument[..at].ends_with(':');
    argument.starts_with("./")
        || argument.ends_with("/.")
        || argument.contains("/./")
        || argument.match_indices("//").any(empty)
}
