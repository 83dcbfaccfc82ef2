//! The agent's own program and unit files, as a generation had them: a release that replaces or removes them must not keep
//! the host from going back.
//!
//! The program is a copy, never a second name of the same file: whoever writes into the installed one would write into
//! what the host goes back to. Unit files are small, and lie in one file with the rest.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use activation::{ActivationRecord, ActivationStage, GenerationId};
use model::Digest;
use model::collect::CollectInserting;
use model::digest::Hasher;
use model::sort::SortCompactly;
use serde::{Deserialize, Serialize};
use spool::atomic::{Existing, WholeFile};
use spool::{BlobStore, PeekedFile, SpoolError, StateFile};

use super::{GenerationFiles, MODE};
use crate::machine::MachineOptions;
use crate::service::{self, SERVICE};

/// The largest program that is kept, in bytes: one with everything that helps to find mistakes, too.
pub const MAX_PROGRAM: u64 = 512 * 1024 * 1024;
/// The largest unit file that is kept, in bytes.
pub const MAX_UNIT_FILE: u64 = 64 * 1024;
/// The most unit files that are kept.
pub const MAX_UNIT_FILES: usize = 64;
/// The most bytes of all programs.
const MAX_PROGRAMS: u64 = 4 * MAX_PROGRAM;
const AGENT_FILE: &str = "agent.json";
const PROGRAMS: &str = "programs";
/// Kept programs are run by the watchdog.
const PROGRAM_MODE: u32 = 0o700;

/// Where the agent of a host lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledAgent {
    /// Its program.
    pub program: PathBuf,
    /// Its unit files and what else its start depends on, those that are not there too: one that appears would count.
    pub files: Vec<PathBuf>,
    /// Directories of which each file counts.
    pub directories: Vec<PathBuf>,
}

impl InstalledAgent {
    /// The agent that runs, and its unit where it is the whole host's.
    pub fn of_this_host(options: &MachineOptions) -> InstalledAgent {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/bin/muster-agent"));
        // The kernel says so of a program whose file was replaced: what lies there now is what is installed.
        let name = program.to_string_lossy();
        let program = name.strip_suffix(" (deleted)").map_or(program.clone(), PathBuf::from);
        if options.root.is_some() {
            return InstalledAgent { program, files: Vec::new(), directories: Vec::new() };
        }
        let units = service::UNITS.iter().map(Path::new);
        let mut files: Vec<PathBuf> = units.clone().map(|units| units.join(SERVICE)).collect();
        files.push(Path::new(service::UNITS[0]).join("multi-user.target.wants").join(SERVICE));
        files.push(PathBuf::from("/etc/default/muster-agent"));
        let directories = units.map(|units| units.join(format!("{SERVICE}.d"))).collect();
        InstalledAgent { program, files, directories }
    }

    /// Every file that counts.
    fn all_files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = self.files.clone();
        for directory in &self.directories {
            files.extend(files_in(directory)?);
        }
        // `/lib` may be a name of `/usr/lib`: each file once.
        files.sort_compactly();
        files.dedup();
        Ok(files)
    }
}

fn files_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let paths = entries.map(|entry| Ok(entry?.path()));
    paths.filter(|path| path.as_ref().is_ok_and(|path| !path.is_dir())).collect()
}

/// What of the agent is kept for a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptAgent {
    program: KeptProgram,
    files: BTreeMap<PathBuf, KeptUnitFile>,
    directories: Vec<PathBuf>,
}

/// A program that lies among the kept ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptProgram {
    path: PathBuf,
    digest: Digest,
    #[serde(flatten)]
    ownership: KeptOwnership,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptOwnership {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl KeptOwnership {
    fn of(metadata: &Metadata) -> KeptOwnership {
        KeptOwnership { mode: metadata.mode() & 0o7777, uid: metadata.uid(), gid: metadata.gid() }
    }

    fn give(self, file: &File) -> io::Result<()> {
        std::os::unix::fs::fchown(file, Some(self.uid), Some(self.gid))?;
        file.set_permissions(Permissions::from_mode(self.mode))
    }
}

/// What was at the path of a unit file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum KeptUnitFile {
    Missing,
    Link {
        target: PathBuf,
    },
    File {
        text: String,
        #[serde(flatten)]
        ownership: KeptOwnership,
    },
}

