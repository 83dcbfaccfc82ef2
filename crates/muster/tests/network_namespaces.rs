//! WIR-7, CNV-5: the real programs on two machines: network namespaces joined by a cable. The
//! agents dial over IPv4 and over IPv6 alone; the cable is pulled and plugged in again.
//!
//! Needs root and `ip`; says why when it is skipped.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use test_support::programs::cable::{Cable, V4, V6};
use test_support::programs::{Host, Server, write_repo};
use test_support::wait::until_blocking as until;

/// Leaves one URL in what tokens are minted with: the host is to dial this address alone.
fn only(server: &Server, address: &str) {
    let path = server.dir.join("enroll.json");
    let mut info: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let urls = info["servers"].as_array().unwrap();
    let url = urls.iter().find(|url| url.as_str().unwrap().contains(address)).unwrap().clone();
    info["servers"] = vec![url].into();
    std::fs::write(&path, info.to_string()).unwrap();
}

#[test]
fn over_ipv4_and_ipv6_through_a_partition() {
    let Some(cable) = Cable::lay() else { return };
    let temp = tempfile::tempdir().unwrap();
    let (dir, repo) = (temp.path(), temp.path().join("repo"));
    let (control, there) = (cable.at_control(), cable.at_host());
    let mut server = Server::new(dir, &[V4, V6], "[::]", &control);
    let _running = server.start();
    write_repo(&repo, "hello");
    server.publish(&repo);

    let enroll = std::fs::read(server.dir.join("enroll.json")).unwrap();
    let mut daemons = Vec::new();
    let hosts = [("web-4", V4), ("web-6", V6)].map(|(name, address)| {
        only(&server, address);
        let host = Host::new(dir, name, &there);
        server.token(name, &host.token_file());
        std::fs::write(server.dir.join("enroll.json"), &enroll).unwrap();
        host.join();
        daemons.push(host.start());
        host
    });
    for host in &hosts {
        host.until_read("etc/hello", &format!("hello {}\n", host.name));
        server.until_state(&host.name, "converged");
        let known = String::from_utf8(host.run(&["status", "--json"]).stdout).unwrap();
        assert_eq!(known.contains(V6), host.name == "web-6", "{known}");
    }

    // The cable is pulled: a release is published meanwhile, and hands interfere.
    cable.pull();
    write_repo(&repo, "after the partition");
    server.publish(&repo);
    for host in &hosts {
        host.edit("etc/hello", "by hand\n");
        host.until_read("etc/hello", &format!("hello {}\n", host.name));
    }
    for host in &hosts {
        let state = server.node(&host.name)["state"].clone();
        assert_ne!(state, "failed", "{}", host.name);
        assert_eq!(server.node(&host.name)["held"]["seq"], 1, "nothing got through");
    }

    // Plugged in again, everything arrives by itself, the facts of the meantime too.
    cable.plug_in();
    for host in &hosts {
        host.until_read("etc/hello", &format!("after the partition {}\n", host.name));
        server.until_state(&host.name, "converged");
        until("the correction of the meantime is told", || {
            let runs = server.json(&["run", "list", "--node", &host.name]);
            let runs = runs.as_array().unwrap().clone();
            runs.iter()
                .any(|run| run["report"]["intended"] == false && run["report"]["seq"] == 1)
                .then_some(())
        });
    }
}
