//! `package`: what a package is, what it should be, and what leads there.
//!
//! ```text
//! files of dpkg and apt -> PackageDatabase -> observe -> desired -> change
//! changes of many -> dry runs (`transaction`) -> who goes on, who is to blame
//! ```

use std::cmp::Ordering;

use catalog::types::{PackageSpec, StateSpec, WantedPackage};
use model::Fields;

pub mod database;
pub mod transaction;
pub mod version;

use database::{PackageDatabase, PackageStatus};

/// What the host has of a package. What only its configuration is left of is nothing, unless that is to
/// go too.
pub fn observe(spec: &PackageSpec, database: &PackageDatabase) -> Option<Fields> {
    let known = database.find(&spec.name)?;
    let mut fields = Fields::from([("status".to_owned(), known.status.word().to_owned())]);
    if known.status == PackageStatus::ConfigFiles {
        return spec.options.purge.then_some(fields);
    }
    fields.insert("version".to_owned(), known.version.clone());
    fields.insert("hold".to_owned(), known.hold.to_string());
    fields.insert("auto".to_owned(), database.is_auto(&spec.name).to_string());
    Some(fields)
}

/// What it should be, given what it is. `offered` is the version that the repositories offer, where it
/// is asked for.
///
/// # Errors
/// When a downgrade would be needed that is not allowed.
pub fn desired(
    spec: &PackageSpec,
    now: Option<&Fields>,
    offered: Option<&str>,
) -> Result<Option<Fields>, String> {
    if spec.wanted == WantedPackage::Absent {
        return Ok(None);
    }
    let mut to = spec.declared();
    // What is declared is wanted for itself: it must not go when nothing needs it any more.
    to.insert("auto".to_owned(), "false".to_owned());
    let there = now.and_then(|now| now.get("version"));
    match (&spec.wanted, there) {
        (WantedPackage::Version { pattern, downgrade }, Some(there)) => {
            if version::matches(pattern, there) {
                to.insert("version".to_owned(), there.clone());
            } else if !downgrade
                && !version::is_pattern(pattern)
                && version::compare(pattern, there) == Ordering::Less
            {
                let name = &spec.name;
                return Err(format!(
                    "{name} {there} is installed, and {pattern} is older; `allow_downgrade: true` goes down"
                ));
            }
        }
        (WantedPackage::Latest, there) => {
            let newer = |offered: &&str| {
                there.is_none_or(|there| version::compare(offered, there) == Ordering::Greater)
            };
            let version = offered.filter(newer).map(str::to_owned).or(there.cloned());
            to.extend(version.map(|version| ("version".to_owned(), version)));
        }
        (WantedPackage::Any | WantedPackage::Absent | WantedPackage::Version { .. }, _) => {}
    }
    Ok(Some(to))
}

/// What leads from one state of a package to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageChange {
    /// What apt is asked.
    pub request: Option<PackageRequest>,
    /// Whether upgrades are to pass it by from now on.
    pub hold: Option<bool>,
    /// Whether it is to count as installed because something else needs it.
    pub auto: Option<bool>,
}

/// What apt is asked about a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackageRequest {
    /// To install it: a name, `NAME=VERSION`, or a file.
    Install(String),
    /// To remove it.
    Remove,
}

/// What leads from `now` to `to`.
///
/// # Errors
/// When the package is held by somebody else, so that it must not be changed.
pub fn change(
    spec: &PackageSpec,
    now: Option<&Fields>,
    to: Option<&Fields>,
) -> Result<PackageChange, String> {
    let of = |state: Option<&Fields>, name: &str| state.and_then(|state| state.get(name)).cloned();
    let request = match to {
        None => now.map(|_| PackageRequest::Remove),
        Some(to) => {
            let same = |name: &str| to.get(name).is_none_or(|wanted| of(now, name).as_ref() == Some(wanted));
            (!same("status") || !same("version")).then(|| PackageRequest::Install(target(spec, to)))
        }
    };
    let held = of(now, "hold").as_deref() == Some("true");
    if held && request.is_some() && spec.hold.is_none() {
        let there = of(now, "version").unwrap_or_default();
        let name = &spec.name;
        return Err(match request {
            Some(PackageRequest::Remove) => format!(
                "{name} is held at {there} (apt-mark hold), so it is not removed; `apt-mark unhold {name}` releases \
                 it, or declare it with `state: absent` and `hold: false`"
            ),
            _ => format!(
                "{name} is held at {there} (apt-mark hold); `hold: true` or `hold: false` takes the hold over"
            ),
        });
    }
    let flag = |name: &str| -> Option<bool> {
        let wanted = of(to, name)? == "true";
        (wanted != (of(now, name).as_deref() == Some("true"))).then_some(wanted)
    };
    Ok(PackageChange { request, hold: flag("hold"), auto: flag("auto") })
}

/// What of a package apt is asked to install.
fn target(spec: &PackageSpec, to: &Fields) -> String {
    match (&spec.deb, to.get("version"), &spec.wanted) {
        (Some(deb), _, wanted) if *wanted != WantedPackage::Absent => deb.clone(),
        // apt finds the newest one by itself, and it may be newer by then.
        (_, _, WantedPackage::Latest) | (_, None, _) => spec.name.clone(),
        (_, Some(version), _) => format!("{}={version}", spec.name),
    }
}

