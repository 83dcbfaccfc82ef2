//! What one test has: its folder, its network, its hosts.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::host::BootedHost;
use super::image::{CACHE, Image};
use super::ledger::{self, LedgerRow};
use super::network::TestNetwork;
use super::sweep;
use super::unbootable::Unbootable;

/// A network for a control plane and hosts; everything on it is removed with the last host.
#[derive(Clone)]
pub struct Testbed {
    inner: Arc<TestbedState>,
}

struct TestbedState {
    id: String,
    image: Image,
    network: TestNetwork,
    hosts: AtomicU32,
    /// Held as long as the test runs: another test removes what has no owner.
    _lock: File,
    _row: LedgerRow,
}

impl Drop for TestbedState {
    fn drop(&mut self) {
        sweep::remove(&self.id);
    }
}

/// Prints why the calling test is skipped, and writes it into the ledger.
pub fn skip(why: &str) {
    ledger::skipped(why);
}

impl Testbed {
    /// A testbed; none where this machine cannot boot hosts, and the reason is printed.
    ///
    /// # Panics
    /// In CI, when what is lacking could have been installed ([`Unbootable::fails`]).
    pub fn open() -> Option<Testbed> {
        let _ = fs::create_dir_all(CACHE);
        let image = match Image::shared() {
            Ok(image) => image,
            Err(why) => {
                let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
                assert!(!Unbootable::fails(&why, is_ci), "in CI hosts must boot: {why}");
                ledger::skipped(&why.to_string());
                return None;
            }
        };
        static OPENED: AtomicU32 = AtomicU32::new(0);
        sweep::sweep();
        let id = format!("{}-{}", std::process::id(), OPENED.fetch_add(1, Ordering::Relaxed));
        sweep::remove(&id);
        let folder = sweep::runs().join(&id);
        // Locked before it has its name: the sweep of another test must not find it free.
        let unnamed = sweep::runs().join(format!("{}{id}", sweep::UNNAMED));
        fs::create_dir_all(unnamed.join("packages")).unwrap();
        fs::write(unnamed.join("packages/Packages"), "").unwrap();
        let lock = File::create(unnamed.join("lock")).unwrap();
        lock.lock().unwrap();
        fs::rename(&unnamed, &folder).unwrap();
        let network = TestNetwork::make(&id).unwrap();
        let state = TestbedState {
            id,
            image,
            network,
            hosts: AtomicU32::new(0),
            _lock: lock,
            _row: LedgerRow::begin(),
        };
        Some(Testbed { inner: Arc::new(state) })
    }

    /// A host that has booted: systemd says that it runs, and no unit failed.
    #[track_caller]
    pub fn boot(&self, name: &str) -> BootedHost {
        let number = 1 + self.inner.hosts.fetch_add(1, Ordering::Relaxed);
        self.inner.network.add(number).unwrap();
        BootedHost::boot(self.clone(), name, number)
    }

    /// Several hosts, booted side by side.
    #[track_caller]
    pub fn boot_all<const N: usize>(&self, names: [&str; N]) -> [BootedHost; N] {
        std::thread::scope(|scope| {
            let booting = names.map(|name| scope.spawn(move || self.boot(name)));
            booting.map(|thread| thread.join().expect("the host boots"))
        })
    }

    /// The folder of this test, for whatever it writes; removed with the testbed.
    pub fn folder(&self) -> PathBuf {
        sweep::runs().join(&self.inner.id)
    }

    /// The folder of the packages that this test makes: `/srv/packages/test` in each host.
    pub fn packages(&self) -> PathBuf {
        self.folder().join("packages")
    }

    /// What is put before a command so that it runs on the control plane's network.
    pub fn at_control(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.inner.network.control()].map(str::to_owned).to_vec()
    }

    pub(super) fn id(&self) -> &str {
        &self.inner.id
    }

    pub(super) fn image(&self) -> &Image {
        &self.inner.image
    }

    pub(super) fn network(&self) -> &TestNetwork {
        &self.inner.network
    }
}
