//! `archive`: what of an archive is unpacked, and what of it is missing.
//!
//! A state is that of a tree (`kinds::tree`), and one text more: [`ARCHIVE_TEXT`], which archive was
//! unpacked and how. What was unpacked is remembered as such a state, with `-` for owners.

use std::collections::BTreeMap;

use catalog::types::{ARCHIVE_TEXT, ArchiveSpec, Ensure};
use lang::glob::Glob;
use model::collect::CollectInserting;
use model::{Digest, Edit, Fields};

use super::DEFAULT_DIRECTORY_MODE;
use super::tree::{self, TOP, TreeEntry, TreeRights};

/// The most names of an archive.
pub const MAX_MEMBERS: usize = 20_000;
/// The most bytes of all names together, those of the directories that they lie in included.
const MAX_NAMES: usize = 4 * 1024 * 1024;
/// The longest name, in bytes.
const MAX_NAME: usize = 1024;
/// The most levels of directories.
const MAX_LEVELS: usize = 32;
/// The most bytes that an archive unpacks to.
const MAX_UNPACKED: u64 = 1024 * 1024 * 1024;
/// How many times its own size an archive may unpack to, above [`FREE_UNPACKED`].
const MAX_RATIO: u64 = 200;
/// What every archive may unpack to, in bytes.
const FREE_UNPACKED: u64 = 64 * 1024 * 1024;
/// What is in a state while its archive is being unpacked.
pub const UNFINISHED: &str = "unfinished";
/// Permission bits that are taken from an archive.
const TAKEN: u32 = 0o755;

/// The most bytes that an archive of this size may unpack to.
pub fn unpacked_limit(size: u64) -> u64 {
    size.saturating_mul(MAX_RATIO).clamp(FREE_UNPACKED, MAX_UNPACKED)
}

/// Why an archive is not unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveProblem {
    /// A name that does not stay in the directory.
    #[error("`{0}` leads out of the directory")]
    Outside(String),
    /// A name that cannot be used.
    #[error("the name `{0}` is too long, or holds a control character")]
    Name(String),
    /// A link that does not stay in the directory.
    #[error("the link `{name}` points out of the directory, to `{target}`")]
    Link {
        /// The link.
        name: String,
        /// Where it points to.
        target: String,
    },
    /// A second name of something that is not unpacked, or comes later.
    #[error("`{name}` is a hard link to `{target}`, which is no file that is unpacked before it")]
    HardLink {
        /// The link.
        name: String,
        /// What it is a name of.
        target: String,
    },
    /// A device, a FIFO or a kind that nobody knows.
    #[error("`{0}` is neither file, directory nor link")]
    Special(String),
    /// One name stands for two things.
    #[error("`{0}` stands in it twice")]
    Twice(String),
    /// Something lies below what is no directory.
    #[error("`{0}` is no directory, and something lies below it")]
    Below(String),
    /// It has too many names.
    #[error("it holds more than {MAX_MEMBERS} names, directories that they lie in included")]
    TooMany,
    /// Its names are too long together.
    #[error("its names have more than {} MiB", MAX_NAMES >> 20)]
    NamesTooLong,
    /// Nothing of it is unpacked.
    #[error("nothing is left of it; look at `strip`, `only` and `exclude`")]
    Nothing,
}

/// What of an archive is unpacked, collected name by name.
#[derive(Debug)]
pub struct ArchiveMembers<'a> {
    spec: &'a ArchiveSpec,
    only: Vec<Glob>,
    exclude: Vec<Glob>,
    seen: usize,
    /// The bytes of the names in `found`, and of where links point to.
    name_bytes: usize,
    /// What is unpacked, by `./name`.
    found: BTreeMap<String, TreeEntry>,
    /// Hard links, and the files that they are second names of.
    copies: BTreeMap<String, String>,
}

