//! WIR-7, CNV-5: the real programs on two machines: network namespaces joined by a cable. The
//! agents dial over IPv4 and over IPv6 alone; the cable is pulled and plugged in again.
//!
//! Needs root and `ip`; says why when it is skipped.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod real;

use std::process::Command;

use real::{Host, Prefix, Server, until, write_repo};

const V4: &str = "10.213.77.1";
const V6: &str = "fd00:213:77::1";

/// Two machines and a cable; taken away when this goes, whatever happened.
struct Cable {
    control: String,
    host: String,
}

impl Cable {
    /// Makes both; why not, when that is not possible here.
    fn lay() -> Result<Cable, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("not root".to_owned());
        }
        let id = std::process::id();
        let cable = Cable { control: format!("mu-c-{id}"), host: format!("mu-h-{id}") };
        for name in [&cable.control, &cable.host] {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let (control, host) = (&cable.control, &cable.host);
        let peer = ["type", "veth", "peer", "name", "cable", "netns", host];
        ip(&[&["link", "add", "cable", "netns", control][..], &peer].concat())?;
        // Addresses stay while the cable is pulled, as those of a machine do.
        for (name, last) in [(control, 1), (host, 2)] {
            sh(name, "echo 1 > /proc/sys/net/ipv6/conf/cable/keep_addr_on_down")?;
            ip(&["-n", name, "addr", "add", &format!("10.213.77.{last}/24"), "dev", "cable"])?;
            ip(&["-n", name, "addr", "add", &format!("fd00:213:77::{last}/64"), "dev", "cable", "nodad"])?;
            ip(&["-n", name, "link", "set", "cable", "up"])?;
        }
        Ok(cable)
    }

    fn pull(&self) {
        ip(&["-n", &self.host, "link", "set", "cable", "down"]).unwrap();
    }

    fn plug_in(&self) {
        ip(&["-n", &self.host, "link", "set", "cable", "up"]).unwrap();
    }

    fn inside(name: &str) -> Prefix {
        ["ip", "netns", "exec", name].map(str::to_owned).to_vec()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in [&self.control, &self.host] {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    run(Command::new("ip").args(arguments))
}

fn sh(namespace: &str, script: &str) -> Result<(), String> {
    run(Command::new("ip").args(["netns", "exec", namespace, "sh", "-c", script]))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {said}")) }
}

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
    let cable = match Cable::lay() {
        Ok(cable) => cable,
        Err(why) => {
            eprintln!("skipped: network namespaces cannot be made here: {why}");
            return;
        }
    };
    let temp = tempfile::tempdir().unwrap();
    let (dir, repo) = (temp.path(), temp.path().join("repo"));
    let (control, there) = (Cable::inside(&cable.control), Cable::inside(&cable.host));
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
        server.until_word(&host.name, "converged");
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
        let word = server.node(&host.name)["word"].clone();
        assert_ne!(word, "failed", "{}", host.name);
        assert_eq!(server.node(&host.name)["held"]["seq"], 1, "nothing got through");
    }

    // Plugged in again, everything arrives by itself, the facts of the meantime too.
    cable.plug_in();
    for host in &hosts {
        host.until_read("etc/hello", &format!("after the partition {}\n", host.name));
        server.until_word(&host.name, "converged");
        until("the correction of the meantime is told", || {
            let runs = server.json(&["run", "list", "--node", &host.name]);
            let runs = runs.as_array().unwrap().clone();
            runs.iter()
                .any(|run| run["report"]["intended"] == false && run["report"]["seq"] == 1)
                .then_some(())
        });
    }
}
