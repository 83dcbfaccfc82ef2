//! CHANGELOG.md as a package's changelog.

/// When and by whom a version was packaged, and as what.
pub(super) struct Heading<'h> {
    pub(super) package: &'h str,
    pub(super) version: &'h str,
    pub(super) maintainer: &'h str,
    /// As `Mon, 23 Nov 2026 02:35:22 +0000`.
    pub(super) date: &'h str,
}

/// The longest line, in characters: what Debian's tools show whole.
const WIDTH: usize = 80;

/// The changes of the newest section, which is what this version is of.
pub(super) fn debian(changelog: &str, heading: &Heading<'_>) -> String {
    let Heading { package, version, maintainer, date } = heading;
    let mut out = format!("{package} ({version}) unstable; urgency=medium\n\n");
    let mut lines = newest(changelog).peekable();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("### ") {
            out.push_str(&format!("  [ {kind} ]\n"));
            continue;
        }
        let mut item = line.strip_prefix("- ").unwrap_or(line).to_owned();
        while let Some(more) = lines.next_if(|next| next.starts_with("  ")) {
            item.push(' ');
            item.push_str(more.trim());
        }
        wrap(&mut out, &item);
    }
    out.push_str(&format!("\n -- {maintainer}  {date}\n"));
    out
}

/// Adds an item, its lines no longer than [`WIDTH`] where words allow that.
fn wrap(out: &mut String, item: &str) {
    let mut line = "  *".to_owned();
    for word in item.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = "   ".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// The lines of the first section below the page's head, empty ones left out.
fn newest(changelog: &str) -> impl Iterator<Item = &str> {
    let sections = changelog.lines().skip_while(|line| !line.starts_with("## ")).skip(1);
    sections.take_while(|line| !line.starts_with("## ")).filter(|line| !line.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::{Heading, debian};

    #[test]
    fn only_the_newest_section_is_in_it() {
        let long = "word ".repeat(20);
        let text = format!(
            "# Changelog\n\nFormat: x.\n\n## Unreleased\n\n### Added\n- One thing\n  in two lines.\n- {long}\n\n\
             ## 0.1.0\n\n### Added\n- Old.\n"
        );
        let heading = Heading {
            package: "muster",
            version: "0.2.0",
            maintainer: "A B <a@b.invalid>",
            date: "Mon, 23 Nov 2026 02:35:22 +0000",
        };
        assert_eq!(
            debian(&text, &heading),
            "muster (0.2.0) unstable; urgency=medium\n\n  [ Added ]\n  * One thing in two lines.\n  * word \
             word word word word word word word word word word word word word word\n    word word word word word\n\n \
             -- A B <a@b.invalid>  Mon, 23 Nov 2026 02:35:22 +0000\n"
        );
    }
}
