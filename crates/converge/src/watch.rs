//! [`WatchPlan`]: what to watch of a host so that an out-of-band change is noticed at once (CNV-7).
//!
//! ```text
//! Desired -> WatchPlan: directories and entries in them, units, kernel parameters, mounts, the name
//! event: entry of a directory, unit, ... -> WatchPlan -> resources to look at again
//! ```
//!
//! An event says where to look, and never what is there: a run over the resources decides that. Invariants:
//! a directory is watched together with all those above it, so that one that is moved away, or made again,
//! is noticed; a resource without anything to watch (a command) is in no plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::types::{PathRole, ResourcePath, Spec};

use crate::packed_texts::PackedTexts;
use crate::{BoundModule, BoundResource, Desired, ResourceId, When};

/// How the names of the folders of links that start units end.
pub const LINK_FOLDERS: [&str; 2] = [".wants", ".requires"];
/// Of one archive so many files are watched; a look at one of them is a look at them all.
const MAX_UNPACKED: usize = 5000;
/// Where the kernel's parameters are.
const PARAMETERS: &str = "/proc/sys";

/// A resource of a plan.
type WatchMember = u32;

/// What to watch. Resources are numbered, as many paths may lead to one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchPlan {
    resources: PackedTexts,
    directories: BTreeMap<String, WatchedDirectory>,
    units: BTreeMap<String, Vec<WatchMember>>,
    parameters: BTreeMap<String, Vec<WatchMember>>,
    mounts: Vec<WatchMember>,
    name: Vec<WatchMember>,
}

/// What is of interest in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct WatchedDirectory {
    /// Names of entries, sorted; one stands as often as it has members.
    entries: PackedTexts,
    /// Whose the entry at the same place is.
    members: Vec<WatchMember>,
    /// Of interest to these whatever its name is.
    any: Vec<WatchMember>,
}

impl WatchedDirectory {
    /// One that is watched only because others lie below it has neither.
    fn interest(&self) -> DirectoryInterest {
        match self.members.is_empty() && self.any.is_empty() {
            true => DirectoryInterest::Entries,
            false => DirectoryInterest::Contents,
        }
    }

    /// Whose an entry is.
    fn of_entry(&self, name: &str) -> impl Iterator<Item = &WatchMember> {
        self.members[self.entries.range_of(name)].iter().chain(&self.any)
    }
}

/// A plan while it is made: its directories, with whose each entry is.
#[derive(Default)]
struct WatchDraft {
    plan: WatchPlan,
    resources: Vec<ResourceId>,
    directories: BTreeMap<String, BTreeSet<(String, WatchMember)>>,
}

/// One thing to watch.
enum WatchPoint {
    /// What is at a path.
    Entry(String),
    /// Everything in a directory.
    All(String),
    Unit(String),
    Parameter(String),
    Mounts,
    Name,
}

/// How much of a directory is of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryInterest {
    /// What is in its entries too.
    Contents,
    /// Only which entries there are: it lies above what is managed.
    Entries,
}

/// What of a host decides where things are.
pub struct HostLayout<'a> {
    /// A user's home.
    pub home: &'a dyn Fn(&str) -> Option<String>,
    /// The folders of links that start units ([`LINK_FOLDERS`]) that are there, by their paths.
    pub link_folders: Vec<String>,
    /// The names in a directory, `/` between their parts, of what an archive unpacked there.
    pub unpacked: &'a dyn Fn(&str) -> Vec<String>,
}

impl WatchPlan {
    /// What to watch for these resources.
    pub fn of(desired: &Desired, layout: &HostLayout<'_>) -> WatchPlan {
        let mut draft = WatchDraft::default();
        let wanted =
            |module: &&Arc<BoundModule>| module.error.is_none() && !matches!(module.when, When::Never(_));
        for resource in desired.modules.iter().filter(wanted).flat_map(|module| &module.resources) {
            let points = points(resource, layout);
            if points.is_empty() {
                continue;
            }
            let member = WatchMember::try_from(draft.resources.len()).unwrap_or(WatchMember::MAX);
            draft.resources.push(resource.id.clone());
            points.into_iter().for_each(|point| draft.add(member, point));
        }
        draft.finish()
    }