impl<'a> ArchiveMembers<'a> {
    /// Nothing yet.
    pub fn new(spec: &'a ArchiveSpec) -> ArchiveMembers<'a> {
        let globs = |texts: &[String]| texts.iter().map(|text| Glob::parse(text)).collect();
        let (only, exclude) = (globs(&spec.only), globs(&spec.exclude));
        ArchiveMembers {
            spec,
            only,
            exclude,
            seen: 0,
            name_bytes: 0,
            found: BTreeMap::new(),
            copies: BTreeMap::new(),
        }
    }

    /// The name in a state of what the archive calls `raw`; `None` when it is not unpacked.
    ///
    /// # Errors
    /// When it leads out of the directory, or is no name.
    pub fn name(&self, raw: &str) -> Result<Option<String>, ArchiveProblem> {
        if raw.starts_with('/') {
            return Err(ArchiveProblem::Outside(shown(raw)));
        }
        let parts: Vec<&str> = raw.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return Err(ArchiveProblem::Outside(shown(raw)));
        }
        if raw.len() > MAX_NAME || parts.len() > MAX_LEVELS || raw.chars().any(char::is_control) {
            return Err(ArchiveProblem::Name(shown(raw)));
        }
        let Some(parts) = parts.get(self.spec.strip..).filter(|parts| !parts.is_empty()) else {
            return Ok(None);
        };
        let matches = |globs: &[Glob]| {
            let whole = |glob: &Glob| (1..=parts.len()).any(|end| glob.matches(&parts[..end].join("/"), '/'));
            globs.iter().any(whole)
        };
        let left_out = (!self.only.is_empty() && !matches(&self.only)) || matches(&self.exclude);
        Ok((!left_out).then(|| format!("{TOP}/{}", parts.join("/"))))
    }

    /// Takes a directory in.
    ///
    /// # Errors
    /// When it must not be there.
    pub fn directory(&mut self, raw: &str, mode: u32) -> Result<(), ArchiveProblem> {
        let Some(name) = self.counted(raw)? else { return Ok(()) };
        let mode = self.spec.ownership.mode.unwrap_or(mode & TAKEN | 0o700);
        if matches!(self.found.get(&name), Some(TreeEntry::Directory(_))) {
            self.found.remove(&name);
        }
        self.insert(name, TreeEntry::Directory(rights(mode)))
    }

    /// Takes a file in.
    ///
    /// # Errors
    /// When it must not be there.
    pub fn file(&mut self, raw: &str, mode: u32, digest: Digest, size: u64) -> Result<(), ArchiveProblem> {
        let Some(name) = self.counted(raw)? else { return Ok(()) };
        let mut rights = rights(self.spec.file_mode.unwrap_or(mode & TAKEN | 0o400));
        if mode & 0o111 != 0 {
            rights.make_executable();
        }
        self.insert(name, TreeEntry::File { digest, size, rights })
    }

    /// Takes a symbolic link in. It may go up only before it goes down, so that no other link on the
    /// way leads elsewhere than its text says.
    ///
    /// # Errors
    /// When it must not be there.
    pub fn symlink(&mut self, raw: &str, target: &str) -> Result<(), ArchiveProblem> {
        let Some(name) = self.counted(raw)? else { return Ok(()) };
        let refused = || ArchiveProblem::Link { name: shown(raw), target: shown(target) };
        let parts: Vec<&str> = target.split('/').filter(|part| *part != ".").collect();
        let up = parts.iter().take_while(|part| **part == "..").count();
        // `./a/b` lies one level below the directory.
        let level = name.matches('/').count() - 1;
        let climbs = up > level || parts[up..].contains(&"..");
        if target.is_empty() || target.starts_with('/') || climbs || target.len() > MAX_NAME {
            return Err(refused());
        }
        if target.chars().any(char::is_control) {
            return Err(refused());
        }
        self.insert(name, TreeEntry::Symlink(target.to_owned()))
    }

    /// Takes a second name of a file in, which becomes a copy of it.
    ///
    /// # Errors
    /// When it must not be there.
    pub fn hard_link(&mut self, raw: &str, target: &str) -> Result<(), ArchiveProblem> {
        let Some(name) = self.counted(raw)? else { return Ok(()) };
        let missing = || ArchiveProblem::HardLink { name: shown(raw), target: shown(target) };
        let of = self.name(target)?.ok_or_else(missing)?;
        let entry @ TreeEntry::File { .. } = self.found.get(&of).cloned().ok_or_else(missing)? else {
            return Err(missing());
        };
        let first = self.copies.get(&of).cloned().unwrap_or(of);
        self.copies.insert(name.clone(), first);
        self.insert(name, entry)
    }

    fn counted(&mut self, raw: &str) -> Result<Option<String>, ArchiveProblem> {
        self.seen += 1;
        if self.seen > MAX_MEMBERS {
            return Err(ArchiveProblem::TooMany);
        }
        self.name(raw)
    }

