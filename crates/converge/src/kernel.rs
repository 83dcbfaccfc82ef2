//! Which kernel a reboot would bring: whether one is required though no package says so (CNV-12).

use std::cmp::Ordering;
use std::ops::RangeInclusive;

/// A kernel that is installed: it has an image and modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledKernel {
    /// Its release, as `uname -r` would name it.
    pub release: String,
    /// When its image was put there, in seconds since 1970.
    pub installed: i64,
}

/// The newest kernel that was installed since the boot and is newer than the running one, or any of them
/// where the running one is installed no more. `since_boot` is from the boot until now, in seconds since
/// 1970: what was there at the boot was passed over by the boot loader then, and would be again.
pub fn kernel_after_reboot<'k>(
    running: &str,
    since_boot: RangeInclusive<i64>,
    installed: &'k [InstalledKernel],
) -> Option<&'k str> {
    let still_there = installed.iter().any(|kernel| kernel.release == running);
    installed
        .iter()
        .filter(|kernel| since_boot.contains(&kernel.installed) && kernel.release != running)
        .map(|kernel| kernel.release.as_str())
        .filter(|release| !still_there || by_version(release, running) == Ordering::Greater)
        .max_by(|one, other| by_version(one, other))
}

/// Numbers in them count as numbers, as boot loaders sort kernels.
fn by_version(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    while !one.is_empty() && !other.is_empty() {
        let ((a, a_rest), (b, b_rest)) = (run(one), run(other));
        let both = (a.parse::<u64>(), b.parse::<u64>());
        let order = if let (Ok(a), Ok(b)) = both { a.cmp(&b) } else { a.cmp(b) };
        if order != Ordering::Equal {
            return order;
        }
        (one, other) = (a_rest, b_rest);
    }
    one.len().cmp(&other.len())
}

/// What it begins with: digits, or what is none.
fn run(text: &str) -> (&str, &str) {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    text.split_at(text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: i64 = 1000;
    const NOW: i64 = 5000;

    #[test]
    fn a_newer_kernel_that_came_since_the_boot_asks_for_a_reboot() {
        let deb = |abi: u32| format!("6.1.0-{abi}-amd64");
        for (what, running, installed, wanted) in [
            ("nothing but the running one", deb(9), vec![(deb(9), 10)], None),
            ("a newer one", deb(9), vec![(deb(9), 10), (deb(10), 2000)], Some(deb(10))),
            ("an older one", deb(10), vec![(deb(10), 10), (deb(9), 2000)], None),
            ("a newer one that the boot passed over", deb(9), vec![(deb(9), 10), (deb(10), 900)], None),
            ("one of a clock that was ahead", deb(9), vec![(deb(9), 10), (deb(10), NOW + 1)], None),
            ("the running one, put there again", deb(9), vec![(deb(9), 2000)], None),
            ("several", deb(9), vec![(deb(11), 2000), (deb(9), 10), (deb(10), 3000)], Some(deb(11))),
            ("the running one is gone", deb(9), vec![(deb(8), 2000)], Some(deb(8))),
            ("it is gone, and nothing came", deb(9), vec![(deb(8), 10)], None),
            ("none at all", deb(9), vec![], None),
            (
                "another minor version",
                "5.14.0-427.13.1.el9_4.x86_64".into(),
                vec![("5.14.0-427.13.1.el9_4.x86_64".into(), 10), ("5.14.0-503.el9_5.x86_64".into(), 2000)],
                Some("5.14.0-503.el9_5.x86_64".into()),
            ),
            (
                "a point release",
                "6.12.9-arch1-1".into(),
                vec![("6.12.9-arch1-1".into(), 10), ("6.12.10-arch1-1".into(), 2000)],
                Some("6.12.10-arch1-1".into()),
            ),
        ] {
            let kernel = |(release, installed)| InstalledKernel { release, installed };
            let installed: Vec<InstalledKernel> = installed.into_iter().map(kernel).collect();
            assert_eq!(kernel_after_reboot(&running, BOOT..=NOW, &installed), wanted.as_deref(), "{what}");
        }
    }
}
