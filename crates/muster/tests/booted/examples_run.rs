//! EXE-1, CNV-1, CNV-6, CNV-10: the example of every resource type, taken from the catalog itself, is
//! observed, planned, applied, applied again, taken back and removed on a booted host by the real
//! programs. A type without what its example needs in the host fails here.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use catalog::module::OnRemove;
use catalog::schema::{Manages, ResourceType};
use catalog::types::TYPES;
use serde_json::Value;
use test_support::booted::{BootedFleet, BootedHost, MINUTE, TestPackage, Testbed};
use test_support::programs::write;

/// What the example of a type needs.
struct Preparation {
    kind: &'static str,
    /// Runs in the host before all.
    host: &'static str,
    /// Files of the module, with their content.
    files: &'static [(&'static str, &'static str)],
    /// Runs in the module's folder, once these are there.
    folder: &'static str,
    /// Says whether the example is in effect: the line of shell succeeds.
    holds: &'static str,
}

const fn plain(kind: &'static str, host: &'static str, holds: &'static str) -> Preparation {
    Preparation { kind, host, files: &[], folder: "", holds }
}

/// Reports a change while its mark is not as asked for.
const HEALTH: &str = r#"#!/bin/sh
wanted=$(cat)
case $wanted in
  *'"absent"'*) [ -e /run/app-health ] && rm /run/app-health && echo '{"changed": true}' || echo '{}' ;;
  *) [ -e /run/app-health ] && echo '{}' || { touch /run/app-health; echo '{"changed": true}'; } ;;
esac
"#;

/// A firmware that is at one version or the other.
const FIRMWARE: &str = r#"
printf '#!/bin/sh\ncase $1 in
  version) cat /var/lib/firmware 2>/dev/null || echo 2.0 ;;
  activate) echo "$2" > /var/lib/firmware ;;
  revert) rm -f /var/lib/firmware ;;
esac\n' > /usr/sbin/fwctl
chmod 755 /usr/sbin/fwctl
"#;

/// A web server that has the example's archive, under the name and with the trust that its URL needs.
const DOWNLOADS: &str = r#"
apt-get install -y -q nginx-light >/dev/null
cd /srv && printf test > tool-1.4.tar.gz
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=tests \
  -addext basicConstraints=critical,CA:TRUE -keyout ca.key -out /usr/local/share/ca-certificates/tests.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=downloads.example.com \
  -keyout web.key -out web.csr
printf 'subjectAltName=DNS:downloads.example.com\nbasicConstraints=CA:FALSE\n' > web.ext
openssl x509 -req -in web.csr -CA /usr/local/share/ca-certificates/tests.crt -CAkey ca.key -CAcreateserial \
  -days 30 -extfile web.ext -out web.crt
update-ca-certificates
echo 127.0.0.1 downloads.example.com >> /etc/hosts
printf 'server { listen 443 ssl; server_name downloads.example.com; root /srv; ssl_certificate /srv/web.crt;
  ssl_certificate_key /srv/web.key; ssl_protocols TLSv1.3; }' > /etc/nginx/sites-enabled/default
systemctl restart nginx
rm -rf /etc/nginx/conf.d
"#;

