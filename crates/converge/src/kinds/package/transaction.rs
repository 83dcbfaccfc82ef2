//! A transaction of several packages: who may go on, decided from dry runs of apt.
//!
//! ```text
//! dry run of all -> agreed -> within the rules? -> all go on
//!                -> refused -> names whom it does not know: those are to blame, the rest again
//!                           -> else halves, the first ones first: who fits to those before goes on
//! ```
//!
//! So the outcome is that of one package after the other, in the order in which they are declared, with
//! as many dry runs as the number of those to blame asks for.

use std::collections::{BTreeMap, BTreeSet};

use catalog::types::TransactionOptions;
use model::sort::SortCompactly;

use super::PackageRequest;

/// The most dry runs of one transaction; who is not decided by then is refused.
pub const MAX_DRY_RUNS: usize = 64;
/// Lines of output that are shown before the words of a failure.
const SHOWN_LINES: usize = 8;

/// What apt says that a transaction would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    /// Packages that would be installed or upgraded.
    pub installs: BTreeSet<String>,
    /// Packages that would be removed.
    pub removals: BTreeSet<String>,
}

/// What apt says to a dry run: what it would do, or its words against it; the error is that it could not
/// be asked.
pub type DryRunAnswer = Result<Result<DryRun, String>, String>;

/// The same, where what apt agrees to was judged too.
type JudgedAnswer = Result<Result<(), String>, String>;

/// Who may go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Members whose transaction apt agrees to, in order.
    pub accepted: Vec<usize>,
    /// Members to blame, with apt's words.
    pub refused: Vec<(usize, PackageRefusal)>,
}

/// Why a member cannot be part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackageRefusal {
    /// Neither the package nor the version is known; other lists of packages may know it.
    Unknown(String),
    /// It cannot be done on this host as it is.
    Impossible(String),
}

impl PackageRefusal {
    /// In words.
    pub fn words(&self) -> &str {
        match self {
            PackageRefusal::Unknown(words) | PackageRefusal::Impossible(words) => words,
        }
    }
}

/// Decides who of `names` may go on. `dry_run` asks apt about some of them, by number, and gives apt's
/// words where it refuses; `judge` says in words what is wrong with something that apt agrees to.
///
/// # Errors
/// When apt cannot be asked.
pub fn choose(
    names: &[&str],
    dry_run: &mut dyn FnMut(&[usize]) -> DryRunAnswer,
    judge: &dyn Fn(&[usize], &DryRun) -> Option<String>,
) -> Result<Choice, String> {
    let mut choice = Choice::default();
    let mut left: Vec<usize> = (0..names.len()).collect();
    let mut asked = 0;
    let mut ask = |members: &[usize]| -> JudgedAnswer {
        asked += 1;
        if asked > MAX_DRY_RUNS {
            return Ok(Err(
                "too many packages of its transaction cannot be installed; see to those first".to_owned()
            ));
        }
        Ok(match dry_run(members)? {
            Ok(plan) => judge(members, &plan).map_or(Ok(()), Err),
            Err(words) => Err(words),
        })
    };
    while !left.is_empty() {
        let Err(words) = ask(&left)? else {
            choice.accepted = left;
            return Ok(sorted(choice));
        };
        let unknown: Vec<usize> =
            left.iter().copied().filter(|at| unknown(&words, names[*at]).is_some()).collect();
        if unknown.is_empty() {
            // Whoever is alone is to blame, and need not be asked again.
            let known = (left.len() == 1).then_some(words);
            split(&mut choice, &left, known, &mut ask)?;
            return Ok(sorted(choice));
        }
        left.retain(|at| !unknown.contains(at));
        choice.refused.extend(
            unknown
                .into_iter()
                .filter_map(|at| Some((at, PackageRefusal::Unknown(self::unknown(&words, names[at])?)))),
        );
    }
    Ok(sorted(choice))
}

