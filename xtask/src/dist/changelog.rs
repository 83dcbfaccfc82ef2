//! CHANGELOG.md as a package's changelog.

/// When and by whom a version was packaged, and as what.
pub(super) struct Heading<'h> {
    pub(super) package: &'h str,
    pub(super) version: &'h str,
    pub(super) maintainer: &'h str,
    /// As `Mon, 23 Nov 2026 02:35:22 +0000`.
    pub(super) date: &'h str,
}

/// The changes of the newest section, which is what this version is of.
pub(super) fn debian(changelog: &str, heading: &Heading<'_>) -> String {
    let Heading { package, version, maintainer, date } = heading;
    let mut out = format!("{package} ({version}) unstable; urgency=medium\n\n");
    for line in newest(changelog) {
        match line.strip_prefix("### ") {
            Some(kind) => out.push_str(&format!("  [ {kind} ]\n")),
            None if line.starts_with("- ") => out.push_str(&format!("  * {}\n", &line[2..])),
            None => out.push_str(&format!("    {}\n", line.trim_start())),
        }
    }
    out.push_str(&format!("\n -- {maintainer}  {date}\n"));
    out
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
        let text = "# Changelog\n\nFormat: x.\n\n## Unreleased\n\n### Added\n- One thing\n  in two lines.\n\n\
                    ## 0.1.0\n\n### Added\n- Old.\n";
        let heading = Heading {
            package: "muster",
            version: "0.2.0",
            maintainer: "A B <a@b.invalid>",
            date: "Mon, 23 Nov 2026 02:35:22 +0000",
        };
        assert_eq!(
            debian(text, &heading),
            "muster (0.2.0) unstable; urgency=medium\n\n  [ Added ]\n  * One thing\n    in two lines.\n\n \
             -- A B <a@b.invalid>  Mon, 23 Nov 2026 02:35:22 +0000\n"
        );
    }
}