    fn insert(&mut self, name: String, entry: TreeEntry) -> Result<(), ArchiveProblem> {
        if self.found.contains_key(&name) {
            return Err(ArchiveProblem::Twice(shown(&name)));
        }
        let target = if let TreeEntry::Symlink(target) = &entry { target.len() } else { 0 };
        self.count_name(name.len() + target)?;
        self.found.insert(name, entry);
        Ok(())
    }

    /// Counts a name that is about to be added.
    fn count_name(&mut self, bytes: usize) -> Result<(), ArchiveProblem> {
        self.name_bytes += bytes;
        if self.name_bytes > MAX_NAMES {
            return Err(ArchiveProblem::NamesTooLong);
        }
        if self.found.len() >= MAX_MEMBERS { Err(ArchiveProblem::TooMany) } else { Ok(()) }
    }

    /// All of it, when the last name was taken in.
    ///
    /// # Errors
    /// When something lies below what is no directory, or nothing is left.
    pub fn finish(mut self) -> Result<Unpacked, ArchiveProblem> {
        if self.found.is_empty() {
            return Err(ArchiveProblem::Nothing);
        }
        let mode = self.spec.ownership.mode.unwrap_or(DEFAULT_DIRECTORY_MODE);
        for name in self.found.keys().cloned().collect::<Vec<_>>() {
            for (at, _) in name.match_indices('/').skip(1) {
                match self.found.get(&name[..at]) {
                    Some(TreeEntry::Directory(_)) => {}
                    Some(_) => return Err(ArchiveProblem::Below(shown(&name[..at]))),
                    None => {
                        self.count_name(at)?;
                        self.found.insert(name[..at].to_owned(), TreeEntry::Directory(rights(mode)));
                    }
                }
            }
        }
        let mut state: Fields =
            self.found.into_iter().map(|(name, entry)| (name, entry.to_string())).collect_inserting();
        state.insert(ARCHIVE_TEXT.to_owned(), self.spec.label());
        Ok(Unpacked { state, copies: self.copies })
    }
}

/// What an archive unpacks to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// As it is remembered.
    pub state: Fields,
    /// Files that are copies of others, by name.
    pub copies: BTreeMap<String, String>,
}

/// A name for people.
fn shown(name: &str) -> String {
    let name = name.strip_prefix("./").unwrap_or(name);
    let end = name.floor_char_boundary(200);
    name[..end].escape_debug().to_string()
}

fn rights(mode: u32) -> TreeRights {
    TreeRights { mode: format!("{mode:04o}"), owner: "-".to_owned(), group: "-".to_owned() }
}

/// The state that the directory should have, where `unpacked` is what is remembered of it. Which
/// files an archive holds is known when it was unpacked: until then the archive alone is named.
///
/// # Errors
/// When something else stands in the place of a file or a directory.
pub fn desired(
    spec: &ArchiveSpec,
    unpacked: Option<&Fields>,
    now: Option<&Fields>,
) -> Result<Option<Fields>, String> {
    if spec.ensure == Ensure::Absent {
        return Ok(None);
    }
    let label = spec.label();
    match unpacked.filter(|unpacked| unpacked.get(ARCHIVE_TEXT) == Some(&label)) {
        None => Ok(Some(Fields::from([(ARCHIVE_TEXT.to_owned(), label)]))),
        Some(unpacked) => wanted(spec, unpacked, now).map(Some),
    }
}