static PREPARED: &[Preparation] = &[
    Preparation {
        kind: "file",
        host: "",
        files: &[("templates/motd.j2", "welcome to {{ node.hostname }}\n")],
        folder: "",
        holds: "grep -q 'welcome to examples-1' /etc/motd",
    },
    plain("directory", "", "test -d /etc/nginx/conf.d"),
    plain(
        "symlink",
        "ln -sf /usr/share/zoneinfo/Etc/UTC /etc/localtime",
        "readlink /etc/localtime | grep Paris",
    ),
    plain(
        "line",
        "mkdir -p /etc/ssh; echo '#PermitRootLogin prohibit-password' > /etc/ssh/sshd_config",
        "grep -qx 'PermitRootLogin no' /etc/ssh/sshd_config",
    ),
    plain("block", "", "grep -q 'app hard nofile 65536' /etc/security/limits.conf"),
    plain("ini", "", "grep -qx 'SystemMaxUse *= *200M' /etc/systemd/journald.conf"),
    plain("json", "", "grep -q '\"level\": *\"info\"' /etc/app.json"),
    plain("download", DOWNLOADS, "test \"$(cat /opt/tool.tar.gz)\" = test"),
    Preparation {
        kind: "archive",
        host: "",
        files: &[("tool-1.4/bin/tool", "#!/bin/sh\necho tool\n"), ("tool-1.4/share/doc/README", "read me\n")],
        folder: "mkdir files && chmod 755 tool-1.4/bin/tool && tar -czf files/tool-1.4.tar.gz tool-1.4 && rm -r tool-1.4",
        holds: "test \"$(/opt/tool/bin/tool)\" = tool && test ! -e /opt/tool/share/doc",
    },
    Preparation {
        kind: "image",
        host: "",
        files: &[("app-1.4/bin/app", "#!/bin/sh\necho app\n")],
        folder: "mkdir files && chmod 755 app-1.4/bin/app && tar -czf files/app-1.4.tar.gz app-1.4 && rm -r app-1.4",
        holds: "test \"$(/opt/app/bin/app)\" = app",
    },
    plain("switch", FIRMWARE, "test \"$(fwctl version)\" = 2.1"),
    plain("host", "", "getent hosts db-1 | grep -q 192.0.2.10"),
    plain("repository", "", "grep -q deb.example.com /etc/apt/sources.list.d/backports.sources"),
    plain(
        "package",
        "apt-get update -q",
        "dpkg-query -W -f='${db:Status-Status}' bsdextrautils | grep -qx installed",
    ),
    plain("user", "", "id -nG deploy | grep -qw adm"),
    plain("group", "", "getent group deployers | grep -q root"),
    plain("ssh_key", "", "grep -q 'no-port-forwarding ssh-ed25519' /root/.ssh/authorized_keys"),
    plain("service", "", "systemctl is-active hello && test $(systemctl show -P LimitNOFILE hello) = 4096"),
    plain("timer", "", "systemctl is-active tidy-cache.timer"),
    plain("cron", "", "grep -q '^30 2 ' /etc/cron.d/tidy-cache"),
    plain("sudo", "", "visudo -c -q && test -e /etc/sudoers.d/deployers"),
    plain(
        "sysctl",
        "",
        "grep -rq all.accept_redirects /etc/sysctl.d && test $(cat /proc/sys/net/ipv4/conf/all/accept_redirects) = 0",
    ),
    plain("mount", "", "findmnt /srv/scratch"),
    plain("hostname", "", "test $(uname -n) = web-1"),
    plain(
        "exec",
        "printf '#!/bin/sh\\ntouch /etc/aliases.db\\n' > /usr/bin/newaliases; chmod 755 /usr/bin/newaliases",
        "test -e /etc/aliases.db",
    ),
    plain("shell", "mkdir /var/lib/app; useradd app", "grep -q ^app: /var/lib/app/passwd"),
    Preparation {
        kind: "custom",
        host: "",
        files: &[("executors/health.sh", HEALTH)],
        folder: "",
        holds: "test -e /run/app-health",
    },
];

/// What the examples touch, and nothing that changes by itself.
const SNAPSHOT: &str = r#"
find /etc /opt /root/.ssh /home /usr/lib/systemd/system /srv/scratch \( -type f -o -type l -o -type d \) \
  ! -path '/etc/*-' ! -path /etc/.pwd.lock ! -path /etc/ld.so.cache ! -path '/etc/sub[ug]id' 2>/dev/null \
  -printf '%p %y %m %u:%g %l\n' | sort
find /etc /opt /root/.ssh -type f ! -path '/etc/*-' ! -path '/etc/sub[ug]id' 2>/dev/null | sort | xargs sha256sum
sysctl net.ipv4.conf.all.accept_redirects; uname -n; findmnt -rn -o TARGET | sort
dpkg-query -W -f='${Package} ${db:Status-Status}\n' | grep -v ' config-files'
systemctl list-unit-files --no-legend | sort
"#;

/// The fleet of one host, with a module for each type.
struct ExampleFleet<'t> {
    fleet: BootedFleet,
    host: &'t BootedHost,
}

/// Every type but that of systems of NixOS, which runs on no Debian
/// (`crates/providers/tests/nixos_switches_to_a_path.rs`).
fn types() -> impl Iterator<Item = &'static ResourceType> {
    TYPES.iter().copied().filter(|kind| kind.name != "nixos")
}

/// What happens to examples that leave the set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// What was there before is put back, where the type can.
    Restore,
    /// They are deleted, where the type can.
    Delete,
}

