//! EXE-1, CNV-1, CNV-5: the fleet of a small company (`examples/company`) on booted hosts: hardening, time,
//! people and keys, a site with TLS, PostgreSQL and its backups. It converges, a second run changes
//! nothing, it does what it is for, and what is damaged by hand is put right.

use std::path::Path;
use std::time::{Duration, Instant};

use test_support::booted::{BootedFleet, BootedHost, MINUTE, TestPackage, Testbed, agent_package};

/// Until packages of both hosts are installed, on a machine that does other things too.
const FIRST_RUN: Duration = Duration::from_secs(240);

/// Something that somebody does to a host by hand.
struct Damage {
    what: &'static str,
    /// The shell that does it.
    by: &'static str,
    /// The shell that succeeds where nothing is damaged.
    right: &'static str,
    found: FoundBy,
}

/// How the agent learns of a damage.
enum FoundBy {
    /// It is told of it: the next run is an hour away.
    Event,
    /// Of what a guard asks no event tells: a run finds it.
    Run,
}

const fn damage(what: &'static str, by: &'static str, right: &'static str) -> Damage {
    Damage { what, by, right, found: FoundBy::Event }
}

const fn unseen(what: &'static str, by: &'static str, right: &'static str) -> Damage {
    Damage { what, by, right, found: FoundBy::Run }
}

// A start by the agent may take the place of a stop by hand that has not ended yet; systemd then says so to whoever stopped
// the unit.
const ON_WEB: &[Damage] = &[
    damage(
        "a file is edited",
        "echo 'PermitRootLogin yes' >> /etc/ssh/sshd_config.d/50-company.conf",
        "! grep -q 'Login yes' /etc/ssh/sshd_config.d/50-company.conf",
    ),
    damage(
        "a mode is changed",
        "chmod 0644 /etc/nginx/tls/shop.key",
        "test $(stat -c %a /etc/nginx/tls/shop.key) = 600",
    ),
    damage(
        "a file is deleted",
        "rm /etc/nginx/sites-available/shop.conf",
        "test -s /etc/nginx/sites-available/shop.conf",
    ),
    damage("a file of a tree is deleted", "rm /srv/www/shop/index.html", "test -s /srv/www/shop/index.html"),
    damage(
        "a link leads elsewhere",
        "ln -sfn /etc/passwd /etc/nginx/sites-enabled/shop.conf",
        "test $(readlink /etc/nginx/sites-enabled/shop.conf) = ../sites-available/shop.conf",
    ),
    damage("a unit is stopped", "systemctl stop nginx || true", "systemctl is-active nginx"),
    damage(
        "a unit is masked",
        "systemctl mask --now nginx || true",
        "systemctl is-active nginx && systemctl is-enabled nginx",
    ),
    damage(
        "a package is removed",
        "until apt-get remove -y chrony; do sleep 0.2; done",
        "dpkg-query -s chrony && test -x /usr/sbin/chronyd",
    ),
    damage(
        "a needless package is installed",
        "until apt-get update && apt-get install -y talkd; do sleep 0.2; done",
        "! dpkg-query -W talkd",
    ),
    damage(
        "a user is deleted",
        "userdel -r bo",
        "id bo | grep -q admins && grep -q bo@desk ~bo/.ssh/authorized_keys",
    ),
    unseen(
        "a certificate is removed",
        "rm /etc/nginx/tls/shop.crt",
        "test \"$(openssl s_client -connect 127.0.0.1:443 </dev/null | openssl x509 -noout -fingerprint)\" = \
         \"$(openssl x509 -noout -fingerprint -in /etc/nginx/tls/shop.crt)\"",
    ),
    damage(
        "a kernel parameter is changed",
        "sysctl -w net.ipv4.conf.all.accept_redirects=1",
        "test $(sysctl -n net.ipv4.conf.all.accept_redirects) = 0",
    ),
    damage(
        "a name is removed from /etc/hosts",
        "grep -v db-1 /etc/hosts > /root/hosts && cat /root/hosts > /etc/hosts",
        "grep -q '^192.0.2.10.*db-1.example.com' /etc/hosts",
    ),
];