impl KeptUnitFile {
    fn at(path: &Path) -> io::Result<KeptUnitFile> {
        let metadata = match path.symlink_metadata() {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(KeptUnitFile::Missing);
            }
            metadata => metadata?,
        };
        if metadata.is_symlink() {
            return Ok(KeptUnitFile::Link { target: path.read_link()? });
        }
        if !metadata.is_file() || metadata.len() > MAX_UNIT_FILE {
            return Err(io::Error::other(format!("it is no file of at most {MAX_UNIT_FILE} bytes")));
        }
        let mut text = String::new();
        File::open(path)?.take(MAX_UNIT_FILE).read_to_string(&mut text)?;
        Ok(KeptUnitFile::File { text, ownership: KeptOwnership::of(&metadata) })
    }
}

/// Why the agent cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepAgentError {
    /// A file of it cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It has more unit files than are kept.
    #[error("the agent has more than {MAX_UNIT_FILES} unit files")]
    TooMany,
    /// It cannot be written: no room, for one.
    #[error("it cannot be kept")]
    Keep(#[from] SpoolError),
}

/// Why the agent of a generation cannot be put back.
#[derive(Debug, thiserror::Error)]
pub enum PutBackAgentError {
    /// What is kept cannot be read.
    #[error("what is kept of the agent cannot be read")]
    Read(#[from] SpoolError),
    /// The kept program is gone or damaged.
    #[error("the program {} is not kept any more", .0.display())]
    Gone(PathBuf),
    /// A file cannot be written.
    #[error("cannot put back {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What putting the agent back came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutBackAgent {
    /// Its program was another one: a process of that goes on as it began, and is to be started anew.
    pub program: Option<PathBuf>,
    /// Unit files were others: systemd is to read them again.
    pub units: bool,
}

impl GenerationFiles {
    /// Keeps the agent as it is installed now for a generation.
    pub(super) fn keep_agent(&self, generation: GenerationId) -> Result<(), KeepAgentError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| KeepAgentError::Read { path, source }
        };
        let path = &self.installed.program;
        // Its file may be gone, and the process goes on with it.
        let file = if path.exists() { path.as_path() } else { Path::new("/proc/self/exe") };
        let mut file = File::open(file).map_err(at(path))?;
        let ownership = KeptOwnership::of(&file.metadata().map_err(at(path))?);
        let mut hasher = Hasher::new();
        io::copy(&mut file, &mut hasher).map_err(at(path))?;
        io::Seek::rewind(&mut file).map_err(at(path))?;
        let digest = hasher.finish();
        let programs = self.programs()?;
        if programs.open(&digest)?.is_none() {
            programs.put(&mut file, Some(digest), MAX_PROGRAM)?;
        }
        let kept = programs.path(&digest);
        make_executable(&kept).map_err(at(&kept))?;
        let files = self.installed.all_files().map_err(at(path))?;
        if files.len() > MAX_UNIT_FILES {
            return Err(KeepAgentError::TooMany);
        }
        let looked = files.into_iter().map(|path| match KeptUnitFile::at(&path) {
            Ok(kept) => Ok((path, kept)),
            Err(source) => Err(KeepAgentError::Read { path, source }),
        });
        let files: Vec<_> = looked.collect::<Result<_, _>>()?;
        let agent = KeptAgent {
            program: KeptProgram { path: path.clone(), digest, ownership },
            files: files.into_iter().collect_inserting(),
            directories: self.installed.directories.clone(),
        };
        self.disk.make_dir(&self.of_generation(generation))?;
        Ok(self.agent_file(generation).store(&agent)?)
    }

    /// Whether the agent of a generation is kept: the host may have to go back to it.
    pub(super) fn has_agent(&self, generation: GenerationId) -> bool {
        self.agent_file(generation).path().is_file()
    }

    /// Whether the agent of any generation is kept.
    pub(super) fn keeps_agents(&self) -> Result<bool, SpoolError> {
        Ok(self.kept()?.into_iter().any(|generation| self.has_agent(generation)))
    }

    /// The kept program of a generation.
    pub(super) fn kept_program(&self, generation: GenerationId) -> Result<Option<PathBuf>, SpoolError> {
        let PeekedFile::Value(agent) = self.agent_file(generation).peek()? else { return Ok(None) };
        let programs = self.programs()?;
        Ok(programs.has(&agent.program.digest).then(|| programs.path(&agent.program.digest)))
    }

    /// Whether the agent that is installed is another one than a generation's, whose agent is kept; what cannot be read is
    /// another one.
    pub(crate) fn agent_differs(&self, generation: GenerationId) -> bool {
        let Ok(PeekedFile::Value(agent)) = self.agent_file(generation).peek() else { return false };
        let KeptAgent { program, files, directories } = &agent;
        let program_differs = installed_digest(&program.path).ok().flatten() != Some(program.digest);
        let mut appeared = directories.iter().flat_map(|directory| files_in(directory).unwrap_or_default());
        program_differs
            || appeared.any(|path| !files.contains_key(&path))
            || files.iter().any(|(path, kept)| KeptUnitFile::at(path).ok().as_ref() != Some(kept))
    }

    /// Puts the agent's program and unit files back as a generation had them, where they differ. What is there of it
    /// is put back although something else of it cannot be.
    ///
    /// # Errors
    /// The first that cannot be put back.
    pub fn put_back_agent(&self, generation: GenerationId) -> Result<PutBackAgent, PutBackAgentError> {
        let mut put_back = PutBackAgent::default();
        let PeekedFile::Value(agent) = self.agent_file(generation).peek()? else { return Ok(put_back) };
        let mut failed = None;
        match self.put_back_program(&agent.program) {
            Ok(true) => put_back.program = Some(agent.program.path.clone()),
            Ok(false) => {}
            Err(error) => failed = Some(error),
        }
        let appeared = agent.directories.iter().flat_map(|directory| files_in(directory).unwrap_or_default());
        let appeared = appeared
            .filter(|path| !agent.files.contains_key(path))
            .map(|path| (path, &KeptUnitFile::Missing));
        let appeared: Vec<_> = appeared.collect();
        let files = agent.files.iter();
        for (path, kept) in files.chain(appeared.iter().map(|(path, kept)| (path, *kept))) {
            match self.put_back_unit_file(path, kept) {
                Ok(differed) => put_back.units |= differed,
                Err(source) => {
                    failed.get_or_insert(PutBackAgentError::Write { path: path.clone(), source });
                }
            }
        }
        match failed {
            None => Ok(put_back),
            Some(error) => Err(error),
        }
    }

    fn put_back_program(&self, program: &KeptProgram) -> Result<bool, PutBackAgentError> {
        let KeptProgram { path, digest, ownership } = program;
        let failed = |source| PutBackAgentError::Write { path: path.clone(), source };
        if installed_digest(path).map_err(failed)? == Some(*digest) {
            return Ok(false);
        }
        let programs = self.programs()?;
        let mut kept = programs.open(digest)?.ok_or_else(|| PutBackAgentError::Gone(path.clone()))?;
        let new = beside(path);
        let _ = std::fs::remove_file(&new);
        if let Err(error) = copied(&mut kept, &new, *ownership) {
            let _ = std::fs::remove_file(&new);
            // Without room it is a second name of what is kept, which the next trial keeps anew.
            let linked = (error.kind() == io::ErrorKind::StorageFull)
                .then(|| std::fs::hard_link(programs.path(digest), &new));
            linked.unwrap_or(Err(error)).map_err(failed)?;
            let _ = std::fs::set_permissions(&new, Permissions::from_mode(ownership.mode));
        }
        clear_directory(path).map_err(failed)?;
        std::fs::rename(&new, path).and_then(|()| sync_parent(path)).map_err(failed)?;
        Ok(true)
    }

    fn put_back_unit_file(&self, path: &Path, kept: &KeptUnitFile) -> io::Result<bool> {
        if KeptUnitFile::at(path).is_ok_and(|found| found == *kept) {
            return Ok(false);
        }
        clear_directory(path)?;
        match kept {
            KeptUnitFile::Missing => {
                std::fs::remove_file(path)?;
                sync_parent(path)?;
            }
            KeptUnitFile::Link { target } => {
                let new = beside(path);
                let _ = std::fs::remove_file(&new);
                std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
                symlink(target, &new)?;
                std::fs::rename(&new, path)?;
                sync_parent(path)?;
            }
            KeptUnitFile::File { text, ownership } => {
                std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
                let dress = |file: &File| ownership.give(file);
                let file = WholeFile {
                    path,
                    temporary: beside(path),
                    mode: MODE,
                    existing: Existing::Replace,
                    durable: true,
                    dress: &dress,
                };
                file.write(&self.disk, text.as_bytes()).map_err(io::Error::other)?;
            }
        }
        Ok(true)
    }

    /// Keeps the agents of the generations alone that a record may still lead back to.
    pub(super) fn keep_agents_of(&self, record: &ActivationRecord) -> Result<(), SpoolError> {
        let needed = match record.under_way {
            ActivationStage::Settled => Vec::new(),
            _ => record.needed(),
        };
        for generation in self.kept()?.into_iter().filter(|generation| !needed.contains(generation)) {
            self.forget_agent(generation)?;
            // The host as it was found has nothing else there.
            let _ = std::fs::remove_dir(self.of_generation(generation));
        }
        self.keep_programs()
    }

    pub(super) fn forget_agent(&self, generation: GenerationId) -> Result<(), SpoolError> {
        match self.has_agent(generation) {
            true => self.agent_file(generation).clear(),
            false => Ok(()),
        }
    }

    /// Removes the programs that no kept agent needs.
    pub(super) fn keep_programs(&self) -> Result<(), SpoolError> {
        if !self.directory.join(PROGRAMS).is_dir() {
            return Ok(());
        }
        let mut needed = Vec::new();
        for generation in self.kept()? {
            if let PeekedFile::Value(agent) = self.agent_file(generation).peek()? {
                needed.push(agent.program.digest);
            }
        }
        self.programs()?.retain(&needed.into_iter().collect_inserting())
    }

    fn programs(&self) -> Result<BlobStore, SpoolError> {
        BlobStore::open_dir(&self.disk, &self.directory.join(PROGRAMS), MAX_PROGRAMS)
    }

    fn agent_file(&self, generation: GenerationId) -> StateFile<KeptAgent> {
        StateFile::new(&self.disk, self.of_generation(generation).join(AGENT_FILE), MODE)
    }
}

