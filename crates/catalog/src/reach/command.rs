//! What of the way to a host a command touches: by the programs that it starts.
//!
//! A command is read as a shell would, as far as that says which programs it starts with which words: what only sets a
//! program up (`sudo`, `env`, `VAR=x`, `timeout 5`, `sh -c`) is looked behind. Where that cannot be said for certain (a
//! here-document, a function) a command is rather guarded than not.

use super::{PACKAGES, WayIn, exact, unit_reach};
use crate::module::CommandLine;

/// How deep `sh -c` and `env -S` are followed.
const MAX_DEPTH: u32 = 4;
/// Programs that set the network, the firewall or the resolver.
const PROGRAMS: &[(&str, WayIn)] = &[
    ("ip", WayIn::Network),
    ("tc", WayIn::Network),
    ("bridge", WayIn::Network),
    ("brctl", WayIn::Network),
    ("ifconfig", WayIn::Network),
    ("route", WayIn::Network),
    ("ifup", WayIn::Network),
    ("ifdown", WayIn::Network),
    ("ifreload", WayIn::Network),
    ("netplan", WayIn::Network),
    ("networkctl", WayIn::Network),
    ("nmcli", WayIn::Network),
    ("dhclient", WayIn::Network),
    ("wg", WayIn::Network),
    ("wg-quick", WayIn::Network),
    ("nft", WayIn::Firewall),
    ("ipset", WayIn::Firewall),
    ("iptables", WayIn::Firewall),
    ("iptables-restore", WayIn::Firewall),
    ("iptables-legacy", WayIn::Firewall),
    ("iptables-nft", WayIn::Firewall),
    ("ip6tables", WayIn::Firewall),
    ("ip6tables-restore", WayIn::Firewall),
    ("ip6tables-legacy", WayIn::Firewall),
    ("ip6tables-nft", WayIn::Firewall),
    ("ufw", WayIn::Firewall),
    ("firewall-cmd", WayIn::Firewall),
    ("resolvectl", WayIn::Resolver),
    ("resolvconf", WayIn::Resolver),
];
/// Programs that start the one that is named after their options, with the options that take a word of their own, and how
/// many words come before the program.
const WRAPPERS: &[(&str, &[&str], usize)] = &[
    ("sudo", &["-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-U", "-r", "-t", "--user", "--group"], 0),
    ("doas", &["-u", "-C"], 0),
    ("env", &["-u", "-C", "--unset", "--chdir"], 0),
    ("nice", &["-n", "--adjustment"], 0),
    ("ionice", &["-c", "-n", "--class", "--classdata"], 0),
    ("chrt", &["-T", "-P", "-D"], 1),
    ("nohup", &[], 0),
    ("setsid", &[], 0),
    ("stdbuf", &["-i", "-o", "-e"], 0),
    ("timeout", &["-s", "-k", "--signal", "--kill-after"], 1),
    ("flock", &["-w", "-E", "--timeout"], 1),
    ("systemd-run", &["-p", "-u", "-E", "--property", "--unit", "--uid", "--gid"], 0),
    ("xargs", &["-I", "-n", "-P", "-L", "-d", "-a", "-E", "-s"], 0),
    ("chroot", &[], 1),
    ("time", &["-f", "-o"], 0),
    ("exec", &["-a"], 0),
    ("command", &[], 0),
    ("builtin", &[], 0),
    ("busybox", &[], 0),
];
const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "zsh", "ksh"];
/// Words of a shell before which a command begins.
const KEYWORDS: &[&str] =
    &["if", "then", "elif", "else", "do", "while", "until", "!", "{", "}", "(", "fi", "done"];
/// What systemctl does that changes nothing.
const LOOKS: &[&str] =
    &["status", "show", "cat", "is-active", "is-enabled", "is-failed", "help", "list-dependencies"];
/// What makes a unit go by its files again.
const RELOADS: &[&str] = &[
    "start",
    "restart",
    "reload",
    "try-restart",
    "reload-or-restart",
    "try-reload-or-restart",
    "force-reload",
];
const PACKAGE_MANAGERS: &[&str] =
    &["apt", "apt-get", "aptitude", "dpkg", "dnf", "yum", "rpm", "zypper", "apk", "pacman"];

/// A program with its words, that touches the way to the host.
struct ReachingProgram {
    reach: WayIn,
    /// It makes the host go by files, and says nothing itself of how the host is to be.
    loads: bool,
}

/// What of the way to a host a command touches.
pub fn command_reach(command: &CommandLine) -> Option<WayIn> {
    programs(command).first().map(|program| program.reach)
}

/// Whether the last program of a command that touches the way to a host only makes it go by its files: the same command
/// makes it go by those that were put back. Of a command that sets the way itself (`ip link set eth0 down`) that is not
/// so, and of one that touches nothing by what is known of it, nobody can tell.
pub fn loads_files(command: &CommandLine) -> Option<bool> {
    programs(command).last().map(|program| program.loads)
}

fn programs(command: &CommandLine) -> Vec<ReachingProgram> {
    let mut found = Vec::new();
    match command {
        CommandLine::Argv(argv) => of_words(argv, 0, &mut found),
        CommandLine::Shell(text) => of_text(text, 0, &mut found),
    }
    found
}