const ON_DATABASE: &[Damage] = &[
    damage("a unit is disabled", "systemctl disable ssh", "systemctl is-enabled ssh"),
    damage(
        "a key is removed",
        ": > /home/amy/.ssh/authorized_keys",
        "grep -q amy@laptop /home/amy/.ssh/authorized_keys",
    ),
    damage(
        "a key is added",
        "echo 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl' >> ~amy/.ssh/authorized_keys",
        "! grep -q OMqqnkVzrm /home/amy/.ssh/authorized_keys",
    ),
    damage("somebody leaves a group", "gpasswd -d amy admins", "id amy | grep -q admins"),
    damage("a former colleague is back", "useradd -m carol", "! id carol"),
    damage(
        "a sudo rule is edited",
        "echo 'nobody ALL=(ALL) NOPASSWD: ALL' >> /etc/sudoers.d/admins",
        "! grep -q nobody /etc/sudoers.d/admins",
    ),
    damage(
        "a timer is removed",
        "systemctl disable --now backup-databases.timer; rm /etc/systemd/system/backup-databases.timer; \
         systemctl daemon-reload",
        "systemctl is-active backup-databases.timer && systemctl is-enabled backup-databases.timer",
    ),
    damage(
        "a directory has another owner",
        "chown nobody /var/backups/postgresql",
        "test $(stat -c %U /var/backups/postgresql) = postgres",
    ),
    damage(
        "a database server is stopped",
        "systemctl stop postgresql@15-main || true",
        "systemctl is-active postgresql@15-main",
    ),
    unseen(
        "a database is dropped",
        "runuser -u postgres -- dropdb shop",
        "runuser -u postgres -- psql -lqtA | grep -q '^shop|shop|UTF8'",
    ),
    damage(
        "a setting is changed",
        "sed -i s/100/7/ /etc/postgresql/15/main/conf.d/50-company.conf && systemctl restart postgresql@15-main",
        "test $(runuser -u postgres -- psql -tAc 'SHOW max_connections') = 100",
    ),
    damage(
        "a block is edited",
        "sed -i 's/^# nobody/host all all all trust/' /etc/postgresql/15/main/pg_hba.conf",
        "! grep -q '^host all all all trust' /etc/postgresql/15/main/pg_hba.conf",
    ),
];

impl Damage {
    fn is_right(&self, host: &BootedHost) -> bool {
        host.run(["sh", "-c", self.right]).status.success()
    }
}

/// Does the damage, and waits until it is put right.
fn heals(host: &BootedHost, damage: &Damage) {
    let begun = Instant::now();
    assert!(damage.is_right(host), "{}: {}: it is not so before: {}", host.name(), damage.what, damage.right);
    host.sh(damage.by);
    if let FoundBy::Run = damage.found {
        assert!(
            !damage.is_right(host),
            "{}: {}: that does no damage: {}",
            host.name(),
            damage.what,
            damage.by
        );
        host.ok(["muster-agent", "apply"]);
    }
    host.wait_until(damage.what, MINUTE, || damage.is_right(host));
    eprintln!("{}: {}: {:.1} s", host.name(), damage.what, begun.elapsed().as_secs_f32());
}

/// Copies the example, with contacts of a second and runs that come when they are asked for.
fn copy_example(to: &Path) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/company");
    std::fs::remove_dir_all(to).unwrap();
    let copied = std::process::Command::new("cp").arg("-r").arg(example).arg(to).status().unwrap();
    assert!(copied.success());
    let fleet = to.join("fleet.yaml");
    let text = std::fs::read_to_string(&fleet).unwrap();
    assert!(text.contains("contact: 5m, converge: 5m"), "the example is another one now");
    std::fs::write(fleet, text.replace("contact: 5m, converge: 5m", "contact: 1s, converge: 1h")).unwrap();
}

