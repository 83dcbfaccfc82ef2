//! What dpkg and apt know of packages: `/var/lib/dpkg/status`, its `updates`, `extended_states`.

use std::collections::{BTreeMap, BTreeSet};

/// The packages that a host has, or had and keeps the configuration of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageDatabase {
    /// By name; several where a package is there for several architectures.
    packages: BTreeMap<String, Vec<KnownPackage>>,
    /// Name and architecture of what was installed because something else needed it.
    auto: BTreeSet<(String, String)>,
    /// dpkg ended in the middle, and its last changes are not in its status file.
    pub unfinished: bool,
}

/// A package of the status file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPackage {
    /// Its architecture.
    pub architecture: String,
    /// Its version.
    pub version: String,
    /// How far it is.
    pub status: PackageStatus,
    /// Upgrades pass it by.
    pub hold: bool,
}

/// How far a package is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageStatus {
    /// Installed and configured.
    Installed,
    /// Removed, but for its configuration.
    ConfigFiles,
    /// Something in the middle: dpkg's word for it.
    Unfinished(&'static str),
}

impl PackageStatus {
    /// dpkg's word.
    pub fn word(self) -> &'static str {
        match self {
            PackageStatus::Installed => "installed",
            PackageStatus::ConfigFiles => "config-files",
            PackageStatus::Unfinished(word) => word,
        }
    }

    fn read(word: &[u8]) -> Option<PackageStatus> {
        let middle =
            ["half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending"];
        match word {
            b"installed" => Some(PackageStatus::Installed),
            b"config-files" => Some(PackageStatus::ConfigFiles),
            _ => middle.into_iter().find(|known| known.as_bytes() == word).map(PackageStatus::Unfinished),
        }
    }
}

impl PackageDatabase {
    /// Reads the status file, the updates to it in their order, and the marks of apt. What cannot be
    /// read as a package is passed by.
    pub fn read<'a>(
        status: &[u8],
        updates: impl IntoIterator<Item = &'a [u8]>,
        marks: &[u8],
    ) -> PackageDatabase {
        let mut database = PackageDatabase::default();
        database.add(status);
        for update in updates {
            database.unfinished = true;
            database.add(update);
        }
        stanzas(marks, |stanza| {
            if stanza.auto {
                database.auto.insert((text(stanza.package), text(stanza.architecture)));
            }
        });
        database
    }

    /// The package of this name, `NAME:ARCH` for one of another architecture.
    pub fn find(&self, name: &str) -> Option<&KnownPackage> {
        let (package, wanted) = split(name);
        let known = self.packages.get(package)?;
        let native = self.native();
        match wanted {
            Some(wanted) => known.iter().find(|known| known.architecture == wanted),
            None => {
                let own =
                    known.iter().find(|known| known.architecture == native || known.architecture == "all");
                own.or(known.first())
            }
        }
    }

    /// Whether it was installed because something else needed it.
    pub fn is_auto(&self, name: &str) -> bool {
        let native = self.native();
        let marked = |known: &KnownPackage| {
            // apt writes the host's architecture for what is for all of them.
            let arch = if known.architecture == "all" { native } else { &known.architecture };
            self.auto.contains(&(split(name).0.to_owned(), arch.to_owned()))
        };
        !self.auto.is_empty() && self.find(name).is_some_and(marked)
    }

    /// Packages that are in the middle of something, with dpkg's word for it.
    pub fn in_the_middle(&self) -> Vec<(&str, &'static str)> {
        let all = self.packages.iter().flat_map(|(name, known)| known.iter().map(move |known| (name, known)));
        all.filter_map(|(name, known)| match known.status {
            PackageStatus::Unfinished(word) => Some((name.as_str(), word)),
            PackageStatus::Installed | PackageStatus::ConfigFiles => None,
        })
        .collect()
    }

    /// How many packages it knows.
    pub fn len(&self) -> usize {
        self.packages.values().map(Vec::len).sum()
    }

    /// It knows none.
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty()
    }

    /// A name as apt prints it: without the architecture where it is the host's.
    pub fn printed<'n>(&self, name: &'n str) -> &'n str {
        match split(name) {
            (package, Some(architecture)) if architecture == self.native() => package,
            _ => name,
        }
    }

    /// The host's architecture: that of dpkg itself.
    fn native(&self) -> &str {
        let dpkg = self.packages.get("dpkg").and_then(|known| known.first());
        dpkg.map_or("", |known| known.architecture.as_str())
    }

    fn add(&mut self, file: &[u8]) {
        stanzas(file, |stanza| {
            let mut words = stanza.status.split(|byte| *byte == b' ');
            let (want, _, state) = (words.next(), words.next(), words.next().unwrap_or_default());
            let name = text(stanza.package);
            let architecture = text(stanza.architecture);
            let known = self.packages.entry(name).or_default();
            known.retain(|known| known.architecture != architecture);
            // What is `not-installed` is not there.
            known.extend(PackageStatus::read(state).map(|status| KnownPackage {
                architecture,
                version: text(stanza.version),
                status,
                hold: want == Some(b"hold"),
            }));
        });
        self.packages.retain(|_, known| !known.is_empty());
    }
}

