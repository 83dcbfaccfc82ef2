//! [`OperatorToken`]: 256 random bits, of which the control plane keeps only the SHA-256.

use data_encoding::BASE64URL_NOPAD;
use model::Digest;
use zeroize::Zeroizing;

use crate::posture::{self, FoundError};

/// What a token begins with: so that whoever looks for secrets finds it.
const PREFIX: &str = "muster-operator1.";
/// The scheme of the header that it is sent in (RFC 6750).
const SCHEME: &str = "Bearer ";

/// A token.
pub(crate) struct OperatorToken(Zeroizing<[u8; 32]>);

impl OperatorToken {
    /// A new one.
    pub(crate) fn random() -> Result<OperatorToken, FoundError> {
        Ok(OperatorToken(Zeroizing::new(posture::random()?)))
    }

    /// Reads the one in an `Authorization` header.
    pub(crate) fn of_header(value: &str) -> Option<OperatorToken> {
        let text = value.strip_prefix(SCHEME)?.trim().strip_prefix(PREFIX)?;
        let bytes = Zeroizing::new(BASE64URL_NOPAD.decode(text.as_bytes()).ok()?);
        Some(OperatorToken(Zeroizing::new(bytes.as_slice().try_into().ok()?)))
    }

    /// The text that its holder gets.
    pub(crate) fn text(&self) -> String {
        format!("{PREFIX}{}", BASE64URL_NOPAD.encode(self.0.as_slice()))
    }

    /// What is kept of it: its SHA-256 in hex. It cannot be guessed, so that is enough.
    pub(crate) fn id(&self) -> String {
        Digest::of(self.0.as_slice()).to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::OperatorToken;

    #[test]
    fn a_header_holds_one_whole_token_or_none() {
        let token = OperatorToken::random().unwrap();
        let text = token.text();
        let read = OperatorToken::of_header(&format!("Bearer {text}")).unwrap();
        assert_eq!(read.id(), token.id());
        assert!(!token.id().contains(&text[17..]));
        let cut = &text[..text.len() - 2];
        for bad in ["", "Bearer ", "Basic abc", &text, &format!("Bearer {cut}"), &format!("Bearer {text}AA")]
        {
            assert!(OperatorToken::of_header(bad).is_none(), "{bad}");
        }
    }
}
