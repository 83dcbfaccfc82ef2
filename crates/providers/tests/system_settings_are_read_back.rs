//! EXE-1: sudo rules, kernel parameters, mounts and the host's name are checked before they count, and
//! what the host refuses is not left behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use catalog::module::OnRemove;
use catalog::schema::{BindContext, bind};
use catalog::types::Spec;
use common::{Lab, lab};
use converge::run::Undo;
use converge::{LedgerEntry, Prior};
use model::Timestamp;
use serde_json::json;

fn bound(kind: &str, name: &str, json: serde_json::Value) -> Spec {
    let context = BindContext { files: &BTreeMap::new(), rendered: None };
    bind(kind, name, &serde_json::from_value(json).unwrap(), &context).unwrap()
}

/// Applies it, and sees that it is right then; gives what was there before.
fn made(lab: &Lab, spec: &Spec) -> Prior {
    let checked = lab.check(spec);
    assert!(checked.edit.is_some(), "nothing differs");
    assert!(lab.kinds.apply("name", spec, &checked, common::LONG).unwrap().changed);
    assert_eq!(lab.check(spec).edit, None);
    checked.prior
}

fn undo(lab: &Lab, kind: &str, name: &str, prior: Prior) {
    let attributes = BTreeMap::new();
    let undo =
        Undo { path: name.to_owned(), prior, kept: false, kind: kind.to_owned(), attributes, made: vec![] };
    lab.kinds.undo(&undo).unwrap();
}

/// Where sudo rules are checked; `None`, with the reason, where they cannot be.
fn sudoers() -> Option<Lab> {
    if !common::is_root() || !Path::new("/usr/sbin/visudo").exists() {
        println!("skipped: it needs root and visudo");
        return None;
    }
    let lab = lab();
    fs::create_dir_all(lab.path("/etc/sudoers.d")).unwrap();
    Some(lab)
}

#[test]
fn a_rule_is_written_with_its_mode_and_removed() {
    let Some(lab) = sudoers() else { return };
    let rule = bound(
        "sudo",
        "deploy",
        json!({
            "users": ["amy"], "groups": ["adm"], "nopasswd": true, "runas": "root",
            "commands": ["/usr/bin/systemctl restart nginx", "/usr/bin/env A=b,c"],
        }),
    );
    let prior = made(&lab, &rule);
    let file = "/etc/sudoers.d/deploy";
    assert_eq!(
        lab.read(file),
        "amy, %adm ALL = (root) NOPASSWD: /usr/bin/systemctl restart nginx, /usr/bin/env A\\=b\\,c\n"
    );
    assert_eq!(common::mode(&lab.path(file)), 0o440);
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(lab.path(file), fs::Permissions::from_mode(0o644)).unwrap();
    made(&lab, &rule);
    assert_eq!(common::mode(&lab.path(file)), 0o440);
    undo(&lab, "sudo", "deploy", prior);
    assert!(!lab.path(file).exists());
}

#[test]
fn a_rule_with_a_mistake_is_never_visible() {
    let Some(lab) = sudoers() else { return };
    let right = bound("sudo", "ops", json!({"content": "amy ALL=(ALL) ALL"}));
    made(&lab, &right);
    let wrong = bound("sudo", "ops", json!({"content": "amy ALL=(ALL ALL\n"}));
    let note = lab.check(&wrong).note.unwrap_or_default();
    assert!(note.contains("visudo refuses the rule"), "a plan says so: {note}");
    let refused = lab.apply(&wrong).unwrap_err();
    assert!(refused.contains("syntax error"), "{refused}");
    assert_eq!(lab.read("/etc/sudoers.d/ops"), "amy ALL=(ALL) ALL\n");
    let names: Vec<_> = fs::read_dir(lab.path("/etc/sudoers.d")).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing is left beside it");
}

/// A tree with a parameter of a kernel, which is a plain file here.
fn parameters() -> Lab {
    let lab = lab();
    lab.write("/proc/sys/net/ipv4/ip_local_port_range", b"32768\t60999\n");
    fs::create_dir_all(lab.path("/etc/sysctl.d")).unwrap();
    lab
}

const PORTS: &str = "net.ipv4.ip_local_port_range";

#[test]
fn a_parameter_is_set_at_once_and_for_the_next_boot() {
    let lab = parameters();
    let spec = bound("sysctl", PORTS, json!({"value": "1024 65000"}));
    let prior = made(&lab, &spec);
    assert_eq!(lab.read("/proc/sys/net/ipv4/ip_local_port_range"), "1024 65000\n");
    assert_eq!(lab.read("/etc/sysctl.d/60-muster.conf"), format!("{PORTS} = 1024 65000\n"));
    lab.write("/proc/sys/net/ipv4/ip_local_port_range", b"1024\t65000\n");
    assert_eq!(lab.check(&spec).edit, None, "words are compared");
    undo(&lab, "sysctl", PORTS, prior);
    assert_eq!(lab.read("/proc/sys/net/ipv4/ip_local_port_range"), "32768 60999\n");
    assert!(!lab.path("/etc/sysctl.d/60-muster.conf").exists());
    let absent = bound("sysctl", PORTS, json!({"state": "absent"}));
    assert_eq!(lab.check(&absent).edit, None);
}

/// What the ledger keeps of the parameter.
fn parameter(prior: Prior) -> LedgerEntry {
    LedgerEntry {
        kind: "sysctl".to_owned(),
        path: PORTS.to_owned(),
        prior,
        kept: false,
        on_remove: OnRemove::Delete,
        at: Timestamp(0),
        sensitive: false,
        attributes: BTreeMap::new(),
        made: Vec::new(),
        generation: None,
    }
}