    /// The directories, each after those above it, by their paths without a slash at the end.
    pub fn directories(&self) -> impl Iterator<Item = (&str, DirectoryInterest)> {
        self.directories.iter().map(|(path, directory)| (path.as_str(), directory.interest()))
    }

    /// How much of a directory is of interest; `None` when it is not watched.
    pub fn interest(&self, directory: &str) -> Option<DirectoryInterest> {
        self.directories.get(directory).map(WatchedDirectory::interest)
    }

    /// Whose an entry of a directory is.
    pub fn of_entry(&self, directory: &str, name: &str, suspects: &mut BTreeSet<ResourceId>) {
        let Some(directory) = self.directories.get(directory) else { return };
        suspects.extend(directory.of_entry(name).map(|member| self.id(*member)));
    }

    /// Whose a directory itself and everything below it is.
    pub fn of_tree(&self, path: &str, suspects: &mut BTreeSet<ResourceId>) {
        if let Some((directory, name)) = split(path) {
            self.of_entry(directory, name, suspects);
        }
        for directory in self.tree(path).filter_map(|path| self.directories.get(path)) {
            let members = directory.members.iter().chain(&directory.any);
            suspects.extend(members.map(|member| self.id(*member)));
        }
    }

    /// A watched directory, if it is one, and those below it.
    pub fn tree<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let below = format!("{path}/");
        // `0` follows `/`.
        let range = self.directories.range(below..format!("{path}0"));
        let itself = self.directories.get_key_value(path).into_iter();
        itself.chain(range).map(|(path, _)| path.as_str())
    }

    /// The directories in which a resource's paths are.
    pub fn directories_of(&self, resource: &ResourceId) -> Vec<(String, Vec<String>)> {
        let Some(member) = self.resources.iter().position(|known| known == resource.as_str()) else {
            return Vec::new();
        };
        let is = |known: &WatchMember| usize::try_from(*known) == Ok(member);
        let named = self.directories.iter().filter_map(|(path, directory)| {
            let entries = directory.entries.iter().zip(&directory.members);
            let names: Vec<String> =
                entries.filter(|(_, known)| is(known)).map(|(name, _)| name.to_owned()).collect();
            (!names.is_empty()).then(|| (path.clone(), names))
        });
        named.collect()
    }

    /// Whose a unit is.
    pub fn of_unit(&self, unit: &str, suspects: &mut BTreeSet<ResourceId>) {
        suspects.extend(self.units.get(unit).into_iter().flatten().map(|member| self.id(*member)));
    }

    /// Those of all units.
    pub fn of_units(&self, suspects: &mut BTreeSet<ResourceId>) {
        suspects.extend(self.units.values().flatten().map(|member| self.id(*member)));
    }

    /// Those of what is mounted.
    pub fn of_mounts(&self, suspects: &mut BTreeSet<ResourceId>) {
        suspects.extend(self.mounts.iter().map(|member| self.id(*member)));
    }

    /// Those of the host's name.
    pub fn of_name(&self, suspects: &mut BTreeSet<ResourceId>) {
        suspects.extend(self.name.iter().map(|member| self.id(*member)));
    }

    /// Whose a kernel parameter is, by its path.
    pub fn of_parameter(&self, path: &str, suspects: &mut BTreeSet<ResourceId>) {
        suspects.extend(self.parameters.get(path).into_iter().flatten().map(|member| self.id(*member)));
    }

    /// The units.
    pub fn units(&self) -> impl Iterator<Item = &str> {
        self.units.keys().map(String::as_str)
    }

    /// The paths of kernel parameters, which tell of no change and have to be read.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.parameters.keys().map(String::as_str)
    }

    /// Whether the host's name is watched.
    pub fn watches_name(&self) -> bool {
        !self.name.is_empty()
    }

    /// How many resources it has.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All resources of the plan.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> {
        self.resources.iter().map(ResourceId::from)
    }

    fn id(&self, member: WatchMember) -> ResourceId {
        // A member is a place in the list; one that did not fit is the last.
        let last = self.len().saturating_sub(1);
        let place = usize::try_from(member).unwrap_or(last).min(last);
        ResourceId::from(self.resources.get(place).unwrap_or_default())
    }
}

