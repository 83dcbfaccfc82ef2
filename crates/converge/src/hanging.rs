//! File systems that may not answer: which, and how many jobs may wait for them (CNV-12).
//!
//! A thread that looks at a file of such a file system may never come back, and nothing ends it. So a job
//! there has a thread of its own and a limit of time; when that is over the run goes on without it. The
//! job is *abandoned*: its thread may wait for ever, and changes nothing any more should it come back.
//!
//! Invariants: while an abandoned job waits for a file system no other job looks at it, in later runs
//! too; at most [`MAX_ABANDONED`] wait in all.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use model::Timestamp;
use model::sort::SortCompactly;

use crate::kinds::mount::KernelMount;

/// The most jobs that wait for file systems that do not answer.
pub const MAX_ABANDONED: usize = 16;
/// What is mounted below these is the kernel's own.
const KERNEL: [&str; 3] = ["/proc/", "/sys/", "/dev/"];

/// The mounts below a host's root that may not answer, by their points on the host.
pub fn that_may_hang(mounts: Vec<KernelMount>, root: &str) -> Vec<KernelMount> {
    let root = root.trim_end_matches('/');
    let below = |mount: KernelMount| {
        let path = mount.path.strip_prefix(root)?.to_owned();
        let own = path.starts_with('/') && KERNEL.iter().all(|kernel| !path.starts_with(kernel));
        (own && mount.may_hang()).then_some(KernelMount { path, ..mount })
    };
    mounts.into_iter().filter_map(below).collect()
}

/// A mount in words.
pub fn described(mount: &KernelMount) -> String {
    format!("the file system at {} ({} of {})", mount.path, mount.fstype, mount.source)
}

/// Why a job ended without the file system's answer.
pub fn no_answer(mount: &KernelMount, patience: Duration) -> String {
    format!("{} did not answer within {} s; the run goes on without it", described(mount), patience.as_secs())
}

/// Names a job at a file system that may not answer, as long as its thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HangingJobId(u64);

#[derive(Clone, Debug)]
struct HangingJobState {
    point: String,
    /// When the run went on without it.
    abandoned: Option<Timestamp>,
}

/// The jobs at file systems that may not answer, of this run and of earlier ones.
#[derive(Clone, Debug, Default)]
pub struct HangingJobs {
    jobs: BTreeMap<HangingJobId, HangingJobState>,
    numbered: u64,
}

/// Why a job is not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HangRefusal {
    /// An earlier one waits for the same file system.
    Silent {
        /// Which, in words.
        mount: String,
        /// Since when the run goes on without an answer.
        since: Timestamp,
    },
    /// As many wait as may.
    Full {
        /// The job's file system, in words.
        mount: String,
        /// The mount points that do not answer.
        points: Vec<String>,
    },
}

impl fmt::Display for HangRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HangRefusal::Silent { mount, since } => {
                write!(f, "{mount} did not answer {since}, and is not looked at again before it does")
            }
            HangRefusal::Full { mount, points } => write!(
                f,
                "{mount} may not answer, and is not looked at: {MAX_ABANDONED} looks wait already, at {}",
                points.join(", ")
            ),
        }
    }
}

impl HangingJobs {
    /// A job begins.
    ///
    /// # Errors
    /// When it must not.
    pub fn begin(&mut self, mount: &KernelMount) -> Result<HangingJobId, HangRefusal> {
        let abandoned = || self.jobs.values().filter_map(|job| Some((&job.point, job.abandoned?)));
        if let Some((_, since)) = abandoned().find(|(point, _)| **point == mount.path) {
            return Err(HangRefusal::Silent { mount: described(mount), since });
        }
        if abandoned().count() >= MAX_ABANDONED {
            let mut points: Vec<String> = abandoned().map(|(point, _)| point.clone()).collect();
            points.sort_compactly();
            points.dedup();
            return Err(HangRefusal::Full { mount: described(mount), points });
        }
        self.numbered += 1;
        let id = HangingJobId(self.numbered);
        self.jobs.insert(id, HangingJobState { point: mount.path.clone(), abandoned: None });
        Ok(id)
    }

