//! [`Glob`]: `*`, `**` and `?` in a text with a separator, matched in time proportional to
//! pattern x text.

/// One token of a glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobToken {
    /// This character.
    Char(char),
    /// `?`: one character, not the separator.
    One,
    /// `*`: any run without the separator.
    Run,
    /// `**`: any run.
    Deep,
}

impl GlobToken {
    /// It may stand for nothing.
    pub fn may_be_empty(self) -> bool {
        matches!(self, GlobToken::Run | GlobToken::Deep)
    }
}

/// A parsed glob. Every text is one: what is no wildcard stands for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    tokens: Vec<GlobToken>,
}

impl Glob {
    /// Reads a glob.
    pub fn parse(text: &str) -> Glob {
        let mut tokens = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            tokens.push(match c {
                '*' if chars.next_if_eq(&'*').is_some() => GlobToken::Deep,
                '*' => GlobToken::Run,
                '?' => GlobToken::One,
                other => GlobToken::Char(other),
            });
        }
        Glob { tokens }
    }

    /// Its tokens, in order.
    pub fn tokens(&self) -> &[GlobToken] {
        &self.tokens
    }

    /// It holds no wildcard.
    pub fn is_exact(&self) -> bool {
        self.tokens.iter().all(|token| matches!(token, GlobToken::Char(_)))
    }

    /// Whether it matches the whole text, whose parts `separator` divides. All ways to match are
    /// followed at once, so that no pattern takes more than tokens x characters.
    pub fn matches(&self, text: &str, separator: char) -> bool {
        let mut states = vec![false; self.tokens.len() + 1];
        states[0] = true;
        self.skip_empty(&mut states);
        for c in text.chars() {
            let mut next = vec![false; self.tokens.len() + 1];
            for (i, token) in self.tokens.iter().enumerate().filter(|(i, _)| states[*i]) {
                match token {
                    GlobToken::Char(wanted) => next[i + 1] |= *wanted == c,
                    GlobToken::One => next[i + 1] |= c != separator,
                    GlobToken::Run => next[i] |= c != separator,
                    GlobToken::Deep => next[i] = true,
                }
            }
            self.skip_empty(&mut next);
            states = next;
        }
        states[self.tokens.len()]
    }

    /// What stands before a run also stands after it.
    fn skip_empty(&self, states: &mut [bool]) {
        for (i, token) in self.tokens.iter().enumerate() {
            if states[i] && token.may_be_empty() {
                states[i + 1] = true;
            }
        }
    }
}