impl WatchDraft {
    fn add(&mut self, member: WatchMember, point: WatchPoint) {
        let list = match point {
            WatchPoint::Entry(path) => {
                if let Some((directory, name)) = split(&path) {
                    self.directory(directory);
                    let entries = self.directories.entry(directory.to_owned()).or_default();
                    entries.insert((name.to_owned(), member));
                }
                return;
            }
            WatchPoint::All(path) => &mut self.directory(path.trim_end_matches('/')).any,
            WatchPoint::Unit(unit) => self.plan.units.entry(unit).or_default(),
            WatchPoint::Parameter(path) => self.plan.parameters.entry(path).or_default(),
            WatchPoint::Mounts => &mut self.plan.mounts,
            WatchPoint::Name => &mut self.plan.name,
        };
        if list.last() != Some(&member) {
            list.push(member);
        }
    }

    /// A directory, with all those above it. `path` has no slash at its end; the root's is empty.
    fn directory(&mut self, path: &str) -> &mut WatchedDirectory {
        let directories = &mut self.plan.directories;
        let mut above = path;
        while let Some((next, _)) = above.rsplit_once('/') {
            if directories.contains_key(next) {
                break;
            }
            directories.insert(next.to_owned(), WatchedDirectory::default());
            above = next;
        }
        directories.entry(path.to_owned()).or_default()
    }

    fn finish(mut self) -> WatchPlan {
        self.plan.resources = self.resources.iter().map(ResourceId::as_str).collect();
        for (path, entries) in &self.directories {
            let directory = self.plan.directories.entry(path.clone()).or_default();
            directory.entries = entries.iter().map(|(name, _)| name.as_str()).collect();
            directory.members = entries.iter().map(|(_, member)| *member).collect();
        }
        self.plan
    }
}

/// The directory of a path and the name in it; the root has neither.
fn split(path: &str) -> Option<(&str, &str)> {
    let (directory, name) = path.trim_end_matches('/').rsplit_once('/')?;
    (!name.is_empty()).then_some((directory, name))
}

/// What to watch for a resource: nothing where it is not wanted here, or cannot be bound.
fn points(resource: &BoundResource, layout: &HostLayout<'_>) -> Vec<WatchPoint> {
    let (Ok(spec), false) = (&resource.spec, matches!(resource.when, When::Never(_))) else {
        return Vec::new();
    };
    let point = |path: ResourcePath<'_>| match path.role {
        PathRole::Written { .. } | PathRole::Directory(_) | PathRole::Switched | PathRole::Watched => {
            Some(WatchPoint::Entry(path.path.into_owned()))
        }
        PathRole::Contents => Some(WatchPoint::All(path.path.into_owned())),
        // A command has an effect, and nothing that could be watched.
        PathRole::Probed => None,
    };
    let mut points: Vec<WatchPoint> = spec.paths(layout.home).filter_map(point).collect();
    let members = |directory: &str| {
        let path = directory.trim_end_matches('/').to_owned();
        let names = (layout.unpacked)(directory).into_iter().take(MAX_UNPACKED);
        names.map(move |name| WatchPoint::Entry(format!("{path}/{name}")))
    };
    match spec {
        Spec::Archive(spec) => points.extend(members(&spec.path)),
        Spec::Image(spec) => points.extend(members(&spec.tree.path)),
        Spec::Unit(spec) => {
            points.push(WatchPoint::Unit(spec.unit.clone()));
            // systemd tells of no link that is made or removed without it.
            let links = layout.link_folders.iter().filter(|_| spec.enabled.is_some());
            points.extend(links.map(|folder| WatchPoint::Entry(format!("{folder}/{}", spec.unit))));
        }
        Spec::Sysctl(spec) => {
            let parameter = catalog::types::sysctl_path(&spec.key).ok().filter(|_| spec.runtime);
            points.extend(parameter.map(|path| WatchPoint::Parameter(format!("{PARAMETERS}/{path}"))));
        }
        Spec::Mount(_) => points.push(WatchPoint::Mounts),
        Spec::Hostname(_) => points.push(WatchPoint::Name),
        _ => {}
    }
    points
}