fn of_text(text: &str, depth: u32, found: &mut Vec<ReachingProgram>) {
    if depth < MAX_DEPTH {
        for words in simple_commands(text) {
            of_words(&words, depth, found);
        }
    }
}

/// What one program is started for, behind what only sets it up.
fn of_words(words: &[String], depth: u32, found: &mut Vec<ReachingProgram>) {
    let mut words = words;
    loop {
        let is_setup = |word: &String| KEYWORDS.contains(&word.as_str()) || is_assignment(word);
        while words.first().is_some_and(is_setup) {
            words = &words[1..];
        }
        let Some((program, rest)) = words.split_first() else { return };
        let name = program.rsplit('/').next().unwrap_or(program);
        if SHELLS.contains(&name) {
            if let Some(text) = text_of_shell(rest) {
                of_text(text, depth + 1, found);
            }
            return;
        }
        let Some((_, with_word, before)) = WRAPPERS.iter().find(|(known, ..)| *known == name) else {
            let reach = program_reach(program, name, rest);
            found.extend(reach.map(|reach| ReachingProgram { reach, loads: loads(name, rest) }));
            return;
        };
        if name == "env"
            && let Some(text) = rest.iter().position(|word| word == "-S").and_then(|at| rest.get(at + 1))
        {
            return of_text(text, depth + 1, found);
        }
        words = behind_options(rest, with_word, *before);
    }
}

/// The text after `-c`, also in `-ec`.
fn text_of_shell(rest: &[String]) -> Option<&str> {
    let is_c = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    let at = rest.iter().position(is_c)?;
    rest.get(at + 1).map(String::as_str)
}

/// The words behind a wrapper's options, assignments and words of its own.
fn behind_options<'a>(rest: &'a [String], with_word: &[&str], before: usize) -> &'a [String] {
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        if word == "--" {
            at += 1;
            break;
        }
        if with_word.contains(&word.as_str()) {
            at += 2;
        } else if (word.starts_with('-') && word.len() > 1) || is_assignment(word) {
            at += 1;
        } else {
            break;
        }
    }
    rest.get(at + before..).unwrap_or_default()
}

fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn program_reach(program: &str, name: &str, rest: &[String]) -> Option<WayIn> {
    let any = |reach: &dyn Fn(&str) -> Option<WayIn>| rest.iter().find_map(|word| reach(word));
    match name {
        "sysctl" => {
            let is_net = |word: &str| {
                let is_key = word.strip_prefix("net").is_some_and(|rest| rest.starts_with(['.', '/']));
                is_key.then_some(WayIn::Network)
            };
            let loads_all = |word: &str| {
                (matches!(word, "-p" | "--system") || word.starts_with("--load")).then_some(WayIn::Network)
            };
            any(&is_net).or_else(|| any(&loads_all))
        }
        "systemctl" => {
            let verb = words_only(rest).next()?;
            match verb {
                _ if LOOKS.contains(&verb) || verb.starts_with("list-") => None,
                // What it does not name is stopped.
                "isolate" => Some(WayIn::Network),
                _ => words_only(rest).skip(1).find_map(unit_reach),
            }
        }
        "service" | "rc-service" | "update-rc.d" | "chkconfig" => {
            let mut words = words_only(rest);
            let (unit, verb) = (words.next()?, words.next());
            (verb != Some("status")).then(|| unit_reach(unit)).flatten()
        }
        _ if program.starts_with("/etc/init.d/") => {
            (rest.first().map(String::as_str) != Some("status")).then(|| unit_reach(name)).flatten()
        }
        _ if PACKAGE_MANAGERS.contains(&name) => {
            words_only(rest).find_map(|word| exact(PACKAGES, word.split([':', '=']).next().unwrap_or(word)))
        }
        _ => exact(PROGRAMS, name),
    }
}

fn words_only(rest: &[String]) -> impl Iterator<Item = &str> {
    rest.iter().map(String::as_str).filter(|word| !word.starts_with('-'))
}

/// Whether a program makes the host go by its files.
fn loads(name: &str, rest: &[String]) -> bool {
    let has = |wanted: &[&str]| rest.iter().any(|word| wanted.contains(&word.as_str()));
    match name {
        "nft" => has(&["-f", "--file"]),
        "iptables-restore" | "ip6tables-restore" | "ifreload" | "ifup" => true,
        "netplan" => has(&["apply", "generate"]),
        "networkctl" => has(&["reload", "reconfigure"]),
        "nmcli" => has(&["reload"]),
        "ufw" => has(&["reload"]),
        "firewall-cmd" => has(&["--reload", "--complete-reload"]),
        "resolvconf" => has(&["-u"]),
        "sysctl" => has(&["-p", "--system"]) || rest.iter().any(|word| word.starts_with("--load")),
        "systemctl" => words_only(rest).next().is_some_and(|verb| RELOADS.contains(&verb)),
        "service" | "rc-service" => words_only(rest).nth(1).is_some_and(|verb| RELOADS.contains(&verb)),
        _ => rest.first().is_some_and(|verb| RELOADS.contains(&verb.as_str())),
    }
}

