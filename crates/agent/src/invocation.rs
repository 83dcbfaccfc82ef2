//! Commands that people are told to type: with the options that this process was called with, so that
//! they act on the same host.

use std::path::Path;
use std::sync::OnceLock;

use crate::machine::MachineOptions;

/// The options of this process that choose the host, as they are typed; empty for the whole host.
static OPTIONS: OnceLock<String> = OnceLock::new();

/// Remembers how this process was called. Before it, commands carry no options.
pub fn remember(options: &MachineOptions) {
    let option = |name: &str, dir: &Option<std::path::PathBuf>| {
        dir.as_deref().map(|dir| format!(" --{name} {}", quoted(dir))).unwrap_or_default()
    };
    let typed = option("state", &options.state) + &option("root", &options.root);
    // The first call counts: a process is called once.
    let _ = OPTIONS.set(typed);
}

/// A verb of this program, as it is to be typed for this host.
pub fn command(verb: &str) -> String {
    format!("muster-agent{} {verb}", options())
}

/// What starts the daemon of this host.
pub fn start_daemon() -> String {
    match options() {
        "" => "systemctl start muster-agent".to_owned(),
        _ => command("daemon"),
    }
}

fn options() -> &'static str {
    OPTIONS.get().map_or("", String::as_str)
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_typed_as_one_word() {
        assert_eq!(quoted(Path::new("/srv/web-1")), "/srv/web-1");
        assert_eq!(quoted(Path::new("/srv/my host's")), "'/srv/my host'\\''s'");
    }
}
