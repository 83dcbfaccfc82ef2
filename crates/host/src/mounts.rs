//! Where a path leads, without a look at file systems that may not answer.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use crate::Host;

/// The kernel's table of mounts. Reading it asks no file system.
const TABLE: &str = "/proc/self/mountinfo";
/// The longest table that is read, in bytes.
const MAX_TABLE: u64 = 16 * 1024 * 1024;
/// The most links that are followed.
const MAX_LINKS: usize = 40;

impl Host {
    /// The kernel's table of mounts, as the agent sees them: paths are those of the real host, also under
    /// a root.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn mount_table(&self) -> io::Result<String> {
        let mut bytes = Vec::new();
        File::open(TABLE)?.take(MAX_TABLE).read_to_end(&mut bytes)?;
        // A user may mount at a name that is no text; the other mounts count all the same.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first of these mount points that is on the way of a path, links on the way followed; `None`
    /// when none is. Nothing at or below a mount point is looked at.
    pub fn first_mount_on_way(&self, path: &str, is_point: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
        let parts = |path: &Path| -> VecDeque<PathBuf> {
            let named =
                path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
            named.map(|part| PathBuf::from(part.as_os_str())).collect()
        };
        let (mut way, mut todo, mut links) = (PathBuf::from("/"), parts(Path::new(path)), 0);
        while let Some(part) = todo.pop_front() {
            if part.as_os_str() == ".." {
                way.pop();
                continue;
            }
            let here = way.join(&part);
            if is_point(&here) {
                return Some(here);
            }
            let below = here.strip_prefix("/").unwrap_or(&here);
            match std::fs::read_link(self.root().join(below)) {
                Ok(target) if links < MAX_LINKS && !todo.is_empty() => {
                    links += 1;
                    if target.is_absolute() {
                        way = PathBuf::from("/");
                    }
                    let mut next = parts(&target);
                    next.append(&mut todo);
                    todo = next;
                }
                // No link, or nothing: who looks will say so. The last name is not followed.
                Ok(_) | Err(_) => way = here,
            }
        }
        None
    }
}
