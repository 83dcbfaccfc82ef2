//! Directories of the system, and of Muster itself: no resource may remove or empty them.

use catalog::state_directories::{AGENT_STATE, SERVER_STATE};

/// Directories without which a host does not work; sorted.
const SYSTEM_DIRECTORIES: &[&str] = &[
    "/bin",
    "/boot",
    "/boot/efi",
    "/boot/grub",
    "/dev",
    "/etc",
    "/etc/apt",
    "/etc/default",
    "/etc/pam.d",
    "/etc/ssh",
    "/etc/ssl",
    "/etc/sudoers.d",
    "/etc/systemd",
    "/etc/systemd/system",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/lost+found",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
    "/usr/lib/systemd",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/libx32",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/etc",
    "/usr/local/lib",
    "/usr/local/sbin",
    "/usr/local/share",
    "/usr/sbin",
    "/usr/share",
    "/usr/src",
    "/var",
    "/var/backups",
    "/var/cache",
    "/var/lib",
    "/var/lib/apt",
    "/var/lib/dpkg",
    AGENT_STATE,
    SERVER_STATE,
    "/var/lib/systemd",
    "/var/local",
    "/var/lock",
    "/var/log",
    "/var/mail",
    "/var/run",
    "/var/spool",
    "/var/tmp",
];

/// Whether a path is `/`, a directory that every host needs, or one that holds Muster's own state.
pub fn is_system_directory(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts.is_empty() || SYSTEM_DIRECTORIES.contains(&format!("/{}", parts.join("/")).as_str())
}

/// Refuses to remove or empty a directory of the system.
///
/// # Errors
/// In words, when the path is one.
pub fn refuse_system_directory(path: &str) -> Result<(), String> {
    match is_system_directory(path) {
        true => Err(format!("{path} is a directory of the system; it is never replaced, removed or emptied")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_system_are_known_however_they_are_written() {
        for path in [
            "/",
            "/etc",
            "/home/",
            "//usr",
            "/srv",
            "/usr//lib/",
            "/./var/lib",
            "/var/lib/dpkg",
            "/var/lib/muster",
            "/var/lib/muster-server/",
        ] {
            assert!(is_system_directory(path), "{path}");
        }
        for path in [
            "/data",
            "/home/jo",
            "/srv/www",
            "/opt/tool",
            "/etc/nginx",
            "/var/lib/app",
            "/usr/local/bin/tool",
        ] {
            assert!(!is_system_directory(path), "{path}");
        }
        assert!(SYSTEM_DIRECTORIES.is_sorted());
    }
}