/// Whether apt may go down to an older version.
pub fn may_downgrade(spec: &PackageSpec) -> bool {
    matches!(spec.wanted, WantedPackage::Version { downgrade: true, .. })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use catalog::types::TransactionOptions;

    fn spec(wanted: WantedPackage) -> PackageSpec {
        PackageSpec {
            name: "nginx".to_owned(),
            wanted,
            hold: None,
            deb: None,
            responses: Vec::new(),
            cache_valid: Duration::ZERO,
            options: TransactionOptions {
                default_release: None,
                install_recommends: None,
                start_services: true,
                replace_conffiles: false,
                allow_removals: false,
                purge: false,
                lock_timeout: Duration::ZERO,
            },
        }
    }

    fn version(pattern: &str, downgrade: bool) -> PackageSpec {
        spec(WantedPackage::Version { pattern: pattern.to_owned(), downgrade })
    }

    fn state(text: &str) -> Option<Fields> {
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        let fields: Fields = pairs.map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        (!fields.is_empty()).then_some(fields)
    }

    fn asked(spec: &PackageSpec, now: &str, offered: Option<&str>) -> Result<String, String> {
        let now = state(now);
        let to = desired(spec, now.as_ref(), offered)?;
        let change = change(spec, now.as_ref(), to.as_ref())?;
        let request = match change.request {
            None => "-".to_owned(),
            Some(PackageRequest::Install(target)) => target,
            Some(PackageRequest::Remove) => "remove".to_owned(),
        };
        let flag =
            |name: &str, flag: Option<bool>| flag.map(|on| format!(" {name}={on}")).unwrap_or_default();
        Ok(format!("{request}{}{}", flag("hold", change.hold), flag("auto", change.auto)))
    }

    #[test]
    fn what_apt_is_asked_follows_from_what_is_there() {
        let there = "status=installed version=1.22.1-9 hold=false auto=false";
        let auto = "status=installed version=1.22.1-9 hold=false auto=true";
        let half = "status=half-configured version=1.22.1-9 hold=false auto=false";
        for (wanted, now, offered, expected) in [
            (spec(WantedPackage::Any), "", None, "nginx"),
            (spec(WantedPackage::Any), there, None, "-"),
            (spec(WantedPackage::Any), auto, None, "- auto=false"),
            (spec(WantedPackage::Any), half, None, "nginx"),
            (spec(WantedPackage::Absent), "", None, "-"),
            (spec(WantedPackage::Absent), there, None, "remove"),
            (spec(WantedPackage::Absent), "status=config-files", None, "remove"),
            (version("1.22.*", false), "", None, "nginx=1.22.*"),
            (version("1.22.*", false), there, None, "-"),
            (version("1.24.*", false), there, None, "nginx=1.24.*"),
            (version("1.24.0-1", false), there, None, "nginx=1.24.0-1"),
            (version("1.18.0-6", true), there, None, "nginx=1.18.0-6"),
            (spec(WantedPackage::Latest), "", Some("1.24"), "nginx"),
            (spec(WantedPackage::Latest), there, Some("1.24"), "nginx"),
            (spec(WantedPackage::Latest), there, Some("1.22.1-9"), "-"),
            (spec(WantedPackage::Latest), there, Some("1.18"), "-"),
            (spec(WantedPackage::Latest), there, None, "-"),
            (PackageSpec { hold: Some(true), ..spec(WantedPackage::Any) }, there, None, "- hold=true"),
            (PackageSpec { hold: Some(true), ..spec(WantedPackage::Any) }, "", None, "nginx hold=true"),
            (PackageSpec { hold: Some(false), ..spec(WantedPackage::Any) }, there, None, "-"),
        ] {
            assert_eq!(asked(&wanted, now, offered).as_deref(), Ok(expected), "{wanted:?} {now}");
        }
    }

    #[test]
    fn an_older_version_needs_leave() {
        let why = asked(&version("1.18.0-6", false), "status=installed version=1.22.1-9", None).unwrap_err();
        assert!(
            why.contains("1.22.1-9 is installed, and 1.18.0-6 is older; `allow_downgrade: true`"),
            "{why}"
        );
    }

    #[test]
    fn what_somebody_else_holds_is_not_changed() {
        let held = "status=installed version=1.22.1-9 hold=true auto=false";
        for wanted in [version("1.24", false), spec(WantedPackage::Absent)] {
            let why = asked(&wanted, held, None).unwrap_err();
            assert!(why.contains("nginx is held at 1.22.1-9"), "{why}");
        }
        assert_eq!(asked(&spec(WantedPackage::Any), held, None).as_deref(), Ok("-"));
        let ours = PackageSpec { hold: Some(true), ..version("1.24", false) };
        assert_eq!(asked(&ours, held, None).as_deref(), Ok("nginx=1.24"));
    }

    #[test]
    fn what_was_there_before_is_put_back() {
        let (now, before) = (
            state("status=installed version=2 hold=false"),
            state("status=installed version=1 hold=true auto=true"),
        );
        let spec = spec(WantedPackage::Absent);
        let back = change(&spec, now.as_ref(), before.as_ref()).unwrap();
        assert_eq!(back.request, Some(PackageRequest::Install("nginx=1".to_owned())));
        assert_eq!((back.hold, back.auto), (Some(true), Some(true)));
    }
}
