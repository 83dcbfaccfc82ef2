//! [`Regex`]: regular expressions with a bound on what they cost.
//!
//! Matching takes time linear in the text for a given expression: there is no
//! backtracking, and the compiled size is limited, so an exploding expression is an error
//! when it is read and never a hang when it is used.

/// The longest source of a regular expression, in bytes.
pub const MAX_SOURCE: usize = 1024;
/// The largest compiled form, in bytes.
pub const MAX_COMPILED: usize = 256 * 1024;
/// The deepest nesting of groups.
const MAX_NESTING: u32 = 50;

/// A regular expression (Perl-like syntax without look-around and back-references).
#[derive(Clone, Debug)]
pub struct Regex(regex_lite::Regex);

/// A regular expression that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegexError {
    /// The source is longer than [`MAX_SOURCE`].
    #[error("the regular expression is longer than {MAX_SOURCE} bytes")]
    TooLong,
    /// It does not parse, or compiles to more than [`MAX_COMPILED`].
    #[error("not a regular expression that can be used: {0}")]
    Parse(String),
}

impl Regex {
    /// Reads an expression that may match anywhere in a text.
    pub fn parse(source: &str) -> Result<Regex, RegexError> {
        if source.len() > MAX_SOURCE {
            return Err(RegexError::TooLong);
        }
        regex_lite::RegexBuilder::new(source)
            .size_limit(MAX_COMPILED)
            .nest_limit(MAX_NESTING)
            .build()
            .map(Regex)
            .map_err(|error| RegexError::Parse(error.to_string()))
    }

    /// Whether it matches somewhere in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}
