//! The peers: other tools that keep the same mixed host, installed from the machine's own sources.
//! A tool that cannot be had here is left out, and the reason is printed.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use test_support::booted::BootedHost;

use crate::mixed::MixedHost;
use crate::timing::{quantile, timed};

/// One of them.
struct Peer {
    name: &'static str,
    /// Debian packages.
    packages: &'static [&'static str],
    policy: fn(&MixedHost) -> String,
    path: &'static str,
    run: &'static str,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "cf-agent",
        packages: &["cfengine3"],
        policy: cfengine,
        path: "/root/promises.cf",
        run: "cf-agent -K -f /root/promises.cf",
    },
    Peer {
        name: "puppet apply",
        packages: &["puppet-agent"],
        policy: puppet,
        path: "/root/site.pp",
        run: "puppet apply /root/site.pp",
    },
];

/// How long a peer's run takes that changes nothing.
pub struct PeerRun {
    /// Of the peer.
    pub name: &'static str,
    /// Of several runs.
    pub median: Duration,
}

/// Those that could be installed.
pub fn measure(host: &BootedHost, mixed: &MixedHost, times: usize) -> Vec<PeerRun> {
    let mut medians = Vec::new();
    for peer in PEERS {
        if let Err(why) = install(host, peer.packages) {
            println!("{}: left out: {why}", peer.name);
            continue;
        }
        host.write(peer.path, (peer.policy)(mixed), 0o600);
        medians.extend(timed_peer(host, peer.name, peer.run, times));
    }
    match salt(host, mixed) {
        Ok(run) => medians.extend(timed_peer(host, "salt-call --local", &run, times)),
        Err(why) => println!("salt-call: left out: {why}"),
    }
    medians
}

fn timed_peer(host: &BootedHost, name: &'static str, run: &str, times: usize) -> Option<PeerRun> {
    // The first runs bring caches and what this tool sees otherwise into order.
    for _ in 0..2 {
        let output = host.run(["sh", "-c", run]);
        if !output.status.success() {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            let tail: Vec<&str> = text.lines().rev().take(5).collect();
            println!("{name}: left out: it fails: {}", tail.join(" | "));
            return None;
        }
    }
    let mut all: Vec<Duration> = (0..times).map(|_| timed(host.command(["sh", "-c", run]))).collect();
    Some(PeerRun { name, median: quantile(&mut all, 0.5) })
}

/// Installs Debian packages that the outer machine downloads for the host.
fn install(host: &BootedHost, packages: &[&str]) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    fs::create_dir(folder.path().join("partial")).map_err(|error| error.to_string())?;
    let status = folder.path().join("status");
    fs::write(&status, host.read("/var/lib/dpkg/status").unwrap_or_default())
        .map_err(|error| error.to_string())?;
    let mut command = Command::new("apt-get");
    command.args(["-q", "-y", "--no-install-recommends", "--download-only", "-o", "APT::Sandbox::User=root"]);
    command.arg("-o").arg(format!("Dir::State::status={}", status.display()));
    command.arg("-o").arg(format!("Dir::Cache::archives={}", folder.path().display()));
    // Those caches are of what the outer machine has.
    command.args(["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]);
    let output = command.arg("install").args(packages).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.lines().last().unwrap_or("apt-get fails").to_owned());
    }
    for file in fs::read_dir(folder.path()).map_err(|error| error.to_string())?.flatten() {
        let path = file.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            host.copy_in(&path, &format!("/root/peer/{}", file.file_name().to_string_lossy()), 0o644);
        }
    }
    let installed = host.run(["sh", "-c", "apt-get -q -y install /root/peer/*.deb && rm -r /root/peer"]);
    match installed.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&installed.stderr).trim().to_owned()),
    }
}

fn cfengine(mixed: &MixedHost) -> String {
    let mut policy = "body common control {\n  bundlesequence => { \"main\" };\n  \
                      inputs => { \"/usr/share/cfengine3/masterfiles/lib/stdlib.cf\" };\n}\n\
                      bundle agent main {\nfiles:\n"
        .to_owned();
    for (path, content) in &mixed.files {
        let content = content.trim_end();
        let _ = writeln!(
            policy,
            "  \"{path}\" create => \"true\", perms => m(\"0644\"), edit_defaults => empty, \
             edit_line => insert_lines(\"{content}\");"
        );
    }
    policy += "packages:\n";
    for name in &mixed.packages {
        let _ = writeln!(policy, "  \"{name}\" policy => \"present\", package_module => apt_get;");
    }
    policy += "users:\n";
    for name in &mixed.users {
        let _ = writeln!(policy, "  \"{name}\" policy => \"present\", shell => \"/bin/sh\";");
    }
    policy += "services:\n";
    for name in &mixed.units {
        let _ = writeln!(policy, "  \"{name}\" service_policy => \"start\";");
    }
    policy + "}\n"
}

fn puppet(mixed: &MixedHost) -> String {
    let mut policy = String::new();
    for (path, content) in &mixed.files {
        let content = content.trim_end();
        let _ = writeln!(policy, "file {{ '{path}': content => \"{content}\\n\", mode => '0644' }}");
    }
    for name in &mixed.packages {
        let _ = writeln!(policy, "package {{ '{name}': ensure => present }}");
    }
    for name in &mixed.units {
        let _ = writeln!(policy, "service {{ '{name}': ensure => running, enable => true }}");
    }
    for name in &mixed.users {
        let _ = writeln!(policy, "user {{ '{name}': ensure => present, shell => '/bin/sh' }}");
    }
    policy
}

/// Salt is not in Debian: it is taken from the virtual environment that `MUSTER_BENCH_SALT` names.
fn salt(host: &BootedHost, mixed: &MixedHost) -> Result<String, String> {
    let environment = std::env::var_os("MUSTER_BENCH_SALT")
        .ok_or("MUSTER_BENCH_SALT names no virtual environment that has it")?;
    install(host, &["python3"])?;
    let site = fs::read_dir(Path::new(&environment).join("lib"))
        .map_err(|error| error.to_string())?
        .flatten()
        .map(|entry| entry.path().join("site-packages"))
        .find(|path| path.is_dir())
        .ok_or("the virtual environment has no site-packages")?;
    let target = host.path("/opt/salt");
    let copied = Command::new("cp").arg("-a").arg(&site).arg(&target).status();
    if !copied.is_ok_and(|status| status.success()) {
        return Err("its modules cannot be copied into the host".to_owned());
    }
    let mut states = String::new();
    for (path, content) in &mixed.files {
        let content = content.trim_end();
        let _ = writeln!(states, "{path}:\n  file.managed:\n    - contents: '{content}'\n    - mode: '0644'");
    }
    let _ = writeln!(states, "packages:\n  pkg.installed:\n    - pkgs:");
    for name in &mixed.packages {
        let _ = writeln!(states, "      - {name}");
    }
    for name in &mixed.units {
        let _ = writeln!(states, "unit-{name}:\n  service.running:\n    - name: {name}\n    - enable: true");
    }
    for name in &mixed.users {
        let _ = writeln!(states, "user-{name}:\n  user.present:\n    - name: {name}\n    - shell: /bin/sh");
    }
    host.write("/srv/salt/bench.sls", states, 0o600);
    let main = "import sys; from salt.scripts import salt_call; sys.argv[0] = 'salt-call'; salt_call()";
    Ok(format!(
        "PYTHONPATH=/opt/salt python3 -c \"{main}\" --local --retcode-passthrough \
         --file-root=/srv/salt state.apply bench"
    ))
}
