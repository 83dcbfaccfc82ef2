//! [`Redactor`]: what a support bundle must not say. The last line of defence: what is put into one is
//! chosen so that it holds no secret, and then looked through once more.

use std::path::Path;

use zeroize::Zeroizing;

use crate::identity::KEY_FILE;

/// What stands in place of a secret.
const HIDDEN: &str = "[hidden]";
/// How a bootstrap token begins.
const TOKEN: &str = "muster1.";
/// A secret shorter than this, in bytes, would be found in any text.
const MIN_SECRET: usize = 8;

/// Takes secrets out of texts.
pub(super) struct Redactor {
    known: Vec<Zeroizing<String>>,
}

impl Redactor {
    /// Knows the machine's key and the token of this environment.
    pub(super) fn new(state: &Path) -> Redactor {
        let mut known = Vec::new();
        if let Ok(key) = std::fs::read_to_string(state.join(KEY_FILE)) {
            let key = Zeroizing::new(key);
            let secret = key.trim().rsplit(':').next().unwrap_or_default();
            known.push(Zeroizing::new(secret.to_owned()));
        }
        known.extend(std::env::var("MUSTER_TOKEN").map(|token| Zeroizing::new(token.trim().to_owned())));
        known.retain(|secret| secret.len() >= MIN_SECRET);
        Redactor { known }
    }

    /// The text without known secrets, tokens, private keys and passwords in URLs.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.known {
            text = text.replace(secret.as_str(), HIDDEN);
        }
        let mut out = String::with_capacity(text.len());
        let mut in_key = false;
        for line in text.split_inclusive('\n') {
            let begins = line.contains("-----BEGIN") && line.contains("PRIVATE KEY");
            if begins || in_key {
                if begins {
                    out.push_str(HIDDEN);
                    out.push('\n');
                }
                in_key = !line.contains("-----END");
                continue;
            }
            self.clean_line(line, &mut out);
        }
        out
    }

    fn clean_line(&self, line: &str, out: &mut String) {
        let mut rest = line;
        loop {
            let token = rest.find(TOKEN).map(|at| (at, TOKEN.len()));
            let private = ["ed25519-private:", "ecdsa-p256-private:"]
                .into_iter()
                .filter_map(|mark| rest.find(mark).map(|at| (at, mark.len())))
                .min();
            let password = password(rest);
            let Some((at, skip)) = [token, private, password].into_iter().flatten().min() else {
                out.push_str(rest);
                return;
            };
            out.push_str(&rest[..at]);
            out.push_str(HIDDEN);
            rest = &rest[at + skip..];
            if password != Some((at, skip)) {
                let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ')'));
                rest = &rest[end.unwrap_or(rest.len())..];
            }
        }
    }
}

/// Where the user and password of a URL stand in a text, and how long they are.
fn password(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(at) = text[from..].find("://") {
        let begin = from + at + 3;
        let rest = &text[begin..];
        let end =
            rest.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'')).unwrap_or(rest.len());
        if let Some(sign) = rest[..end].rfind('@')
            && &rest[..sign] != HIDDEN
        {
            return Some((begin, sign));
        }
        from = begin;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_and_the_rest_stays() {
        let redactor = Redactor { known: vec![Zeroizing::new("c2VjcmV0LWtleS1ieXRlcw==".to_owned())] };
        for (text, want) in [
            ("key c2VjcmV0LWtleS1ieXRlcw== end", "key [hidden] end"),
            ("join --token muster1.canary.sig now", "join --token [hidden] now"),
            ("{\"token\":\"muster1.canary\",\"n\":1}", "{\"token\":\"[hidden]\",\"n\":1}"),
            ("ed25519-private:Y2FuYXJ5", "[hidden]"),
            ("via http://u:canary@proxy:1 ok", "via http://[hidden]@proxy:1 ok"),
            ("https://muster.example:1530 is fine", "https://muster.example:1530 is fine"),
            ("a@b, c@d", "a@b, c@d"),
            ("-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\nx\n", "[hidden]\nx\n"),
        ] {
            assert_eq!(redactor.clean(text), want);
        }
    }
}