#[test]
fn a_parameter_that_is_removed_gets_its_value_back_unless_another_set_it() {
    let (kernel, file) = ("/proc/sys/net/ipv4/ip_local_port_range", "/etc/sysctl.d/60-muster.conf");
    // What somebody else sets meanwhile; what the kernel has in the end.
    for (meanwhile, left) in [(None, "32768 60999\n"), (Some("2000\t3000\n"), "2000\t3000\n")] {
        let lab = parameters();
        let prior = made(&lab, &bound("sysctl", PORTS, json!({"value": "1024 65000"})));
        meanwhile.iter().for_each(|value| lab.write(kernel, value.as_bytes()));
        let entry = parameter(prior);
        assert_eq!(lab.kinds.remove(&entry, OnRemove::Delete), Ok(true));
        assert_eq!(lab.read(kernel), left);
        assert!(!lab.path(file).exists());
        assert!(lab.kinds.remove(&entry, OnRemove::Delete).is_ok());
        assert_eq!(lab.read(kernel), left, "once");
    }
    // The module that had it was unloaded: its line goes all the same.
    let lab = parameters();
    let prior = made(&lab, &bound("sysctl", PORTS, json!({"value": "1024 65000"})));
    fs::remove_file(lab.path(kernel)).unwrap();
    assert_eq!(lab.kinds.remove(&parameter(prior), OnRemove::Delete), Ok(true));
    assert!(!lab.path(file).exists());
}

#[test]
fn a_parameter_that_is_missing_or_overridden_is_told() {
    let lab = parameters();
    let missing = bound("sysctl", "net.netfilter.nf_conntrack_max", json!({"value": 5}));
    assert!(lab.check(&missing).note.unwrap().contains("load the module"));
    assert!(lab.apply(&missing).unwrap_err().contains("has no parameter"));
    assert!(!lab.path("/etc/sysctl.d/60-muster.conf").exists(), "no line is left that never holds");
    lab.write("/etc/sysctl.d/99-other.conf", format!("{PORTS}=1 2\n").as_bytes());
    let refused = lab.apply(&bound("sysctl", PORTS, json!({"value": "1024 65000"}))).unwrap_err();
    assert!(refused.contains("/etc/sysctl.d/99-other.conf, which sets 1 2"), "{refused}");
}

#[test]
fn a_value_that_the_kernel_refuses_is_not_written() {
    if !common::is_root() || !Path::new("/proc/sys/net/ipv4/tcp_fin_timeout").exists() {
        println!("skipped: it needs root");
        return;
    }
    // The kernel of the machine itself; it takes no words, so nothing changes.
    let before = fs::read_to_string("/proc/sys/net/ipv4/tcp_fin_timeout").unwrap();
    let host = host::Host::open(Path::new("/"), host::HostOptions::default()).unwrap();
    let refused = host.set_kernel_parameter("/proc/sys/net/ipv4/tcp_fin_timeout", "soon").unwrap_err();
    let said = model::text::chain(&refused);
    assert!(said.contains("Invalid argument") || said.contains("read-only"), "{said}");
    assert_eq!(fs::read_to_string("/proc/sys/net/ipv4/tcp_fin_timeout").unwrap(), before);
    assert!(host.set_kernel_parameter("/etc/passwd", "x").is_err());
}

#[test]
fn a_line_of_the_table_is_kept_without_touching_the_others() {
    let lab = lab();
    let table = "# static\nUUID=aa  /   ext4\terrors=remount-ro 0 1\n";
    lab.write("/etc/fstab", table.as_bytes());
    let spec =
        json!({"state": "present", "device": "nas:/e x", "fstype": "nfs", "options": ["ro", "nofail"]});
    let spec = bound("mount", "/srv/a b", spec);
    let prior = made(&lab, &spec);
    assert_eq!(prior, Prior::State(None));
    assert_eq!(lab.read("/etc/fstab"), format!("{table}nas:/e\\040x /srv/a\\040b nfs ro,nofail 0 0\n"));
    undo(&lab, "mount", "/srv/a b", prior);
    assert_eq!(lab.read("/etc/fstab"), table);
    let mounted = bound("mount", "/srv/x", json!({"device": "tmpfs", "fstype": "tmpfs"}));
    assert!(lab.apply(&mounted).unwrap_err().contains("nothing is mounted here"));
    assert_eq!(lab.read("/etc/fstab"), table);
}

#[test]
fn a_host_below_a_root_gets_its_name_and_the_machine_keeps_its_own() {
    let lab = lab();
    lab.write("/etc/hostname", b"old\n");
    let machine = host::Kernel::observe().hostname;
    let spec = bound("hostname", "web.example.com", json!({"pretty": "Web \"1\""}));
    assert!(lab.check(&spec).note.unwrap().contains("has a dot"));
    let prior = made(&lab, &spec);
    assert_eq!(lab.read("/etc/hostname"), "web.example.com\n");
    assert_eq!(lab.read("/etc/machine-info"), "PRETTY_HOSTNAME=\"Web \\\"1\\\"\"\n");
    assert_eq!(host::Kernel::observe().hostname, machine);
    undo(&lab, "hostname", "web.example.com", prior);
    assert_eq!(lab.read("/etc/hostname"), "old\n");
    assert!(!lab.path("/etc/machine-info").exists());
}
