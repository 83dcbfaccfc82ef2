//! `sysctl`: lines of the files that the system reads at boot, and which of them counts.

use std::collections::BTreeMap;

use catalog::types::{Ensure, StateSpec, SysctlSpec, sysctl_path, sysctl_words};
use model::Fields;

/// The folders of such files. Of two files with one name, that of the earlier folder counts.
pub const FOLDERS: [&str; 5] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];

/// What the last line of a file sets the parameter to.
pub fn value_in(spec: &SysctlSpec, file: &str) -> Option<String> {
    let path = sysctl_path(&spec.key).ok()?;
    let mut last_first = file.lines().rev().filter_map(Setting::read);
    last_first.find(|setting| setting.path == path).map(|setting| sysctl_words(setting.value))
}

/// The files that are read after the resource's own, in their order. A folder's names are given in
/// the order of [`FOLDERS`].
pub fn read_later(spec: &SysctlSpec, names: &[Vec<String>]) -> Vec<String> {
    let own = spec.path.rsplit('/').next().unwrap_or_default();
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    for (folder, names) in FOLDERS.iter().zip(names) {
        for name in names.iter().filter(|name| name.ends_with(".conf") && name.as_str() > own) {
            files.entry(name).or_insert_with(|| format!("{folder}/{name}"));
        }
    }
    files.into_values().collect()
}

/// What the fields say of a file that is read later, and of what it sets the parameter to.
pub fn overridden(spec: &SysctlSpec, own: Option<&str>, later: &[(String, String)]) -> String {
    let other = later.iter().rev().find_map(|(path, text)| Some((path, value_in(spec, text)?)));
    let wanted = if spec.value.is_empty() { own.unwrap_or_default() } else { &spec.value };
    match other {
        Some((path, value)) if value != wanted => format!("{path}, which sets {value}"),
        Some(_) | None => String::new(),
    }
}

/// The state that the parameter should have. One that is absent has no line, and its value in the
/// kernel stays.
pub fn desired(spec: &SysctlSpec) -> Fields {
    match spec.ensure {
        Ensure::Present => spec.declared(),
        Ensure::Absent => Fields::from([("value".to_owned(), String::new())]),
    }
}

/// The value that the kernel gets back when the parameter is removed: the one of before, where the kernel
/// has what the line says. Another value is not Muster's.
pub fn taken_back<'a>(now: Option<&Fields>, before: Option<&'a Fields>) -> Option<&'a str> {
    let (is, line) = (now?.get("runtime")?, now?.get("value")?);
    before?.get("runtime").filter(|was| is == line && *was != is).map(String::as_str)
}

/// The file in which the parameter has this value, or no line where it has none. The first line of it
/// is edited in place, every other one goes.
pub fn edit(spec: &SysctlSpec, file: &str, value: Option<&str>) -> String {
    let path = sysctl_path(&spec.key).unwrap_or_default();
    let mut wanted = value.filter(|value| !value.is_empty()).map(|value| format!("{} = {value}\n", spec.key));
    let mut out = String::with_capacity(file.len() + 64);
    for line in file.split_inclusive('\n') {
        match Setting::read(line) {
            Some(setting) if setting.path == path => out.push_str(&wanted.take().unwrap_or_default()),
            Some(_) | None => out.push_str(line),
        }
    }
    if let Some(new) = wanted {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&new);
    }
    out
}

/// A line that sets a parameter.
struct Setting<'a> {
    path: String,
    value: &'a str,
}

