//! Commands that operators are told to type next: with the credentials that this process was called
//! with, so that they reach the same control plane.

use std::path::Path;
use std::sync::OnceLock;

use model::text::shell_word;

use crate::credentials::OPERATOR_ENV;

/// The option that names the credentials, as it is typed; empty where the default or the environment
/// names them, which hold for the next command too.
static OPTION: OnceLock<String> = OnceLock::new();

/// Remembers the credentials that were named.
pub(crate) fn remember(operator: Option<&Path>) {
    let named = operator.filter(|path| std::env::var_os(OPERATOR_ENV).as_deref() != Some(path.as_os_str()));
    // The first call counts: a process is called once.
    let _ = OPTION.set(
        named
            .map(|path| format!(" --operator {}", shell_word(&path.display().to_string())))
            .unwrap_or_default(),
    );
}

/// A verb of this program, as it is to be typed to reach the same control plane.
pub(crate) fn muster(verb: &str) -> String {
    format!("muster {verb}{}", OPTION.get().map_or("", String::as_str))
}
