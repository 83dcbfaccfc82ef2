//! ROL-7, ROL-10, CNV-12: the switch of a NixOS system may restart the agent that began it: the next one learns how it ended,
//! and a boot that it asks for is asked for. The programs of Nix and systemd are scripts here that write down how they are called.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
mod nixos_lab;

use std::fs;
use std::os::unix::fs::symlink;

use catalog::types::{NixosSpec, Spec};

use crate::common::LONG;
use crate::nixos_lab::*;

/// ROL-7: the switch restarted the agent that waited for it, and failed afterwards.
#[test]
fn an_agent_that_a_switch_restarted_learns_how_it_ended() {
    let cache = CacheServer::with(&[signed(1, &[])]);
    let wanted = Spec::Nixos(spec(1, &[&cache]));
    let nix = nix_lab();
    nix.apply_within(&wanted, LONG).unwrap();
    let failed = |number: u8| {
        let system = path(number);
        let shown = format!("ActiveState=failed\nResult=exit-code\nExecMainStatus=4\nDescription={system}\n");
        fs::write(nix.bin.join("failed"), shown).unwrap();
    };
    // All is where it leads to, and yet the switch failed: that is said once.
    failed(1);
    assert!(nix.lab.check(&wanted).edit.is_some(), "it is seen");
    let why = nix.fails(&wanted);
    assert!(why.contains("outlived the agent") && why.contains("it exited with 4"), "{why}");
    assert_eq!(nix.calls().last().unwrap(), "systemctl reset-failed");
    assert_eq!(nix.lab.check(&wanted).edit, None);
    // The way back does not mind it, and takes its unit's place.
    failed(1);
    let back = Spec::Nixos(NixosSpec { control_plane: false, ..spec(9, &[]) });
    nix.apply_within(&back, LONG).unwrap();
    assert_eq!(nix.link("/run/current-system"), path(9).to_string());
    assert_eq!(nix.lab.check(&back).edit, None, "and its failure is nobody's any more");
    // One that was waited for is told as before, and stands in nobody's way.
    nix.touch("fail-switch");
    let why = nix.fails(&wanted);
    assert!(why.contains("systemd-run exited with 4"), "{why}");
    fs::remove_file(nix.bin.join("fail-switch")).unwrap();
    nix.apply_within(&back, LONG).unwrap();
    nix.apply_within(&wanted, LONG).unwrap();
    // One that is under way and ends well was the switch: it is not made again.
    let calls = nix.calls().len();
    let checked = {
        fs::write(nix.bin.join("active"), "3").unwrap();
        nix.lab.check(&wanted)
    };
    nix.lab.kinds.apply("system", &wanted, &checked, LONG).unwrap();
    assert!(nix.calls()[calls..].iter().all(|call| call.starts_with("systemctl show")), "{:?}", nix.calls());
}

/// CNV-12: what only a boot changes asks for one, as a package does, and no more once the host is back.
#[test]
fn another_kernel_asks_for_a_boot() {
    let cache = CacheServer::with(&[signed(1, &[])]);
    let wanted = Spec::Nixos(spec(1, &[&cache]));
    let back = Spec::Nixos(NixosSpec { control_plane: false, ..spec(9, &[]) });
    let nix = nix_lab();
    let kernel = |number: u8, name: &str, to: &str| {
        let system = nix.lab.path(&path(number).to_string());
        fs::create_dir_all(&system).unwrap();
        let _ = fs::remove_file(system.join(name));
        symlink(to, system.join(name)).unwrap();
    };
    symlink(path(9).to_string(), nix.lab.path("/run/booted-system")).unwrap();
    for name in ["kernel", "initrd", "kernel-modules"] {
        [1, 9].iter().for_each(|number| kernel(*number, name, &format!("/nix/store/{name}-a")));
    }
    let asks = || fs::read_to_string(nix.lab.path("/run/reboot-required.pkgs")).ok();
    nix.apply_within(&wanted, LONG).unwrap();
    assert_eq!(asks(), None, "the same kernel");
    nix.apply_within(&back, LONG).unwrap();
    kernel(1, "kernel-modules", "/nix/store/kernel-modules-b");
    nix.apply_within(&wanted, LONG).unwrap();
    assert_eq!(asks().as_deref(), Some("nixos-kernel-modules\n"));
    assert!(nix.lab.path("/run/reboot-required").exists());
    nix.apply_within(&back, LONG).unwrap();
    assert_eq!((asks(), nix.lab.path("/run/reboot-required").exists()), (None, false));
    // What somebody else asks for stays.
    nix.lab.write("/run/reboot-required.pkgs", b"libc6\n");
    nix.apply_within(&wanted, LONG).unwrap();
    nix.apply_within(&back, LONG).unwrap();
    assert_eq!(asks().as_deref(), Some("libc6\n"));
}