impl Leaving {
    /// What the type's example declares, and what its report says when it has left.
    fn of(self, kind: &ResourceType) -> OnRemove {
        let can = |how: OnRemove| kind.on_remove.contains(&how);
        // A command is taken back by another one, which no example has; a script is asked.
        let takes_back = kind.manages != Manages::Effect || kind.name == "custom";
        match self {
            Leaving::Restore if can(OnRemove::Restore) => OnRemove::Restore,
            Leaving::Restore | Leaving::Delete if can(OnRemove::Delete) && takes_back => OnRemove::Delete,
            Leaving::Restore | Leaving::Delete => OnRemove::Keep,
        }
    }
}

fn module_of(kind: &ResourceType) -> String {
    kind.name.replace('_', "-")
}

impl ExampleFleet<'_> {
    /// Publishes the examples.
    fn declare(&self, leaving: Leaving, observe: bool) {
        for kind in types() {
            let on_remove = match leaving.of(kind) {
                OnRemove::Keep => "keep",
                OnRemove::Delete => "delete",
                OnRemove::Restore => "restore",
            };
            let example = format!("{}  on_remove: {on_remove}\n", kind.example);
            let example: String = example.lines().map(|line| format!("  {line}\n")).collect();
            let folder = self.fleet.repo.join("modules").join(module_of(kind));
            let _ = std::fs::remove_dir_all(&folder);
            write(&folder.join("module.yaml"), &format!("observe: {observe}\nresources:\n{example}"));
            let made = preparation(kind);
            for (name, content) in made.files {
                write(&folder.join(name), content);
            }
            let shell = Command::new("sh").args(["-ec", made.folder]).current_dir(&folder).status();
            assert!(shell.unwrap().success(), "{}: {}", kind.name, made.folder);
        }
        self.publish(types().map(module_of).collect());
    }

    /// Publishes a fleet in which none of them is declared any more.
    fn drop_all(&self) {
        write(&self.fleet.repo.join("modules/empty/module.yaml"), "resources: []\n");
        self.publish(vec!["empty".to_owned()]);
    }

    fn publish(&self, modules: Vec<String>) {
        let nodes = format!("nodes:\n  - match: [\"**\"]\n    modules: [{}]\n", modules.join(", "));
        write(&self.fleet.repo.join("nodes.yaml"), &nodes);
        self.fleet.publish();
    }

    /// What the first run of the newest release came to, by type.
    fn ran(&self) -> BTreeMap<String, Value> {
        let name = self.host.name();
        let mut report = Value::Null;
        self.host.wait_until("the newest release has run", MINUTE, || {
            let newest = self.fleet.server.node(name)["pointedSeq"].clone();
            let runs = self.fleet.server.json(&["run", "list", "--node", name]);
            let of_it = |run: &&Value| run["report"]["seq"] == newest;
            let first = runs.as_array().unwrap().iter().rfind(of_it);
            report = first.map_or(Value::Null, |run| run["report"].clone());
            first.is_some()
        });
        by_type(&report)
    }

    /// What the agent itself says of a run or a plan, by type.
    fn asked(&self, verb: &str) -> BTreeMap<String, Value> {
        let output = self.host.run(["muster-agent", verb, "--json"]);
        let report = serde_json::from_slice(&output.stdout);
        by_type(&report.unwrap_or_else(|error| panic!("{verb}: {error}: {output:?}")))
    }

    fn holding(&self) -> BTreeSet<&'static str> {
        let holds = |made: &&Preparation| self.host.run(["sh", "-c", made.holds]).status.success();
        PREPARED.iter().filter(holds).map(|made| made.kind).collect()
    }
}

fn preparation(kind: &ResourceType) -> &'static Preparation {
    let of_it = PREPARED.iter().find(|made| made.kind == kind.name);
    of_it.unwrap_or_else(|| panic!("say in PREPARED what the example of `{}` needs", kind.name))
}

fn by_type(report: &Value) -> BTreeMap<String, Value> {
    let items = report["items"].as_array().cloned().unwrap_or_default();
    let named = |item: Value| {
        let module = item["resource"].as_str().unwrap().split('/').next().unwrap().to_owned();
        (module.replace('-', "_"), item)
    };
    items.into_iter().map(named).collect()
}