impl<'a> Setting<'a> {
    fn read(line: &'a str) -> Option<Setting<'a>> {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            return None;
        }
        let (key, value) = line.split_once('=')?;
        // A failure to set it does not count there.
        let key = key.trim().trim_start_matches('-').trim();
        Some(Setting { path: sysctl_path(key).ok()?, value: value.trim() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(key: &str, value: &str) -> SysctlSpec {
        SysctlSpec {
            key: key.to_owned(),
            ensure: Ensure::Present,
            value: value.to_owned(),
            runtime: true,
            path: "/etc/sysctl.d/60-muster.conf".to_owned(),
        }
    }

    #[test]
    fn dots_and_slashes_change_places_after_a_dot() {
        assert_eq!(
            sysctl_path("net.ipv4.conf.eth0/1.forwarding").unwrap(),
            "net/ipv4/conf/eth0.1/forwarding"
        );
        assert_eq!(
            sysctl_path("net/ipv4/conf/eth0.1/forwarding").unwrap(),
            "net/ipv4/conf/eth0.1/forwarding"
        );
        assert_eq!(sysctl_path("vm.swappiness").unwrap(), "vm/swappiness");
        for wrong in [
            "",
            "vm",
            "vm..x",
            "net.ipv4.conf.*.x",
            "../etc/passwd",
            "vm/../../x",
            "-vm.x",
            "vm.x y",
            "/vm/x",
        ] {
            assert!(sysctl_path(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_is_edited_in_place_and_the_rest_is_kept() {
        let spec = spec("net.ipv4.ip_local_port_range", "1024 65000");
        let file = "# mine\nvm.swappiness=10\n-net/ipv4/ip_local_port_range =  1\t2\nnet.ipv4.ip_local_port_range=3 4";
        assert_eq!(value_in(&spec, file).as_deref(), Some("3 4"));
        let once = edit(&spec, file, Some("1024 65000"));
        assert_eq!(once, "# mine\nvm.swappiness=10\nnet.ipv4.ip_local_port_range = 1024 65000\n");
        assert_eq!(edit(&spec, &once, Some("1024 65000")), once);
        assert_eq!(edit(&spec, &once, None), "# mine\nvm.swappiness=10\n");
        assert_eq!(edit(&spec, "a.b = 1", Some("5")), "a.b = 1\nnet.ipv4.ip_local_port_range = 5\n");
    }

    #[test]
    fn the_kernel_gets_back_what_it_had_where_nobody_else_set_it() {
        let fields = |pairs: &[(&str, &str)]| -> Fields {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let now = fields(&[("value", "10"), ("runtime", "10")]);
        let before = fields(&[("value", ""), ("runtime", "60")]);
        assert_eq!(taken_back(Some(&now), Some(&before)), Some("60"));
        assert_eq!(taken_back(Some(&now), Some(&now)), None, "it is so");
        assert_eq!(taken_back(Some(&now), Some(&fields(&[("value", "")]))), None, "it was not changed");
        assert_eq!(taken_back(Some(&now), None), None);
        let others = fields(&[("value", "10"), ("runtime", "30")]);
        assert_eq!(taken_back(Some(&others), Some(&before)), None);
        assert_eq!(taken_back(Some(&fields(&[("value", "10")])), Some(&before)), None, "it has none now");
    }

    #[test]
    fn the_file_that_is_read_last_and_differs_is_named() {
        let spec = spec("vm.swappiness", "10");
        let names = [
            vec!["10-early.conf".to_owned(), "60-muster.conf".to_owned(), "99-sysctl.conf".to_owned()],
            Vec::new(),
            Vec::new(),
            vec!["99-sysctl.conf".to_owned(), "90-other.conf".to_owned(), "README".to_owned()],
        ];
        let later = read_later(&spec, &names);
        assert_eq!(later, ["/usr/lib/sysctl.d/90-other.conf", "/etc/sysctl.d/99-sysctl.conf"]);
        let texts = |first: &str, second: &str| {
            later.iter().cloned().zip([first.to_owned(), second.to_owned()]).collect::<Vec<_>>()
        };
        assert_eq!(overridden(&spec, None, &texts("", "#vm.swappiness=3")), "");
        assert_eq!(overridden(&spec, None, &texts("vm.swappiness=3", "vm.swappiness=10")), "");
        let said = overridden(&spec, None, &texts("vm.swappiness=3", ""));
        assert_eq!(said, "/usr/lib/sysctl.d/90-other.conf, which sets 3");
    }
}
