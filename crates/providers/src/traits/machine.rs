//! `kernel`, `load`, `virtualization` and `cloud`: what the machine is and how busy it is.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use converge::kernel::{InstalledKernel, kernel_after_reboot};
use host::{Host, Kernel};
use lang::Value;
use model::PathState;
use model::collect::CollectInserting;

use super::TraitGroup;
use super::observe::{etc, group, int, required, system, text};

/// What firmware calls the machines of clouds: the beginning of its vendor or product, and the cloud.
const CLOUDS: &[(&str, &str)] = &[
    ("Amazon EC2", "aws"),
    ("Google", "gcp"),
    ("Alibaba Cloud", "alibaba"),
    ("DigitalOcean", "digitalocean"),
    ("Hetzner", "hetzner"),
    ("OpenStack", "openstack"),
    ("OracleCloud", "oracle"),
    ("Scaleway", "scaleway"),
    ("UpCloud", "upcloud"),
    ("Vultr", "vultr"),
    ("Linode", "linode"),
    ("Akamai", "linode"),
    ("Exoscale", "exoscale"),
];
/// What firmware calls the machines of hypervisors.
const HYPERVISORS: &[(&str, &str)] = &[
    ("QEMU", "qemu"),
    ("KVM", "kvm"),
    ("Bochs", "qemu"),
    ("VMware", "vmware"),
    ("innotek GmbH", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Microsoft Corporation", "hyperv"),
];
/// The asset tag of every machine of Azure; elsewhere its firmware is Hyper-V's.
const AZURE_TAG: &str = "7783-7084-3265-9085-8269-3286-77";
/// Made by package managers when the running system is not the installed one.
const REBOOT_REQUIRED: &[&str] = &["/run/reboot-required", "/var/run/reboot-required"];
/// Beside it: the packages that asked for it, one in a line, some of them again and again.
const REBOOT_PACKAGES: &str = "/run/reboot-required.pkgs";
/// The most of them that are a trait.
const MAX_REBOOT_PACKAGES: usize = 50;
/// A directory of modules for each kernel that is installed, named by its release.
const MODULES: &str = "/lib/modules";
/// The most kernels that are looked at.
const MAX_KERNELS: usize = 64;
/// The longest line of the kernel's parameters, in bytes, that is a trait.
const MAX_CMDLINE: usize = 2048;

/// `kernel`: which one runs, how it was started, whether a reboot is due.
pub(super) fn kernel(host: &Host) -> Result<TraitGroup, String> {
    let release = Kernel::observe().release;
    let mut cmdline = system(host, "/proc/cmdline")?.unwrap_or_default().trim().to_owned();
    cmdline.truncate(cmdline.floor_char_boundary(MAX_CMDLINE));
    let marked = REBOOT_REQUIRED.iter().any(|path| host.exists(path).unwrap_or(false));
    let asking = if marked { etc(host, REBOOT_PACKAGES)?.unwrap_or_default() } else { String::new() };
    let asking: BTreeSet<&str> =
        asking.lines().map(str::trim).filter(|name| !name.is_empty()).collect_inserting();
    let asking = asking.into_iter().take(MAX_REBOOT_PACKAGES).map(text).collect();
    // A container runs on its host's kernel, and a root directory on that of the machine.
    let own = !host.rooted() && container(host)?.is_none();
    let since = if own { booted(host)? } else { None };
    let newer = since.and_then(|booted| {
        let kernels = installed_kernels(host);
        kernel_after_reboot(&release, booted..=now_secs(), &kernels).map(str::to_owned)
    });
    Ok(group([
        ("release", text(&release)),
        ("cmdline", Value::Str(cmdline)),
        ("reboot_required", Value::Bool(marked || newer.is_some())),
        ("reboot_packages", Value::List(asking)),
        ("newer", Value::Str(newer.unwrap_or_default())),
    ]))
}

/// When the machine booted, by its clock as it is now: seconds since 1970.
fn booted(host: &Host) -> Result<Option<i64>, String> {
    let stat = system(host, "/proc/stat")?.unwrap_or_default();
    Ok(stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok()))
}

fn now_secs() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// The kernels that have an image and a directory of modules. What cannot be looked at is not there.
fn installed_kernels(host: &Host) -> Vec<InstalledKernel> {
    let releases = host.names(MODULES, MAX_KERNELS).ok().flatten().unwrap_or_default();
    let kernel = |release: String| {
        let images = [format!("/boot/vmlinuz-{release}"), format!("{MODULES}/{release}/vmlinuz")];
        let stamp = images.iter().find_map(|image| host.stamp(image).ok().flatten())?;
        Some(InstalledKernel { release, installed: stamp.changed().0 })
    };
    releases.into_iter().filter_map(kernel).collect()
}