/// Accepts of `some`, which apt refuses together with what is accepted, as many as fit. `known` are
/// apt's words where it was just asked about them.
fn split(
    choice: &mut Choice,
    some: &[usize],
    known: Option<String>,
    ask: &mut dyn FnMut(&[usize]) -> JudgedAnswer,
) -> Result<(), String> {
    if let ([one], Some(words)) = (some, known) {
        choice.refused.push((*one, PackageRefusal::Impossible(words)));
        return Ok(());
    }
    let (first, second) = some.split_at(some.len() / 2);
    for half in [first, second].into_iter().filter(|half| !half.is_empty()) {
        let with: Vec<usize> = choice.accepted.iter().chain(half).copied().collect();
        match ask(&with)? {
            Ok(()) => choice.accepted = with,
            Err(words) => {
                let known = (half.len() == 1).then_some(words);
                split(choice, half, known, ask)?;
            }
        }
    }
    Ok(())
}

fn sorted(mut choice: Choice) -> Choice {
    choice.accepted.sort_compactly();
    choice.refused.sort_compactly_by_key(|(at, _)| *at);
    choice
}

/// Reads what `apt-get -s` printed.
pub fn dry_run(stdout: &str) -> DryRun {
    let mut plan = DryRun::default();
    for line in stdout.lines() {
        let mut words = line.split(' ');
        let (what, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
        match what {
            "Inst" => drop(plan.installs.insert(name)),
            "Remv" | "Purg" => drop(plan.removals.insert(name)),
            _ => {}
        }
    }
    plan
}

/// What a transaction may do beside what is declared.
pub struct TransactionRules<'a> {
    /// Whether a package is part of it.
    pub declared: &'a dyn Fn(&str) -> bool,
    /// Whether a package is declared absent.
    pub absent: &'a dyn Fn(&str) -> bool,
    /// Whether upgrades have to pass a package by.
    pub held: &'a dyn Fn(&str) -> bool,
    /// It may remove what is in its way.
    pub removals: bool,
}

impl TransactionRules<'_> {
    /// Why a plan of apt breaks them: it removes what nobody declared absent, or changes what is held.
    pub fn refuse(&self, plan: &DryRun) -> Option<String> {
        let removed: Vec<&str> =
            plan.removals.iter().map(String::as_str).filter(|name| !(self.absent)(name)).collect();
        if !removed.is_empty() && !self.removals {
            return Some(format!(
                "it would remove {}, which nobody declared absent; `allow_removals: true` allows it",
                removed.join(", ")
            ));
        }
        let all = plan.installs.iter().chain(&plan.removals).map(String::as_str);
        let changed: Vec<&str> = all.filter(|name| (self.held)(name) && !(self.declared)(name)).collect();
        let held = || {
            format!(
                "it would change {}, which is held (apt-mark hold) and which no resource declares; declare it too, \
                 or release it (`apt-mark unhold`)",
                changed.join(", ")
            )
        };
        (!changed.is_empty()).then(held)
    }
}

/// The arguments of `apt-get` for a transaction.
pub fn arguments(
    options: &TransactionOptions,
    leave: Leave,
    lock_timeout_secs: u64,
    requests: &[(&str, &PackageRequest)],
) -> Vec<String> {
    let conffiles = if options.replace_conffiles { "--force-confnew" } else { "--force-confold" };
    let mut arguments = vec![
        "-y".to_owned(),
        "-q".to_owned(),
        "-o".to_owned(),
        "Dpkg::Options::=--force-confdef".to_owned(),
        "-o".to_owned(),
        format!("Dpkg::Options::={conffiles}"),
        "-o".to_owned(),
        "Dpkg::Use-Pty=0".to_owned(),
        "-o".to_owned(),
        format!("DPkg::Lock::Timeout={lock_timeout_secs}"),
    ];
    if let Some(release) = &options.default_release {
        arguments.extend(["-t".to_owned(), release.clone()]);
    }
    arguments.extend(
        options.install_recommends.map(|yes| format!("--{}install-recommends", if yes { "" } else { "no-" })),
    );
    arguments.extend(leave.downgrade.then(|| "--allow-downgrades".to_owned()));
    arguments.extend(leave.change_held.then(|| "--allow-change-held-packages".to_owned()));
    let only_removals = requests.iter().all(|(_, request)| **request == PackageRequest::Remove);
    arguments.push(if only_removals { "remove" } else { "install" }.to_owned());
    arguments.extend(requests.iter().map(|(name, request)| match request {
        PackageRequest::Install(target) => target.clone(),
        PackageRequest::Remove if only_removals => (*name).to_owned(),
        // What a sign at the end means to `install`.
        PackageRequest::Remove => format!("{name}-"),
    }));
    arguments
}