/// Asserts what was done about each type.
#[track_caller]
fn each(
    step: &str,
    items: &BTreeMap<String, Value>,
    wanted: impl Fn(&ResourceType) -> &'static [&'static str],
) {
    for kind in types() {
        let found = items.get(kind.name).map_or("ok", |item| item["action"].as_str().unwrap());
        let (wanted, item) = (wanted(kind), items.get(kind.name));
        assert!(wanted.contains(&found), "{step}: {} is {found}, not {wanted:?}: {item:#?}", kind.name);
    }
}

#[test]
fn the_example_of_every_type_runs() {
    let Some(testbed) = Testbed::open() else { return };
    testbed
        .publish_packages(&[TestPackage::new("bsdextrautils", "2.38").file("/usr/share/bsdextrautils", "x")]);
    let host = testbed.boot("examples-1");
    let all: BTreeSet<&str> = types().map(|kind| preparation(kind).kind).collect();
    host.sh("apt-get update -q");
    for made in PREPARED {
        host.sh(made.host);
    }
    let examples = ExampleFleet { fleet: BootedFleet::start(&testbed), host: &host };
    examples.drop_all();
    examples.fleet.join(&host);
    examples.fleet.until_converged(&host);
    let before = host.sh(SNAPSHOT);
    assert_eq!(examples.holding(), BTreeSet::new());

    // Observed and planned: each is named, and nothing is touched.
    let would = |kind: &ResourceType| -> &'static [&'static str] {
        if kind.name == "custom" { &["unknown"] } else { &["would_change"] }
    };
    examples.declare(Leaving::Restore, true);
    each("observed", &examples.ran(), would);
    each("planned", &examples.asked("plan"), would);
    assert_same("observed and planned", &before, &host.sh(SNAPSHOT), |_| false);

    // Applied, and applied again.
    examples.declare(Leaving::Restore, false);
    each("applied", &examples.ran(), |_| &["changed"]);
    assert_eq!(examples.holding(), all);
    each("applied again", &examples.asked("apply"), |_| &["ok"]);

    // Taken back: what was there before is there again.
    let left = |leaving: Leaving| {
        move |kind: &ResourceType| -> &'static [&'static str] {
            match leaving.of(kind) {
                OnRemove::Keep => &["ok"],
                OnRemove::Delete => &["deleted"],
                OnRemove::Restore => &["restored"],
            }
        }
    };
    examples.drop_all();
    each("taken back", &examples.ran(), left(Leaving::Restore));
    let kept: BTreeSet<&str> =
        types().filter(|kind| Leaving::Restore.of(kind) == OnRemove::Keep).map(|kind| kind.name).collect();
    assert_eq!(examples.holding(), kept);
    // What types that never take anything back left; a home, which is removed where `remove_home` says so
    // alone; files that were made for a part that is gone, and the directory of a mount.
    let stays = |line: &str| {
        [
            "/etc/ssh/sshd_config",
            "/etc/aliases.db",
            "/home/deploy",
            "/etc/app.json",
            "/root/.ssh/authorized_keys",
            "/srv/scratch",
        ]
        .iter()
        .any(|path| line.contains(path))
    };
    assert_same("taken back", &before, &host.sh(SNAPSHOT), stays);

    // Removed: what the examples made is gone.
    // A home that belongs to nobody is taken over by no new user.
    host.ok(["rm", "-r", "/home/deploy"]);
    examples.declare(Leaving::Delete, false);
    examples.ran();
    assert_eq!(examples.holding(), all);
    examples.drop_all();
    each("removed", &examples.ran(), left(Leaving::Delete));
    let kept: BTreeSet<&str> =
        types().filter(|kind| Leaving::Delete.of(kind) == OnRemove::Keep).map(|kind| kind.name).collect();
    assert_eq!(examples.holding(), kept);
    assert_eq!(host.ok(["systemctl", "--failed", "--no-legend"]), "");
}

/// Asserts that two snapshots have the same lines, but for some.
#[track_caller]
fn assert_same(step: &str, before: &str, after: &str, stays: impl Fn(&str) -> bool) {
    let lines = |text: &str| -> BTreeSet<String> {
        // A directory's own line changes with nothing that this is about.
        text.lines().filter(|line| !stays(line)).map(str::to_owned).collect()
    };
    let (before, after) = (lines(before), lines(after));
    let gone: Vec<&String> = before.difference(&after).collect();
    let new: Vec<&String> = after.difference(&before).collect();
    assert!(gone.is_empty() && new.is_empty(), "{step}: gone {gone:#?}\nnew {new:#?}");
}
