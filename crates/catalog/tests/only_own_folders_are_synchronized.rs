//! SYN-5, SYN-6: where files come and go by what another side says, no folder of the system
//! and no kind of Muster's own can be named.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use catalog::sync::{Unsuitable, folder, kind};
use model::object::KINDS;

#[test]
fn folders() {
    for path in [
        "/srv/manifests",
        "/etc/app/manifests",
        "/var/lib/app",
        "/data",
        "/opt/a",
        "/home/x/m",
        "/var/lib/muster2",
    ] {
        assert_eq!(folder(path), Ok(()), "{path}");
    }
    for path in [
        "",
        "/",
        "//",
        "srv",
        "./srv",
        "/srv/",
        "/srv//a",
        "/srv/./a",
        "/srv/../etc",
        "/srv/a\n",
        "/etc",
        "/usr",
        "/usr/share/a",
        "/bin",
        "/lib/x",
        "/proc/1",
        "/sys/x",
        "/dev/shm/a",
        "/run/a",
        "/var/run/a",
        "/tmp/a",
        "/var",
        "/var/lib",
        "/var/log",
        "/home",
        "/root",
        "/opt",
        "/srv",
        "/boot/a",
        "/var/lib/muster",
        "/var/lib/muster/state",
    ] {
        assert!(folder(path).is_err(), "{path:?} is taken");
    }
    assert!(folder(&format!("/srv/{}", "a".repeat(300))).is_err());
}

#[test]
fn kinds() {
    for name in ["Application", "AppProject", "a", "V1Thing"] {
        assert_eq!(kind(name), Ok(()), "{name}");
    }
    for name in ["", "App/x", "App:status", "App Project", "1App", "..", "App.v1", "App-x", "Äpp"] {
        assert_eq!(kind(name), Err(Unsuitable::NotAKind), "{name}");
    }
    for (name, _) in KINDS {
        assert_eq!(kind(name), Err(Unsuitable::Reserved), "{name}");
        assert_eq!(kind(&name.to_lowercase()), Err(Unsuitable::Reserved), "{name} in lower case");
    }
    for (foreign, known) in model::object::FOREIGN_KINDS {
        assert_eq!(kind(foreign), Err(Unsuitable::Foreign(known)), "{foreign}");
        assert_eq!(kind(known), Ok(()), "{known}");
    }
    assert!(kind(&"A".repeat(64)).is_err());
}