/// The name and the architecture of `NAME:ARCH`.
fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once(':').map_or((name, None), |(name, arch)| (name, Some(arch)))
}

/// What is read of a stanza.
#[derive(Default)]
struct PackageStanza<'a> {
    package: &'a [u8],
    status: &'a [u8],
    version: &'a [u8],
    architecture: &'a [u8],
    auto: bool,
}

fn stanzas<'a>(file: &'a [u8], mut each: impl FnMut(PackageStanza<'a>)) {
    let mut stanza = PackageStanza::default();
    for line in file.split(|byte| *byte == b'\n').chain([&b""[..]]) {
        match line.first() {
            None => {
                let done = std::mem::take(&mut stanza);
                if !done.package.is_empty() {
                    each(done);
                }
            }
            Some(b'P') => set(line, b"Package: ", &mut stanza.package),
            Some(b'S') => set(line, b"Status: ", &mut stanza.status),
            Some(b'V') => set(line, b"Version: ", &mut stanza.version),
            Some(b'A') => {
                set(line, b"Architecture: ", &mut stanza.architecture);
                stanza.auto |= line == b"Auto-Installed: 1";
            }
            Some(_) => {}
        }
    }
}

fn set<'a>(line: &'a [u8], key: &[u8], value: &mut &'a [u8]) {
    if let Some(rest) = line.strip_prefix(key) {
        *value = rest.trim_ascii();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: dpkg\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.21.22\n\
        Description: package manager\n Package: not a field\n\n\
        Package: nginx\nStatus: hold ok installed\nArchitecture: all\nVersion: 1.22.1-9\n\n\
        Package: libc6\nStatus: install ok installed\nArchitecture: i386\nVersion: 2.35\n\n\
        Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36\n\n\
        Package: old\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n\n\
        Package: gone\nStatus: purge ok not-installed\nArchitecture: amd64\n\n\
        Package: bad\nStatus: install ok half-configured\nArchitecture: amd64\nVersion: 3\n";

    fn version(database: &PackageDatabase, name: &str) -> Option<String> {
        database.find(name).map(|known| format!("{} {}", known.version, known.status.word()))
    }

    #[test]
    fn each_state_of_a_package_is_told_from_the_others() {
        let marks = b"Package: nginx\nArchitecture: amd64\nAuto-Installed: 1\n\nPackage: dpkg\nArchitecture: amd64\nAuto-Installed: 0\n";
        let database = PackageDatabase::read(STATUS.as_bytes(), [], marks);
        assert_eq!(version(&database, "nginx").as_deref(), Some("1.22.1-9 installed"));
        assert!(database.find("nginx").unwrap().hold && !database.find("dpkg").unwrap().hold);
        assert_eq!(version(&database, "libc6").as_deref(), Some("2.36 installed"));
        assert_eq!(version(&database, "libc6:i386").as_deref(), Some("2.35 installed"));
        assert_eq!(version(&database, "libc6:arm64"), None);
        assert_eq!(version(&database, "old").as_deref(), Some("1 config-files"));
        assert_eq!((version(&database, "gone"), version(&database, "ngin")), (None, None));
        assert_eq!(database.in_the_middle(), [("bad", "half-configured")]);
        assert!(database.is_auto("nginx") && !database.is_auto("dpkg") && !database.unfinished);
    }

    #[test]
    fn what_dpkg_wrote_last_counts() {
        let updates: [&[u8]; 2] = [
            b"Package: nginx\nStatus: install ok unpacked\nArchitecture: all\nVersion: 1.24\n",
            b"Package: old\nStatus: purge ok not-installed\nArchitecture: amd64\n",
        ];
        let database = PackageDatabase::read(STATUS.as_bytes(), updates, b"");
        assert!(database.unfinished);
        assert_eq!(version(&database, "nginx").as_deref(), Some("1.24 unpacked"));
        assert_eq!(version(&database, "old"), None);
    }

    #[test]
    fn what_is_no_package_is_passed_by() {
        for text in
            [&b""[..], b"\n\n", b"Package:", b"Package: a", b"\xff\xfe: \x00\n", b"Status: x\n\nVersion: 1"]
        {
            assert!(PackageDatabase::read(text, [], text).is_empty());
        }
    }
}