/// `load`: how many tasks ran or waited, a hundred for each.
pub(super) fn load(host: &Host) -> Result<TraitGroup, String> {
    let line = required(host, "/proc/loadavg")?;
    let mut averages = line.split_ascii_whitespace().map(hundredths);
    let mut next = || averages.next().flatten().ok_or("/proc/loadavg has not three averages");
    Ok(group([("one", int(next()?)), ("five", int(next()?)), ("fifteen", int(next()?))]))
}

/// `virtualization`: what the machine runs on or in.
pub(super) fn virtualization(host: &Host) -> Result<TraitGroup, String> {
    let container = container(host)?;
    let kind = match &container {
        Some(container) => container.clone(),
        None => hypervisor(host)?.unwrap_or_else(|| "none".to_owned()),
    };
    Ok(group([("kind", text(&kind)), ("container", Value::Bool(container.is_some()))]))
}

/// `cloud`: whose machine it is, by what firmware says; nothing is asked over the network.
pub(super) fn cloud(host: &Host) -> Result<TraitGroup, String> {
    let azure = dmi(host, "chassis_asset_tag")? == AZURE_TAG;
    let provider = if azure { Some("azure") } else { firmware(host, CLOUDS)? };
    let instance = system(host, "/var/lib/cloud/data/instance-id")?.unwrap_or_default();
    Ok(group([("provider", text(provider.unwrap_or_default())), ("instance", text(instance.trim()))]))
}

/// `0.52` is 52.
fn hundredths(average: &str) -> Option<u64> {
    let (whole, part) = average.split_once('.')?;
    Some(whole.parse::<u64>().ok()? * 100 + format!("{part:0<2}").get(..2)?.parse::<u64>().ok()?)
}

/// The container manager that said so to the first process, or left its mark.
fn container(host: &Host) -> Result<Option<String>, String> {
    if let Some(name) = system(host, "/run/systemd/container")?.filter(|name| !name.trim().is_empty()) {
        return Ok(Some(name.trim().to_owned()));
    }
    let marks = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    for (path, name) in marks {
        if matches!(host.look(path), Ok(PathState::File { .. })) {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

fn hypervisor(host: &Host) -> Result<Option<String>, String> {
    if let Some(known) = firmware(host, HYPERVISORS)? {
        return Ok(Some(known.to_owned()));
    }
    let info = system(host, "/proc/cpuinfo")?.unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let virtual_cpu = flags.split_ascii_whitespace().any(|flag| flag == "hypervisor");
    Ok(virtual_cpu.then(|| "unknown".to_owned()))
}

fn firmware(host: &Host, known: &[(&str, &'static str)]) -> Result<Option<&'static str>, String> {
    for field in ["sys_vendor", "product_name", "product_version", "bios_vendor"] {
        let says = dmi(host, field)?;
        if let Some((_, name)) = known.iter().find(|(beginning, _)| says.starts_with(beginning)) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn dmi(host: &Host, field: &str) -> Result<String, String> {
    let said = system(host, &format!("/sys/class/dmi/id/{field}"))?;
    Ok(said.unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use host::HostOptions;

    use super::*;

    /// CNV-12.
    #[test]
    fn a_kernel_has_an_image_and_modules() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for release in ["6.1.0-9-amd64", "6.1.0-10-amd64", "6.2.0-removed", "6.12.9-arch1-1"] {
            fs::create_dir_all(root.join("usr/lib/modules").join(release)).unwrap();
        }
        fs::create_dir_all(root.join("boot")).unwrap();
        std::os::unix::fs::symlink("usr/lib", root.join("lib")).unwrap();
        for image in [
            "boot/vmlinuz-6.1.0-9-amd64",
            "boot/vmlinuz-6.1.0-10-amd64",
            "boot/vmlinuz-7.0.0-no-modules",
            "usr/lib/modules/6.12.9-arch1-1/vmlinuz",
        ] {
            fs::write(root.join(image), "image").unwrap();
        }
        let host = Host::open(root, HostOptions::default()).unwrap();
        let kernels = installed_kernels(&host);
        let releases: Vec<&str> = kernels.iter().map(|kernel| &*kernel.release).collect();
        assert_eq!(releases, ["6.1.0-10-amd64", "6.1.0-9-amd64", "6.12.9-arch1-1"]);
        let now = now_secs();
        assert!(kernels.iter().all(|kernel| (now - 60..=now).contains(&kernel.installed)), "{kernels:?}");
        assert!(booted(&host).unwrap().is_some_and(|booted| booted > 0 && booted <= now));
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(installed_kernels(&Host::open(empty.path(), HostOptions::default()).unwrap()), []);
    }

    #[test]
    fn averages_are_hundredths() {
        assert_eq!(hundredths("0.52"), Some(52));
        assert_eq!(hundredths("12.5"), Some(1250));
        assert_eq!(hundredths("3"), None);
        assert_eq!(hundredths("x.10"), None);
    }
}