/// What of an archive the directory should hold, with its owners.
///
/// # Errors
/// As [`desired`].
pub fn wanted(spec: &ArchiveSpec, unpacked: &Fields, now: Option<&Fields>) -> Result<Fields, String> {
    let is = |name: &str| now.and_then(|now| now.get(name)).and_then(|text| TreeEntry::read(text));
    let owned = |name: &str, mut rights: TreeRights| {
        let (owner, group) = match is(name) {
            Some(TreeEntry::File { rights, .. } | TreeEntry::Directory(rights)) => {
                (rights.owner, rights.group)
            }
            _ => ("-".to_owned(), "-".to_owned()),
        };
        rights.owner = spec.ownership.owner.clone().unwrap_or(owner);
        rights.group = spec.ownership.group.clone().unwrap_or(group);
        rights
    };
    let refused = |name: &str, what: &str| {
        Err(format!("{}/{} is {what}; move it away", spec.path, name.strip_prefix("./").unwrap_or(name)))
    };
    let mut to = Fields::from([(ARCHIVE_TEXT.to_owned(), spec.label())]);
    let top = match (is(TOP), spec.ownership.mode) {
        (Some(TreeEntry::Directory(now)), None) => now,
        (_, mode) => rights(mode.unwrap_or(DEFAULT_DIRECTORY_MODE)),
    };
    to.insert(TOP.to_owned(), TreeEntry::Directory(owned(TOP, top)).to_string());
    for (name, text) in unpacked.iter().filter(|(name, _)| *name != TOP) {
        let entry = match (TreeEntry::read(text), is(name)) {
            (
                Some(TreeEntry::Directory(_)),
                Some(TreeEntry::File { .. } | TreeEntry::Symlink(_) | TreeEntry::Other),
            ) => {
                return refused(name, "no directory");
            }
            (
                Some(TreeEntry::File { .. } | TreeEntry::Symlink(_)),
                Some(TreeEntry::Directory(_) | TreeEntry::Other),
            ) => {
                return refused(name, "no file");
            }
            (Some(TreeEntry::Directory(rights)), _) => TreeEntry::Directory(owned(name, rights)),
            (Some(TreeEntry::File { digest, size, rights }), _) => {
                TreeEntry::File { digest, size, rights: owned(name, rights) }
            }
            (Some(link @ TreeEntry::Symlink(_)), _) => link,
            _ => continue,
        };
        to.insert(name.clone(), entry.to_string());
    }
    Ok(to)
}

/// What is remembered while another archive is unpacked over what was there: all that may be Muster's.
pub fn unfinished(before: Option<&Fields>, unpacked: &Fields) -> Fields {
    let mut all = before.cloned().unwrap_or_default();
    all.extend(unpacked.clone());
    all.insert(ARCHIVE_TEXT.to_owned(), UNFINISHED.to_owned());
    all
}

/// Adds the directory itself to what was unpacked, where it was made for it: then it goes with it.
pub fn made(unpacked: &mut Fields) {
    unpacked.insert(TOP.to_owned(), TreeEntry::Directory(rights(DEFAULT_DIRECTORY_MODE)).to_string());
}

/// What a removal takes away of what there is: not a directory that was there before.
pub fn removed(unpacked: Option<&Fields>, now: &Fields) -> Fields {
    let mut goes = now.clone();
    if unpacked.is_none_or(|unpacked| !unpacked.contains_key(TOP)) {
        goes.remove(TOP);
    }
    goes
}

