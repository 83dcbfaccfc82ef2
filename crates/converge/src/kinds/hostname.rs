//! `hostname`: what the files say of the host's name.

use model::{Edit, Fields};

/// The key of the name for people in `/etc/machine-info`.
const PRETTY: &str = "PRETTY_HOSTNAME";

/// The name in an `/etc/hostname`: its first line that is no comment.
pub fn name_in(file: &str) -> String {
    let line = file.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    line.unwrap_or_default().to_owned()
}

/// The name for people in an `/etc/machine-info`; empty where there is none.
pub fn pretty_in(file: &str) -> String {
    let mut values = file.lines().filter_map(|line| pretty_value(line.trim()));
    values.next_back().map(unquoted).unwrap_or_default()
}

/// An `/etc/machine-info` with this name for people; an empty one has no line.
pub fn with_pretty(file: &str, pretty: &str) -> String {
    let mut out: String =
        file.split_inclusive('\n').filter(|line| pretty_value(line.trim()).is_none()).collect();
    if !pretty.is_empty() {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&format!("{PRETTY}={}\n", quoted(pretty)));
    }
    out
}

/// What to know before an edit.
pub fn note(edit: &Edit<Fields>) -> Option<String> {
    let name = edit.to()?.get("hostname")?;
    let (short, _) = name.split_once('.')?;
    Some(format!(
        "the name has a dot; programs that add the domain may double it, and {short} with a `host` entry for \
         {name} does not have that"
    ))
}

fn pretty_value(line: &str) -> Option<&str> {
    line.strip_prefix(PRETTY)?.strip_prefix('=')
}

/// A value in double quotes, as a shell and systemd read it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '$' | '`') {
            out.push('\\');
        }
        out.push(c);
    }
    out + "\""
}

fn unquoted(text: &str) -> String {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        return inner.to_owned();
    }
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let (mut out, mut escaped) = (String::new(), false);
    for c in inner.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            out.push(c);
            escaped = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_first_line_that_is_no_comment() {
        assert_eq!(name_in("# made by hand\n\n web-1 \nother\n"), "web-1");
        assert_eq!(name_in(""), "");
    }

    #[test]
    fn a_name_for_people_is_quoted_and_other_lines_are_kept() {
        let file = "CHASSIS=vm\nPRETTY_HOSTNAME='old one'\nICON_NAME=x";
        assert_eq!(pretty_in(file), "old one");
        let new = with_pretty(file, "Amy's \"big\" $box \\");
        assert_eq!(new, "CHASSIS=vm\nICON_NAME=x\nPRETTY_HOSTNAME=\"Amy's \\\"big\\\" \\$box \\\\\"\n");
        assert_eq!(pretty_in(&new), "Amy's \"big\" $box \\");
        assert_eq!(with_pretty(&new, ""), "CHASSIS=vm\nICON_NAME=x\n");
        assert_eq!(with_pretty("", ""), "");
    }

    #[test]
    fn a_name_with_a_dot_is_allowed_and_told() {
        let to = |name: &str| Edit::Add { to: Fields::from([("hostname".to_owned(), name.to_owned())]) };
        assert!(note(&to("web.example.com")).unwrap().contains("web with a `host` entry"));
        assert_eq!(note(&to("web")), None);
    }
}