    /// The run goes on without a job. Of one that has ended nothing is kept.
    pub fn abandon(&mut self, id: HangingJobId, at: Timestamp) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.abandoned = Some(at);
        }
    }

    /// The run went on without it: it must change nothing any more.
    pub fn is_abandoned(&self, id: HangingJobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.abandoned.is_some())
    }

    /// A job's thread ended.
    pub fn end(&mut self, id: HangingJobId) {
        self.jobs.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(path: &str, fstype: &str) -> KernelMount {
        let (path, fstype) = (path.to_owned(), fstype.to_owned());
        KernelMount { path, fstype, source: "server:/x".to_owned(), options: Vec::new() }
    }

    #[test]
    fn only_what_may_not_answer_counts() {
        let all = vec![
            mount("/", "ext4"),
            mount("/srv", "nfs4"),
            mount("/home", "fuse.sshfs"),
            mount("/proc/sys/fs/binfmt_misc", "autofs"),
            mount("/sys/fs/cluster", "gfs2"),
            mount("/dev/remote", "fuse"),
            mount("/development", "nfs"),
            mount("/data", "xfs"),
        ];
        let points = |root| -> Vec<String> {
            that_may_hang(all.clone(), root).into_iter().map(|mount| mount.path).collect()
        };
        assert_eq!(points("/"), ["/srv", "/home", "/development"]);
        let below = vec![mount("/lab/root/mnt", "nfs"), mount("/lab/rooted", "nfs"), mount("/mnt", "nfs")];
        let below = that_may_hang(below, "/lab/root");
        assert_eq!(below.len(), 1);
        assert_eq!(below[0].path, "/mnt", "by its path on the host");
    }

    #[test]
    fn while_one_waits_no_other_looks() {
        let mut jobs = HangingJobs::default();
        let (srv, home) = (mount("/srv", "nfs4"), mount("/home", "nfs4"));
        let first = jobs.begin(&srv).unwrap();
        let second = jobs.begin(&srv).unwrap();
        jobs.abandon(first, Timestamp(0));
        let refused = jobs.begin(&srv).unwrap_err().to_string();
        assert_eq!(
            refused,
            "the file system at /srv (nfs4 of server:/x) did not answer 1970-01-01T00:00:00Z, and is not looked \
             at again before it does"
        );
        assert!(jobs.begin(&home).is_ok(), "another file system is another matter");
        assert!(jobs.is_abandoned(first) && !jobs.is_abandoned(second));
        jobs.end(first);
        jobs.abandon(first, Timestamp(1));
        assert!(jobs.begin(&srv).is_ok(), "it answered");
    }

    #[test]
    fn those_that_wait_are_bounded() {
        let mut jobs = HangingJobs::default();
        for number in 0..MAX_ABANDONED {
            let id = jobs.begin(&mount(&format!("/m{number:02}"), "nfs")).unwrap();
            jobs.abandon(id, Timestamp(0));
        }
        let refused = jobs.begin(&mount("/one", "nfs")).unwrap_err();
        assert!(refused.to_string().contains("16 looks wait already, at /m00, /m01, "), "{refused}");

        // Those whose answer is still waited for count for nothing, and a place is named once.
        let mut jobs = HangingJobs::default();
        let srv = mount("/srv", "nfs");
        let begun: Vec<HangingJobId> = (0..=MAX_ABANDONED).map(|_| jobs.begin(&srv).unwrap()).collect();
        begun.into_iter().for_each(|id| jobs.abandon(id, Timestamp(0)));
        let refused = jobs.begin(&mount("/one", "nfs")).unwrap_err();
        assert!(refused.to_string().ends_with("wait already, at /srv"), "{refused}");
    }
}