/// The digest of the program at a path; `None` where there is none.
fn installed_digest(path: &Path) -> io::Result<Option<Digest>> {
    let is_file =
        path.symlink_metadata().is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0);
    if !is_file {
        return Ok(None);
    }
    let mut hasher = Hasher::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(Some(hasher.finish()))
}

fn copied(from: &mut File, to: &Path, ownership: KeptOwnership) -> io::Result<()> {
    let parent = to.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent)?;
    let mut file = File::options().write(true).create_new(true).open(to)?;
    io::copy(from, &mut file)?;
    ownership.give(&file)?;
    file.sync_all()
}

/// A directory that took the place of a file goes, where it is empty or not.
fn clear_directory(path: &Path) -> io::Result<()> {
    let is_directory = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    if is_directory { std::fs::remove_dir_all(path) } else { Ok(()) }
}

fn make_executable(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    if file.metadata()?.mode() & 0o7777 != PROGRAM_MODE {
        file.set_permissions(Permissions::from_mode(PROGRAM_MODE))?;
        file.sync_all()?;
    }
    Ok(())
}

fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Where a file is until it is complete.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".muster-return");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use spool::Disk;

    use super::super::{ReturnUnits, ReturnWatchdog};
    use super::*;

    /// ROL-7: what a release changes of the agent is seen, whatever of its files it is, until it is put back.
    #[test]
    fn another_agent_is_told_from_the_kept_one() {
        let dir = tempfile::tempdir().unwrap();
        let [program, unit, drop_ins] =
            ["agent", "agent.service", "agent.service.d"].map(|name| dir.path().join(name));
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).unwrap();
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        };
        write(&program, "the agent");
        write(&unit, "its unit");
        let disk = Disk::new();
        let installed = InstalledAgent {
            program: program.clone(),
            files: vec![unit.clone()],
            directories: vec![drop_ins.clone()],
        };
        let units = ReturnUnits::at(dir.path(), Path::new("/bin/true"), &disk);
        let files = GenerationFiles::with(dir.path(), &disk, installed, ReturnWatchdog::Units(units));
        let generation = GenerationId(Digest::of(b"confirmed"));
        assert!(!files.agent_differs(generation), "nothing is known of one that is not kept");
        files.keep_agent(generation).unwrap();
        assert!(!files.agent_differs(generation));

        let drop_in = drop_ins.join("own.conf");
        let changes: [&dyn Fn(); 5] = [
            &|| write(&program, "another"),
            &|| std::fs::remove_file(&program).unwrap(),
            &|| write(&unit, "another"),
            &|| std::fs::remove_file(&unit).unwrap(),
            &|| {
                std::fs::create_dir_all(&drop_ins).unwrap();
                write(&drop_in, "[Service]");
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            change();
            assert!(files.agent_differs(generation), "change {number}");
            files.put_back_agent(generation).unwrap();
            assert!(!files.agent_differs(generation), "change {number} was undone");
        }
    }

    /// LIF-4: the watchdog of another release reads what this one kept.
    #[test]
    fn what_is_kept_of_the_agent_has_this_form() {
        let form = json!({
            "program": {"path": "/usr/bin/muster-agent", "digest": Digest::of(b"agent"), "mode": 0o755, "uid": 0, "gid": 0},
            "files": {
                "/etc/default/muster-agent": {"type": "missing"},
                "/etc/systemd/system/multi-user.target.wants/muster-agent.service":
                    {"type": "link", "target": "/usr/lib/systemd/system/muster-agent.service"},
                "/usr/lib/systemd/system/muster-agent.service":
                    {"type": "file", "text": "[Service]\n", "mode": 0o644, "uid": 0, "gid": 0},
            },
            "directories": ["/etc/systemd/system/muster-agent.service.d"],
        });
        let agent: KeptAgent = serde_json::from_value(form.clone()).unwrap();
        assert_eq!(agent.files.len(), 3);
        assert_eq!(json!(agent), form);
    }

    #[test]
    fn the_agent_of_a_whole_host_has_its_unit_and_one_of_a_directory_none() {
        let whole = InstalledAgent::of_this_host(&MachineOptions::default());
        assert!(whole.files.iter().any(|file| file == Path::new("/etc/systemd/system/muster-agent.service")));
        let below = MachineOptions { root: Some("/srv/root".into()), ..MachineOptions::default() };
        let below = InstalledAgent::of_this_host(&below);
        assert_eq!((below.program, below.files.len()), (whole.program, 0));
    }
}