/// A run now: what it changed.
fn changes(host: &BootedHost) -> Vec<serde_json::Value> {
    let report: serde_json::Value =
        serde_json::from_str(&host.ok(["muster-agent", "apply", "--json"])).unwrap();
    assert_eq!(report["counts"]["failed"], 0, "{report:#}");
    report["items"].as_array().unwrap().iter().filter(|item| item["action"] == "changed").cloned().collect()
}

#[test]
fn its_fleet_converges_works_and_heals() {
    let Some(testbed) = Testbed::open() else { return };
    testbed.publish_packages(&[TestPackage::new("talkd", "1.0")]);
    let fleet = BootedFleet::start(&testbed);
    copy_example(&fleet.repo);
    let hosts = testbed.boot_all(["web-1.example.com", "db-1.example.com"]);
    let [web, database] = &hosts;
    std::thread::scope(|scope| {
        for host in &hosts {
            scope.spawn(|| {
                host.copy_in(&agent_package(), "/root/muster-agent.deb", 0o644);
                host.ok(["apt-get", "install", "-y", "/root/muster-agent.deb"]);
                // No power is cut here, so packages need not be synced to the disk.
                host.write("/etc/dpkg/dpkg.cfg.d/fast", "force-unsafe-io\n", 0o644);
                // Somebody who left before there was Muster.
                host.ok(["useradd", "-m", "carol"]);
                fleet.join(host);
            });
        }
    });
    let begun = Instant::now();
    fleet.publish();
    for host in &hosts {
        host.wait_until("its first run ended", FIRST_RUN, || {
            let node = fleet.server.node(host.name());
            let has_failed = node["state"] == "degraded";
            assert!(!has_failed, "{node:#}\n{}", host.sh("muster-agent status || true"));
            node["state"] == "converged"
        });
        fleet.until_converged(host);
        eprintln!("{}: converged in {:.1} s", host.name(), begun.elapsed().as_secs_f32());
        assert_eq!(changes(host), [] as [serde_json::Value; 0], "a second run changes nothing");
    }

    // It does what it is for.
    let page = web.sh(
        "printf 'GET / HTTP/1.1\\r\\nHost: shop.example.com\\r\\nConnection: close\\r\\n\\r\\n' | openssl s_client -quiet \
         -verify_return_error -verify_hostname shop.example.com -CAfile /etc/nginx/tls/shop.crt \
         -servername shop.example.com -connect 127.0.0.1:443",
    );
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("The shop"), "{page}");
    let effective = web.ok(["/usr/sbin/sshd", "-T"]);
    assert!(effective.contains("passwordauthentication no\n"), "{effective}");
    assert_eq!(web.ok(["runuser", "-u", "amy", "--", "sudo", "-n", "id", "-un"]), "root\n");
    assert!(!web.run(["id", "dan"]).status.success(), "developers are in staging alone");
    let owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'shop'";
    assert_eq!(database.ok(["runuser", "-u", "postgres", "--", "psql", "-tAc", owner]), "shop\n");
    database.sh("touch -d '-40 days' /var/backups/postgresql/shop-old.dump");
    database.ok(["systemctl", "start", "backup-databases.service"]);
    let dumps =
        database.sh("cd /var/backups/postgresql && stat -c '%U %a' shop-*.dump && pg_restore -l shop-*.dump");
    assert!(
        dumps.starts_with("postgres 600\n") && dumps.contains("dbname: shop"),
        "one, and it is whole: {dumps}"
    );

    // Both at once, each by itself.
    std::thread::scope(|scope| {
        for (host, damages) in [(web, ON_WEB), (database, ON_DATABASE)] {
            scope.spawn(move || damages.iter().for_each(|damage| heals(host, damage)));
        }
    });
    for host in &hosts {
        assert_eq!(changes(host), [] as [serde_json::Value; 0], "after the repairs nothing is left to do");
        fleet.until_converged(host);
    }
}