/// What apt may do that it does not do by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leave {
    /// Go down to an older version.
    pub downgrade: bool,
    /// Change packages that are held.
    pub change_held: bool,
}

/// What apt says of a package or a version that it does not know.
fn unknown(words: &str, name: &str) -> Option<String> {
    let (plain, _) = name.split_once(':').unwrap_or((name, ""));
    let quoted = [format!("'{name}'"), format!("'{plain}'")];
    let line = words.lines().find(|line| {
        let located = line.strip_prefix("E: Unable to locate package ").map(str::trim);
        let by_name = line.starts_with("E: Package ") || line.starts_with("E: Version ");
        located == Some(name)
            || located == Some(plain)
            || by_name && quoted.iter().any(|quoted| line.contains(quoted.as_str()))
    })?;
    Some(line.trim_start_matches("E: ").to_owned())
}

/// What apt said against a transaction: its errors, and which dependencies are in the way.
pub fn words(stdout: &str, stderr: &str) -> String {
    let mut said: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in stdout.lines() {
        inside = match line.strip_suffix(':') {
            Some(title) => title.starts_with("The following") && title.contains("unmet dependencies"),
            None => inside && line.starts_with(' '),
        };
        if inside && line.starts_with(' ') {
            said.push(line.trim());
        }
    }
    said.extend(stderr.lines().filter(|line| line.starts_with("E: ")));
    if said.is_empty() {
        said.extend(stderr.lines().chain(stdout.lines()).filter(|line| !line.is_empty()).take(SHOWN_LINES));
    }
    said.join("\n")
}

/// Why a package of a transaction that ran is not as it should be: what dpkg said of it, with the output
/// before that; the end of all output where it did not name it.
pub fn failure(name: &str, output: &str) -> String {
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let (plain, _) = name.split_once(':').unwrap_or((name, ""));
    let error = lines.iter().position(|line| {
        let of = line.strip_prefix("dpkg: error processing ").unwrap_or_default();
        let package = of.strip_prefix("package ").and_then(|rest| rest.split([' ', ':']).next());
        let archive = of.strip_prefix("archive ").and_then(|rest| rest.split(' ').next());
        let file = archive.and_then(|path| path.rsplit('/').next()).and_then(|file| file.split('_').next());
        package == Some(plain) || file == Some(plain)
    });
    let (from, to) = match error {
        Some(at) => {
            let end = lines[at + 1..].iter().take_while(|line| line.starts_with(' ')).count();
            let began = lines[..at].iter().rposition(|line| begins(line)).unwrap_or(0);
            (began.max(at.saturating_sub(SHOWN_LINES)), at + 1 + end)
        }
        None => (lines.len().saturating_sub(SHOWN_LINES), lines.len()),
    };
    let said = lines[from..to].join("\n");
    match lacks_space(output) {
        true if !said.contains("No space left") => format!("{said}\n(No space left on device)"),
        _ => said,
    }
}

/// Whether the disk was full: dpkg quotes the system's own words, which `LC_ALL=C` keeps in English.
pub fn lacks_space(output: &str) -> bool {
    output.contains("No space left")
}