/// What to know before a change.
pub fn note(edit: &Edit<Fields>) -> Option<String> {
    let unpacks = edit.to().is_some_and(|to| to.contains_key(ARCHIVE_TEXT));
    if unpacks && edit.from().is_some() {
        return Some("cannot be undone: what was unpacked before is not kept".to_owned());
    }
    tree::note(edit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(strip: usize, only: &[&str], exclude: &[&str]) -> ArchiveSpec {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        ArchiveSpec {
            path: "/opt/x".to_owned(),
            ensure: Ensure::Present,
            digest: Digest::ZERO,
            from: None,
            strip,
            only: texts(only),
            exclude: texts(exclude),
            ownership: catalog::types::Ownership::default(),
            file_mode: None,
        }
    }

    #[test]
    fn names_stay_in_the_directory() {
        let spec = spec(0, &[], &[]);
        let members = ArchiveMembers::new(&spec);
        for raw in ["/etc/passwd", "../x", "a/../../x", "a/..", "..", "./../x", "//x"] {
            assert!(matches!(members.name(raw), Err(ArchiveProblem::Outside(_))), "{raw}");
        }
        for raw in ["a\nb", "a\0", &"d/".repeat(40), &"n".repeat(2000)] {
            assert!(matches!(members.name(raw), Err(ArchiveProblem::Name(_))), "{raw:?}");
        }
        for (raw, name) in [("./a//b/", Some("./a/b")), ("...", Some("./...")), (".", None), ("./", None)] {
            assert_eq!(members.name(raw).unwrap().as_deref(), name, "{raw}");
        }
        for longest in ["d/".repeat(MAX_LEVELS), "n".repeat(MAX_NAME)] {
            assert!(members.name(&longest).unwrap().is_some());
            assert!(matches!(members.name(&format!("{longest}n")), Err(ArchiveProblem::Name(_))));
        }
    }

    #[test]
    fn rights_are_those_of_the_archive_unless_they_are_declared() {
        let mut declared = spec(0, &[], &[]);
        declared.ownership.mode = Some(0o711);
        declared.file_mode = Some(0o640);
        // Of a directory, of a file, of a program, of a directory above: as in the archive, as declared.
        for (spec, wanted) in [
            (spec(0, &[], &[]), ["0700", "0400", "0755", "0755"]),
            (declared, ["0711", "0640", "0750", "0711"]),
        ] {
            let mut members = ArchiveMembers::new(&spec);
            members.directory("d", 0).unwrap();
            members.file("d/f", 0, Digest::ZERO, 1).unwrap();
            members.file("up/program", 0o4755, Digest::ZERO, 1).unwrap();
            let state = members.finish().unwrap().state;
            let mode = |name: &str| state[name].split(' ').rev().nth(2).unwrap().to_owned();
            assert_eq!(["./d", "./d/f", "./up/program", "./up"].map(mode), wanted);
        }
        // A directory that stands twice has the rights of the second time.
        let spec = spec(0, &[], &[]);
        let mut members = ArchiveMembers::new(&spec);
        members.directory("d", 0o755).unwrap();
        members.directory("d", 0o700).unwrap();
        assert_eq!(members.finish().unwrap().state["./d"], "directory 0700 - -");
    }

    #[test]
    fn owners_stay_and_what_is_of_another_kind_is_not_replaced() {
        let spec = spec(0, &[], &[]);
        let mut members = ArchiveMembers::new(&spec);
        members.file("d/f", 0o644, Digest::ZERO, 1).unwrap();
        members.symlink("l", "d").unwrap();
        let unpacked = members.finish().unwrap().state;
        let now = |pairs: &[(&str, &str)]| -> Fields {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let file = format!("sha256:{} 1 bytes 0600 amy staff", Digest::ZERO);
        let there = now(&[(".", "directory 0750 amy staff"), ("./d/f", &file), ("./l", "link d")]);
        let to = wanted(&spec, &unpacked, Some(&there)).unwrap();
        assert_eq!(to["."], "directory 0750 amy staff", "its own mode is not declared");
        assert_eq!(to["./d/f"], file.replace("0600", "0644"));
        assert_eq!((&*to["./d"], &*to["./l"]), ("directory 0755 - -", "link d"));
        for (name, is, what) in [
            ("./d", "link x", "/opt/x/d is no directory"),
            ("./d", "other", "/opt/x/d is no directory"),
            ("./d/f", "directory 0755 - -", "/opt/x/d/f is no file"),
            ("./l", "other", "/opt/x/l is no file"),
        ] {
            let refused = wanted(&spec, &unpacked, Some(&now(&[(name, is)]))).unwrap_err();
            assert!(refused.starts_with(what), "{refused}");
        }
        // What was unpacked of another archive is not this one's.
        let mut other = unpacked.clone();
        other.insert(ARCHIVE_TEXT.to_owned(), "another".to_owned());
        let label = now(&[(ARCHIVE_TEXT, &spec.label())]);
        assert_eq!(desired(&spec, Some(&other), None), Ok(Some(label.clone())));
        assert_eq!(desired(&spec, None, None), Ok(Some(label)));
        assert!(desired(&spec, Some(&unpacked), None).unwrap().unwrap().contains_key("./d/f"));
    }

    #[test]
    fn a_removal_takes_the_directory_that_was_made() {
        let now = Fields::from([
            (TOP.to_owned(), "directory 0755 - -".to_owned()),
            ("./f".to_owned(), String::new()),
        ]);
        let mut unpacked = Fields::new();
        let names = |fields: Fields| fields.into_keys().collect::<Vec<_>>();
        assert_eq!(names(removed(Some(&unpacked), &now)), ["./f"]);
        assert_eq!(names(removed(None, &now)), ["./f"]);
        made(&mut unpacked);
        assert_eq!(names(removed(Some(&unpacked), &now)), [TOP, "./f"]);
    }

    #[test]
    fn what_is_stripped_filtered_or_excluded_is_not_unpacked() {
        let spec = spec(1, &["bin", "lib/*.so", "**/keep"], &["bin/secret*"]);
        let members = ArchiveMembers::new(&spec);
        let table = [
            ("t", None),
            ("t/bin/a", Some("./bin/a")),
            ("t/bin/deep/b", Some("./bin/deep/b")),
            ("t/bin/secret.key", None),
            ("t/lib/a.so", Some("./lib/a.so")),
            ("t/lib/deep/a.so", None),
            ("t/x/keep", Some("./x/keep")),
            ("t/README", None),
        ];
        for (raw, name) in table {
            assert_eq!(members.name(raw).unwrap().as_deref(), name, "{raw}");
        }
    }

    #[test]
    fn links_stay_in_the_directory() {
        let spec = spec(0, &[], &[]);
        let table = [
            ("a", "b", true),
            ("a/b", "../c", true),
            ("a/b/c", "../../d", true),
            ("a", "./b/c", true),
            ("a", "../b", false),
            ("a/b", "../../c", false),
            ("a", "/etc", false),
            ("a", "", false),
            ("a", "b\nc", false),
            // Through another link, `x/..` is not where it seems to be.
            ("a", "x/../y", false),
            ("a/b", "../x/../..", false),
        ];
        for (name, target, right) in table {
            let taken = ArchiveMembers::new(&spec).symlink(name, target);
            assert_eq!(taken.is_ok(), right, "{name} -> {target}: {taken:?}");
        }
    }

    #[test]
    fn one_name_is_one_thing_and_nothing_lies_below_a_link() {
        let spec = spec(0, &[], &[]);
        let mut members = ArchiveMembers::new(&spec);
        members.directory("a", 0o777).unwrap();
        members.directory("./a/", 0o1777).unwrap();
        members.file("a/f", 0o6777, Digest::ZERO, 1).unwrap();
        assert_eq!(members.file("a//f", 0, Digest::ZERO, 1), Err(ArchiveProblem::Twice("a/f".into())));
        assert!(matches!(members.directory("a/f", 0), Err(ArchiveProblem::Twice(_))));
        members.hard_link("g", "a/f").unwrap();
        members.hard_link("h", "./g").unwrap();
        assert!(matches!(members.hard_link("i", "later"), Err(ArchiveProblem::HardLink { .. })));
        assert!(matches!(members.hard_link("i", "../a"), Err(ArchiveProblem::Outside(_))));
        let unpacked = members.finish().unwrap();
        assert_eq!(unpacked.copies.get("./h").map(String::as_str), Some("./a/f"));
        assert_eq!(unpacked.state["./a"], "directory 0755 - -");
        assert_eq!(unpacked.state["./a/f"], format!("sha256:{} 1 bytes 0755 - -", Digest::ZERO));

        let mut members = ArchiveMembers::new(&spec);
        members.symlink("a", "b").unwrap();
        members.file("a/f", 0o644, Digest::ZERO, 1).unwrap();
        assert_eq!(members.finish(), Err(ArchiveProblem::Below("a".into())));
        assert_eq!(ArchiveMembers::new(&spec).finish(), Err(ArchiveProblem::Nothing));
        let mut members = ArchiveMembers::new(&spec);
        let many = (0..=MAX_MEMBERS).try_for_each(|n| members.directory(&format!("{n}"), 0));
        assert_eq!(many, Err(ArchiveProblem::TooMany));
    }

    #[test]
    fn directories_that_no_member_names_are_counted_too() {
        let spec = spec(0, &[], &[]);
        let finished = |names: &mut dyn Iterator<Item = String>| {
            let mut members = ArchiveMembers::new(&spec);
            for name in names {
                members.file(&name, 0o644, Digest::ZERO, 1)?;
            }
            members.finish().map(|unpacked| unpacked.state.len())
        };
        let deep = |count: usize, level: &'static str| {
            let level = level.repeat(MAX_LEVELS - 2);
            (0..count).map(move |n| format!("{n}/{level}f"))
        };
        // Each one, its directories, and the text that says which archive it is.
        assert_eq!(finished(&mut deep(10, "d/")), Ok(10 * MAX_LEVELS + 1));
        assert_eq!(finished(&mut deep(MAX_MEMBERS / MAX_LEVELS + 1, "d/")), Err(ArchiveProblem::TooMany));
        let long = "a-directory-whose-name-is-long/";
        assert_eq!(finished(&mut deep(500, long)), Err(ArchiveProblem::NamesTooLong));
        let name = "n".repeat(MAX_NAME - 10);
        let mut many = (0..MAX_MEMBERS).map(|n| format!("{name}{n}"));
        assert_eq!(finished(&mut many), Err(ArchiveProblem::NamesTooLong));
    }

    #[test]
    fn an_archive_unpacks_to_so_many_times_its_size() {
        assert_eq!(unpacked_limit(10), FREE_UNPACKED);
        assert_eq!(unpacked_limit(1024 * 1024), 200 * 1024 * 1024);
        assert_eq!(unpacked_limit(u64::MAX), MAX_UNPACKED);
    }
}
