//! `host`: entries of a hosts file; every other byte stays as it is.

use catalog::types::HostSpec;
use model::Fields;

/// What the first line that gives the name an address says of it; `None` when no line does.
pub fn observe(spec: &HostSpec, file: &str) -> Option<Fields> {
    let entry = file.lines().filter_map(HostsEntry::read).find(|entry| entry.names.contains(&&*spec.name))?;
    let aliases: Vec<&str> = entry.names.iter().copied().filter(|name| *name != spec.name).collect();
    Some(Fields::from([
        ("address".to_owned(), entry.address.to_owned()),
        ("aliases".to_owned(), aliases.join(" ")),
    ]))
}

/// The file in which the name has the state `to`. The first line that names it is edited in place, and
/// a new one goes to the end; the name goes from every other line, so that one alone counts. A name that
/// is removed takes the aliases that are declared of it along.
pub fn edit(spec: &HostSpec, file: &str, to: Option<&Fields>) -> String {
    let mut wanted = to.map(|to| entry_line(spec, file, to));
    let aliases = spec.aliases.iter().flatten().filter(|_| to.is_none());
    let gone: Vec<&str> = aliases.chain([&spec.name]).map(String::as_str).collect();
    let mut out = String::with_capacity(file.len() + 64);
    for line in file.split_inclusive('\n') {
        match HostsEntry::read(line) {
            Some(entry) if entry.names.contains(&&*spec.name) => match wanted.take() {
                Some(new) => out.push_str(&(new + &entry.rest())),
                None => out.push_str(&entry.without(&gone)),
            },
            Some(_) | None => out.push_str(line),
        }
    }
    if let Some(new) = wanted {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&(new + "\n"));
    }
    out
}

/// The line of the state; aliases that it does not name are those of the file.
fn entry_line(spec: &HostSpec, file: &str, to: &Fields) -> String {
    let now = observe(spec, file);
    let of = |name| to.get(name).or_else(|| now.as_ref()?.get(name)).map_or("", String::as_str);
    format!("{} {} {}", of("address"), spec.name, of("aliases")).trim_end().to_owned()
}

/// A line of a hosts file that gives names to an address.
struct HostsEntry<'a> {
    address: &'a str,
    names: Vec<&'a str>,
    /// From `#` on, with the newline.
    rest: &'a str,
}

impl<'a> HostsEntry<'a> {
    fn read(line: &'a str) -> Option<HostsEntry<'a>> {
        let end = line.find(['#', '\n']).unwrap_or(line.len());
        let mut words = line[..end].split_whitespace();
        let (address, names) = (words.next()?, words.collect());
        Some(HostsEntry { address, names, rest: &line[end..] })
    }

    /// The line without some names; nothing where they were all.
    fn without(&self, gone: &[&str]) -> String {
        let names: Vec<&str> = self.names.iter().copied().filter(|name| !gone.contains(name)).collect();
        match names.is_empty() {
            true => String::new(),
            false => format!("{} {}{}", self.address, names.join(" "), self.rest()),
        }
    }

    /// The comment after it, and the newline.
    fn rest(&self) -> String {
        let between = if self.rest.starts_with('#') { " " } else { "" };
        format!("{between}{}", self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::types::{Ensure, HOSTS, StateSpec};

    const FILE: &str = "# names\n127.0.0.1\tlocalhost\n192.0.2.9 db old # the database\n::1 db ip6\n";

    fn spec(aliases: Option<&[&str]>) -> HostSpec {
        HostSpec {
            name: "db".to_owned(),
            ensure: Ensure::Present,
            address: Some("192.0.2.10".to_owned()),
            aliases: aliases.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            path: HOSTS.to_owned(),
        }
    }

    #[test]
    fn an_entry_is_edited_in_place_and_all_else_is_kept() {
        let spec = spec(None);
        let once = edit(&spec, FILE, Some(&spec.declared()));
        assert_eq!(once, "# names\n127.0.0.1\tlocalhost\n192.0.2.10 db old # the database\n::1 ip6\n");
        assert_eq!(edit(&spec, &once, Some(&spec.declared())), once);
    }

    #[test]
    fn aliases_that_are_declared_replace_those_that_are_there() {
        let spec = spec(Some(&["db-1", "primary"]));
        let once = edit(&spec, FILE, Some(&spec.declared()));
        assert!(once.contains("192.0.2.10 db db-1 primary # the database\n"), "{once}");
        assert_eq!(observe(&spec, &once), Some(spec.declared()));
    }

    #[test]
    fn a_name_that_goes_leaves_the_others_of_its_line() {
        let gone = edit(&spec(None), FILE, None);
        assert_eq!(gone, "# names\n127.0.0.1\tlocalhost\n192.0.2.9 old # the database\n::1 ip6\n");
        assert_eq!(edit(&spec(None), "192.0.2.9 db\n", None), "");
        let with_aliases = spec(Some(&["old"]));
        assert_eq!(edit(&with_aliases, FILE, None), "# names\n127.0.0.1\tlocalhost\n::1 ip6\n");
    }

    #[test]
    fn a_new_name_goes_to_the_end_even_without_a_last_newline() {
        let spec = spec(None);
        assert_eq!(edit(&spec, "::1 me", Some(&spec.declared())), "::1 me\n192.0.2.10 db\n");
    }
}