/// A line with which the work on a package begins.
fn begins(line: &str) -> bool {
    ["Setting up ", "Unpacking ", "Preparing to unpack ", "Removing ", "dpkg: error "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// The versions that are offered, by package, as `apt-cache policy` printed them.
pub fn offered(stdout: &str) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let mut package = None;
    for line in stdout.lines() {
        match line.strip_prefix("  Candidate: ") {
            Some("(none)") | None => {}
            Some(version) => versions.extend(package.map(|name: &str| (name.to_owned(), version.to_owned()))),
        }
        if !line.starts_with(' ') {
            package = line.strip_suffix(':');
        }
    }
    versions
}

/// Whether archives could not be had, so that other lists or a later run may help.
pub fn could_not_fetch(stderr: &str) -> bool {
    stderr
        .lines()
        .any(|line| line.starts_with("E: Failed to fetch") || line.starts_with("E: Unable to fetch"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_says_what_would_come_and_go() {
        let plan = dry_run(
            "Reading package lists...\nInst nginx [1.18] (1.22.1-9 Debian:12/stable [amd64])\n\
             Inst libc6:i386 (2.36 Debian:12/stable [i386])\nConf nginx (1.22.1-9)\nRemv exim4 [4.96]\nPurg mutt [2]\n",
        );
        assert_eq!(plan.installs, BTreeSet::from(["libc6:i386".to_owned(), "nginx".to_owned()]));
        assert_eq!(plan.removals, BTreeSet::from(["exim4".to_owned(), "mutt".to_owned()]));
        let nobody = |_: &str| false;
        let rules = |absent: &dyn Fn(&str) -> bool, held: &dyn Fn(&str) -> bool, removals: bool| {
            TransactionRules { declared: &|name| name == "libc6:i386", absent, held, removals }.refuse(&plan)
        };
        let why = rules(&|name| name == "mutt", &nobody, false).unwrap();
        assert!(why.starts_with("it would remove exim4, which nobody declared absent"), "{why}");
        assert_eq!(rules(&|name| name != "nginx", &nobody, false), None);
        assert_eq!(rules(&nobody, &|name| name == "libc6:i386", true), None);
        let why = rules(&nobody, &|name| name == "nginx", true).unwrap();
        assert_eq!(
            why,
            "it would change nginx, which is held (apt-mark hold) and which no resource declares; declare it \
             too, or release it (`apt-mark unhold`)"
        );
    }

    /// apt over packages of which some are unknown, some conflict, some would remove another one.
    fn decided(names: &[&str], conflicts: &[(&str, &str)]) -> (Choice, usize) {
        let mut asked = 0;
        let choice = choose(
            names,
            &mut |members| {
                asked += 1;
                let there: Vec<&str> = members.iter().map(|at| names[*at]).collect();
                let unknown: Vec<String> = there
                    .iter()
                    .filter(|name| name.starts_with("no-"))
                    .map(|name| format!("E: Unable to locate package {name}"))
                    .collect();
                if !unknown.is_empty() {
                    return Ok(Err(unknown.join("\n")));
                }
                let both = conflicts.iter().find(|(a, b)| there.contains(a) && there.contains(b));
                Ok(match both {
                    Some((a, b)) => Err(format!("{a} : Conflicts: {b}")),
                    None => Ok(DryRun {
                        removals: there
                            .iter()
                            .filter(|name| name.starts_with("rm-"))
                            .map(|_| "bash".to_owned())
                            .collect(),
                        ..DryRun::default()
                    }),
                })
            },
            &|_, plan| {
                let none = |_: &str| false;
                TransactionRules { declared: &none, absent: &none, held: &none, removals: false }.refuse(plan)
            },
        );
        (choice.unwrap(), asked)
    }

    #[test]
    fn one_dry_run_is_enough_where_all_is_well() {
        let (choice, asked) = decided(&["a", "b", "c"], &[]);
        assert_eq!((choice.accepted, choice.refused.len(), asked), (vec![0, 1, 2], 0, 1));
        assert_eq!(decided(&[], &[]).1, 0);
    }

    #[test]
    fn who_is_not_known_is_found_at_once() {
        let (choice, asked) = decided(&["a", "no-b", "c", "no-d"], &[]);
        assert_eq!((choice.accepted, asked), (vec![0, 2], 2));
        let unknown = |name: &str| PackageRefusal::Unknown(format!("Unable to locate package {name}"));
        assert_eq!(choice.refused, [(1, unknown("no-b")), (3, unknown("no-d"))]);
    }

    #[test]
    fn who_is_declared_first_goes_on_as_if_each_were_applied_by_itself() {
        let (choice, _) = decided(&["a", "b", "rm-c", "d"], &[("a", "d")]);
        assert_eq!(choice.accepted, [0, 1]);
        let why: Vec<&str> = choice.refused.iter().map(|(_, refusal)| refusal.words()).collect();
        assert!(why[0].contains("would remove bash") && why[1] == "a : Conflicts: d", "{why:?}");
    }

    #[test]
    fn one_to_blame_among_many_costs_few_dry_runs() {
        let many: Vec<String> =
            (0..100).map(|n| if n == 41 { "rm-x".to_owned() } else { format!("p{n}") }).collect();
        let names: Vec<&str> = many.iter().map(String::as_str).collect();
        let (choice, asked) = decided(&names, &[]);
        assert_eq!((choice.accepted.len(), choice.refused[0].0), (99, 41));
        assert!(asked <= 16, "{asked}");
        let all: Vec<&str> = vec!["rm-x"; 100];
        let (choice, asked) = decided(&all, &[]);
        assert_eq!((choice.refused.len(), asked), (100, MAX_DRY_RUNS));
    }

    #[test]
    fn apt_is_quoted() {
        let stdout = "Some packages could not be installed.\n\nThe following packages have unmet dependencies:\n a : Depends: b (>= 2) but 1 is to be installed\n     Depends: c but it is not installable\nThe following NEW packages:\n x\n";
        let stderr = "WARNING: x\nE: Unable to correct problems, you have held broken packages.\n";
        assert_eq!(
            words(stdout, stderr),
            "a : Depends: b (>= 2) but 1 is to be installed\nDepends: c but it is not installable\n\
             E: Unable to correct problems, you have held broken packages."
        );
        assert_eq!(words("", "something else\n"), "something else");
        let version =
            "E: Version '9' for 'nginx' was not found\nE: Package 'b' has no installation candidate";
        assert_eq!(unknown(version, "nginx").as_deref(), Some("Version '9' for 'nginx' was not found"));
        assert_eq!(unknown(version, "b:i386").as_deref(), Some("Package 'b' has no installation candidate"));
        assert_eq!(unknown("E: Unable to locate package nginx-extras", "nginx"), None);
    }

    #[test]
    fn what_is_offered_is_read_by_package() {
        let policy = "alpha:\n  Installed: 2.0\n  Candidate: 3.0\n  Version table:\n     3.0 500\nlibc6:i386:\n  Installed: (none)\n  Candidate: 2.36\nnone:\n  Candidate: (none)\n";
        let pairs = [("alpha", "3.0"), ("libc6:i386", "2.36")];
        assert_eq!(
            offered(policy),
            pairs.map(|(name, version)| (name.to_owned(), version.to_owned())).into()
        );
    }

    #[test]
    fn a_transaction_is_asked_for_in_one_call() {
        let options = TransactionOptions {
            default_release: Some("sid".to_owned()),
            install_recommends: Some(false),
            start_services: true,
            replace_conffiles: true,
            allow_removals: false,
            purge: false,
            lock_timeout: std::time::Duration::ZERO,
        };
        let (install, remove) = (PackageRequest::Install("a=1".to_owned()), PackageRequest::Remove);
        let leave = Leave { downgrade: true, change_held: false };
        let both = arguments(&options, leave, 9, &[("a", &install), ("b", &remove)]).join(" ");
        assert_eq!(
            both,
            "-y -q -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confnew -o Dpkg::Use-Pty=0 \
             -o DPkg::Lock::Timeout=9 -t sid --no-install-recommends --allow-downgrades install a=1 b-"
        );
        let gone = arguments(&options, Leave::default(), 9, &[("b", &remove)]).join(" ");
        assert!(gone.ends_with("--no-install-recommends remove b"), "{gone}");
    }

    #[test]
    fn a_failure_is_that_of_its_package() {
        let output = "Setting up good (1) ...\nSetting up bad (1) ...\nthe database is not there\n\
            dpkg: error processing package bad (--configure):\n installed bad package post-installation script subprocess returned error exit status 3\n\
            Setting up other (1) ...\nErrors were encountered while processing:\n bad\n";
        assert_eq!(
            failure("bad", output),
            "Setting up bad (1) ...\nthe database is not there\n\
             dpkg: error processing package bad (--configure):\n installed bad package post-installation script subprocess returned error exit status 3"
        );
        let full = "Unpacking big (1) ...\ndpkg: error processing archive /var/cache/apt/archives/big_1_all.deb (--unpack):\n cannot copy extracted data: failed to write (No space left on device)\nE: Sub-process\n";
        assert!(
            failure("big", full).ends_with("failed to write (No space left on device)"),
            "{}",
            failure("big", full)
        );
        assert!(failure("other", full).contains("E: Sub-process"));
    }
}
