//! `group`: which calls of the shadow suite's tools lead from what the host has to what is declared.

use catalog::types::{Ensure, GroupSpec, StateSpec};
use model::{Edit, Fields};

use super::accounts::{AccountDatabase, is_system_number};
use super::user::{AccountCall, joined};

/// What the database says of the group, by the names of its attributes.
pub fn observe(spec: &GroupSpec, database: &AccountDatabase) -> Option<Fields> {
    let group = database.group(&spec.name)?;
    let members: Vec<&str> = group.members.iter().map(String::as_str).collect();
    Some(Fields::from([("gid".to_owned(), group.gid.to_string()), ("members".to_owned(), members.join(" "))]))
}

/// The state that the group should have: as declared, with the members that it keeps.
pub fn desired(spec: &GroupSpec, now: Option<&Fields>) -> Option<Fields> {
    if spec.ensure == Ensure::Absent {
        return None;
    }
    let mut wanted = spec.declared();
    if let (Some(declared), false) = (&spec.members, spec.exclusive) {
        wanted.insert("members".to_owned(), joined(now, "members", declared));
    }
    Some(wanted)
}

/// Why an edit is refused, if it is.
pub fn refuse(spec: &GroupSpec, database: &AccountDatabase, edit: &Edit<Fields>) -> Option<String> {
    let Some(to) = edit.to() else {
        return refuse_removal(spec, database);
    };
    if let Some(gid) = to.get("gid")
        && let Some(other) = gid.parse().ok().and_then(|gid| database.group_name(gid))
        && other != spec.name
    {
        return Some(format!("the gid {gid} is that of the group {other}; give one of them another"));
    }
    // One that is in the group already may come from a directory, or be left behind.
    let of = |state: Option<&'_ Fields>| -> Vec<String> {
        let members = state.and_then(|state| state.get("members")).map_or("", String::as_str);
        members.split(' ').filter(|member| !member.is_empty()).map(str::to_owned).collect()
    };
    let there = of(edit.from());
    let mut new = of(Some(to)).into_iter().filter(|member| !there.contains(member));
    let missing = new.find(|member| database.user(member).is_none())?;
    Some(format!("there is no user `{missing}`; declare a `user` before it"))
}

fn refuse_removal(spec: &GroupSpec, database: &AccountDatabase) -> Option<String> {
    let gid = database.group(&spec.name)?.gid;
    if is_system_number(gid) && (!spec.system || gid == 0) {
        let help = if gid == 0 { "it is never removed" } else { "add `system: true` to remove it" };
        return Some(format!("{} is a group of the system (gid {gid}); {help}", spec.name));
    }
    let users: Vec<&str> = database.users_of_group(gid).collect();
    (!users.is_empty()).then(|| {
        format!("it is the primary group of {}; give them another, or remove them first", users.join(", "))
    })
}

/// The calls that lead from `now` to `to`. What `to` does not name is in no argument.
pub fn calls(spec: &GroupSpec, now: Option<&Fields>, to: Option<&Fields>) -> Vec<AccountCall> {
    let call = |tool, arguments: Vec<String>| AccountCall { tool, arguments, ..AccountCall::default() };
    let name = || spec.name.clone();
    let Some(to) = to else {
        return now.map(|_| call("/usr/sbin/groupdel", vec![name()])).into_iter().collect();
    };
    let mut calls = Vec::new();
    let gid = to.get("gid").filter(|gid| now.is_none_or(|now| now.get("gid") != Some(*gid)));
    let gid = gid.map(|gid| format!("--gid={gid}"));
    if now.is_none() {
        let system = spec.system.then(|| "--system".to_owned());
        calls.push(call("/usr/sbin/groupadd", gid.into_iter().chain(system).chain([name()]).collect()));
    } else if let Some(gid) = gid {
        calls.push(call("/usr/sbin/groupmod", vec![gid, name()]));
    }
    let before = now.and_then(|now| now.get("members")).map_or("", String::as_str);
    if let Some(members) = to.get("members").filter(|members| *members != before) {
        calls.push(call("/usr/bin/gpasswd", vec!["--members".to_owned(), members.replace(' ', ","), name()]));
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::state::difference;

    const PASSWD: &str =
        "root:x:0:0::/root:/bin/bash\namy:x:1000:1000::/home/amy:/bin/sh\nbob:x:1001:1001::/:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nadm:x:4:amy\namy:x:1000:\nops:x:1500:bob\n";

    fn spec(name: &str, members: Option<&[&str]>) -> GroupSpec {
        GroupSpec {
            name: name.to_owned(),
            ensure: Ensure::Present,
            gid: None,
            members: members.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            exclusive: false,
            system: false,
        }
    }

    /// The calls that make it as declared, or why that is refused.
    fn made(spec: &GroupSpec) -> Vec<String> {
        let database = AccountDatabase::parse(PASSWD, "", GROUP);
        let now = observe(spec, &database);
        let to = desired(spec, now.as_ref());
        let Some(edit) = difference(now.as_ref(), to.as_ref()) else { return Vec::new() };
        if let Some(why) = refuse(spec, &database, &edit) {
            return vec![why];
        }
        let calls = calls(spec, now.as_ref(), to.as_ref());
        calls.iter().map(|call| format!("{} {}", call.tool, call.arguments.join(" "))).collect()
    }

    #[test]
    fn members_that_are_not_declared_stay_unless_the_list_is_whole() {
        let mut ops = spec("ops", Some(&["amy"]));
        assert_eq!(made(&ops), ["/usr/bin/gpasswd --members amy,bob ops"]);
        ops.exclusive = true;
        assert_eq!(made(&ops), ["/usr/bin/gpasswd --members amy ops"]);
        assert_eq!(made(&spec("ops", Some(&["bob"]))), [""; 0]);
        let mut new = spec("new", Some(&["amy", "bob"]));
        (new.gid, new.system) = (Some(900), true);
        assert_eq!(
            made(&new),
            ["/usr/sbin/groupadd --gid=900 --system new", "/usr/bin/gpasswd --members amy,bob new"]
        );
    }

    #[test]
    fn what_would_break_others_is_refused_with_its_name() {
        let gone = |name| made(&GroupSpec { ensure: Ensure::Absent, ..spec(name, None) }).join("");
        assert!(gone("amy").contains("primary group of amy"), "{}", gone("amy"));
        assert!(gone("adm").contains("system: true"), "{}", gone("adm"));
        assert_eq!(gone("ops"), "/usr/sbin/groupdel ops");
        assert_eq!(gone("nosuch"), "");
        let taken = made(&GroupSpec { gid: Some(4), ..spec("ops", None) }).join("");
        assert!(taken.contains("the group adm"), "{taken}");
        let missing = made(&spec("ops", Some(&["carl"]))).join("");
        assert!(missing.contains("no user `carl`"), "{missing}");
        // Somebody whom a directory put there holds up nobody else.
        let database = AccountDatabase::parse(PASSWD, "", &format!("{GROUP}led:x:1700:ldapuser\n"));
        let led = spec("led", Some(&["amy"]));
        let now = observe(&led, &database);
        let edit = difference(now.as_ref(), desired(&led, now.as_ref()).as_ref()).unwrap();
        assert_eq!(refuse(&led, &database, &edit), None);
    }
}