/// The commands of a text, each as its words without quotes.
fn simple_commands(text: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some('"') | None, '\\') => {
                // A line goes on.
                if let Some(next) = letters.next().filter(|next| *next != '\n') {
                    word.get_or_insert_default().push(next);
                }
            }
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => while letters.next_if(|next| *next != '\n').is_some() {},
            (None, ';' | '&' | '|' | '\n' | '(' | ')' | '`') => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CNV-11: what a command sets is known behind what starts it.
    #[test]
    fn programs_are_known_behind_what_starts_them() {
        let (network, firewall) = (Some(WayIn::Network), Some(WayIn::Firewall));
        let table = [
            ("ip route add default via 10.0.0.1", network),
            ("/usr/sbin/nft -f /etc/nftables.conf", firewall),
            ("zip a b", None),
            ("sudo ip link set eth0 down", network),
            ("sudo -u root -n -- nft flush ruleset", firewall),
            ("doas ufw deny 22", firewall),
            ("env -i PATH=/sbin ip link set eth0 down", network),
            ("env -S 'ip link set eth0 down'", network),
            ("LANG=C DEBUG= iptables -P INPUT DROP", firewall),
            (
                "LANG=C sudo env A=b nice -n 5 timeout -k 3 10s tc qdisc add dev eth0 root netem loss 100%",
                network,
            ),
            ("sh -c 'sleep 1; ip link set eth0 down'", network),
            ("bash -ec \"echo a && sudo ufw enable\"", firewall),
            ("echo ip link set eth0 down", None),
            ("# ip link set eth0 down", None),
            ("echo 'a; ip link' && true", None),
            ("test -e /x || ip link set eth0 up", network),
            ("if true; then nft flush ruleset; fi", firewall),
            ("echo $(ip route del default)", network),
            ("(cd /; ifdown eth0)", network),
            ("nohup setsid ifdown eth0 &", network),
            ("yes | ufw reset", firewall),
            ("tc qdisc del dev eth0 root", network),
            ("sysctl -w net.ipv4.ip_forward=0", network),
            ("sysctl net/ipv4/ip_forward=0", network),
            ("sysctl -w vm.swappiness=1", None),
            ("sysctl -w network.x=1", None),
            ("sysctl --system", network),
            ("systemctl stop systemd-networkd", network),
            ("systemctl disable --now NetworkManager.service", network),
            ("systemctl --now mask networking nginx", network),
            ("systemctl mask ssh.socket", Some(WayIn::RemoteLogin)),
            ("systemctl stop nginx", None),
            ("systemctl status ssh", None),
            ("systemctl is-active systemd-networkd", None),
            ("systemctl stop muster-agent", Some(WayIn::Agent)),
            ("systemctl isolate rescue.target", network),
            ("service ssh stop", Some(WayIn::RemoteLogin)),
            ("service ssh status", None),
            ("/etc/init.d/networking stop", network),
            ("apt-get -y purge openssh-server", Some(WayIn::RemoteLogin)),
            ("apt-get install -y nginx", None),
            ("resolvectl dns eth0 1.1.1.1", Some(WayIn::Resolver)),
            ("echo a \\\n ip", None),
            ("", None),
            ("sudo", None),
            ("timeout", None),
            ("A=b", None),
        ];
        for (text, reach) in table {
            assert_eq!(command_reach(&CommandLine::Shell(text.to_owned())), reach, "{text}");
        }
        let argv = |words: &[&str]| CommandLine::Argv(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(command_reach(&argv(&["/usr/bin/sudo", "-u", "root", "ip", "link"])), network);
        assert_eq!(command_reach(&argv(&["sh", "-c", "exec tc qdisc del dev eth0 root"])), network);
        assert_eq!(command_reach(&argv(&["echo", "ip", "; ip link"])), None);
        assert_eq!(command_reach(&argv(&[])), None);
    }

    /// CNV-11: what makes the host go by its files may run again once they were put back; what sets it does not.
    #[test]
    fn what_loads_files_is_known() {
        let table = [
            ("nft -f /etc/nftables.conf", Some(true)),
            ("nft flush ruleset && nft -f /etc/nftables.conf", Some(true)),
            ("nft flush ruleset", Some(false)),
            ("netplan apply", Some(true)),
            ("sudo systemctl restart systemd-networkd", Some(true)),
            ("systemctl stop systemd-networkd", Some(false)),
            ("ip link set eth0 down", Some(false)),
            ("iptables-restore < /etc/iptables/rules.v4", Some(true)),
            ("iptables -P INPUT DROP", Some(false)),
            ("sysctl --system", Some(true)),
            ("sysctl -w net.ipv4.ip_forward=0", Some(false)),
            ("/etc/init.d/networking restart", Some(true)),
            ("/usr/local/sbin/apply-firewall", None),
        ];
        for (text, loads) in table {
            assert_eq!(loads_files(&CommandLine::Shell(text.to_owned())), loads, "{text}");
        }
    }
}
