//! `user`: which calls of the shadow suite's tools lead from what the host has to what is declared.

use std::collections::BTreeSet;

use catalog::types::{Ensure, StateSpec, UserSpec};
use model::collect::CollectInserting;
use model::{Edit, Fields};

use super::accounts::{AccountDatabase, is_system_number};

/// A call of a tool: its name below `/usr/sbin` or `/usr/bin`, arguments, and what it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountCall {
    /// The tool's path.
    pub tool: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What it reads; this may be secret.
    pub input: String,
}

/// What the database says of the user, by the names of its attributes.
pub fn observe(spec: &UserSpec, database: &AccountDatabase) -> Option<Fields> {
    let user = database.user(&spec.name)?;
    let by_number = spec.group.as_ref().is_some_and(|group| group.parse::<u32>().is_ok());
    let group = database.group_name(user.gid).filter(|_| !by_number);
    let mut fields = Fields::from([
        ("uid".to_owned(), user.uid.to_string()),
        ("group".to_owned(), group.map_or_else(|| user.gid.to_string(), str::to_owned)),
        ("groups".to_owned(), database.groups_of(&spec.name).collect::<Vec<_>>().join(" ")),
        ("home".to_owned(), user.home.clone()),
        ("shell".to_owned(), user.shell.clone()),
        ("comment".to_owned(), user.comment.clone()),
    ]);
    if let Some(shadow) = &user.shadow {
        // Where there is no password, there is none to lock or to unlock.
        let empty = shadow.password.secret().is_empty() && !shadow.locked;
        let nothing_to_lock = shadow.password.is_none() && !empty;
        let locked = spec.locked.filter(|_| nothing_to_lock).unwrap_or(shadow.locked);
        let password = if empty { "empty".to_owned() } else { shadow.password.shown() };
        fields.extend([
            ("password".to_owned(), password),
            ("locked".to_owned(), locked.to_string()),
            ("expires".to_owned(), shadow.expires.clone()),
            ("password_min_days".to_owned(), shadow.min_days.clone()),
            ("password_max_days".to_owned(), shadow.max_days.clone()),
            ("password_warn_days".to_owned(), shadow.warn_days.clone()),
        ]);
    }
    Some(fields)
}

/// The state that the user should have: as declared, with the groups that it keeps.
pub fn desired(spec: &UserSpec, now: Option<&Fields>) -> Option<Fields> {
    if spec.ensure == Ensure::Absent {
        return None;
    }
    let mut wanted = spec.declared();
    if spec.password_on_create && now.is_some() {
        wanted.remove("password");
    }
    if let (Some(declared), false) = (&spec.groups, spec.exclusive) {
        wanted.insert("groups".to_owned(), joined(now, "groups", declared));
    }
    Some(wanted)
}

/// Names that are there and those that are declared, sorted.
pub(super) fn joined(now: Option<&Fields>, field: &str, declared: &[String]) -> String {
    let there = now.and_then(|now| now.get(field)).map_or("", String::as_str);
    let all: BTreeSet<&str> = there.split(' ').chain(declared.iter().map(String::as_str)).collect_inserting();
    all.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Why an edit is refused, if it is.
pub fn refuse(spec: &UserSpec, database: &AccountDatabase, edit: &Edit<Fields>) -> Option<String> {
    let Some(to) = edit.to() else {
        let uid = database.user(&spec.name)?.uid;
        return refuse_removal(spec, uid);
    };
    if let Some(uid) = to.get("uid")
        && let Some(other) = uid.parse().ok().and_then(|uid| database.user_name(uid))
        && other != spec.name
    {
        return Some(format!("the uid {uid} is that of the user {other}; give one of them another"));
    }
    let groups = to.get("groups").map_or("", String::as_str).split(' ').filter(|group| !group.is_empty());
    let primary = to.get("group").map(String::as_str);
    let missing = primary.into_iter().chain(groups).find(|group| !has_group(database, group))?;
    Some(format!("there is no group `{missing}`; declare a `group` before it"))
}

fn has_group(database: &AccountDatabase, group: &str) -> bool {
    let by_number = || group.parse().ok().and_then(|gid| database.group_name(gid));
    database.group(group).is_some() || by_number().is_some()
}

fn refuse_removal(spec: &UserSpec, uid: u32) -> Option<String> {
    if uid == 0 {
        return Some(format!("{} has the uid 0; the administrator is never removed", spec.name));
    }
    (is_system_number(uid) && !spec.system).then(|| {
        format!("{} is an account of the system (uid {uid}); add `system: true` to remove it", spec.name)
    })
}

/// The calls that lead from `now` to `to`. What `to` does not name is in no argument.
pub fn calls(
    spec: &UserSpec,
    database: &AccountDatabase,
    now: Option<&Fields>,
    to: Option<&Fields>,
) -> Vec<AccountCall> {
    match (now, to) {
        (None, None) => Vec::new(),
        (Some(_), None) => vec![userdel(spec)],
        (None, Some(to)) => {
            let fresh = Fields::from([("expires".to_owned(), "never".to_owned())]);
            let add = useradd(spec, database, to);
            [Some(add), chpasswd(spec, &fresh, to), chage(spec, &fresh, to)].into_iter().flatten().collect()
        }
        (Some(now), Some(to)) => {
            let changes =
                [usermod(spec, now, to), chpasswd(spec, now, to), chage(spec, now, to), lock(spec, now, to)];
            changes.into_iter().flatten().collect()
        }
    }
}

fn userdel(spec: &UserSpec) -> AccountCall {
    let mut arguments = Vec::new();
    if spec.remove_home {
        arguments.push("--remove".to_owned());
    }
    arguments.push(spec.name.clone());
    AccountCall { tool: "/usr/sbin/userdel", arguments, ..AccountCall::default() }
}

fn useradd(spec: &UserSpec, database: &AccountDatabase, to: &Fields) -> AccountCall {
    let mut arguments = vec![if spec.create_home { "--create-home" } else { "--no-create-home" }.to_owned()];
    if spec.system {
        arguments.push("--system".to_owned());
    }
    let group = to.get("group").map(String::as_str);
    // A group of its name that is there already is the one that it was to get.
    match group.or_else(|| database.group(&spec.name).map(|_| spec.name.as_str())) {
        Some(group) => push(&mut arguments, "--gid", group),
        None => arguments.push("--user-group".to_owned()),
    }
    for (option, field) in
        [("--uid", "uid"), ("--home-dir", "home"), ("--shell", "shell"), ("--comment", "comment")]
    {
        if let Some(text) = to.get(field) {
            push(&mut arguments, option, text);
        }
    }
    if let Some(groups) = to.get("groups").filter(|groups| !groups.is_empty()) {
        push(&mut arguments, "--groups", &groups.replace(' ', ","));
    }
    if let Some(expires) = to.get("expires").filter(|expires| *expires != "never") {
        push(&mut arguments, "--expiredate", expires);
    }
    arguments.push(spec.name.clone());
    AccountCall { tool: "/usr/sbin/useradd", arguments, ..AccountCall::default() }
}

fn usermod(spec: &UserSpec, now: &Fields, to: &Fields) -> Option<AccountCall> {
    let mut arguments = Vec::new();
    let options = [
        ("--uid", "uid"),
        ("--gid", "group"),
        ("--home", "home"),
        ("--shell", "shell"),
        ("--comment", "comment"),
    ];
    for (option, field) in options {
        if let Some(text) = changed(now, to, field) {
            push(&mut arguments, option, text);
        }
    }
    if spec.move_home && changed(now, to, "home").is_some() {
        arguments.push("--move-home".to_owned());
    }
    if let Some(groups) = changed(now, to, "groups") {
        push(&mut arguments, "--groups", &groups.replace(' ', ","));
    }
    if let Some(expires) = changed(now, to, "expires") {
        push(&mut arguments, "--expiredate", if expires == "never" { "" } else { expires });
    }
    if arguments.is_empty() {
        return None;
    }
    arguments.push(spec.name.clone());
    Some(AccountCall { tool: "/usr/sbin/usermod", arguments, ..AccountCall::default() })
}

/// The hash goes through standard input: arguments are everybody's to see. Only the declared hash
/// is known; one of which the ledger has the digest cannot be put back.
fn chpasswd(spec: &UserSpec, now: &Fields, to: &Fields) -> Option<AccountCall> {
    let wanted = changed(now, to, "password")?;
    let hash = spec.password.as_ref().filter(|hash| hash.shown() == wanted)?;
    let locked = to.get("locked").or_else(|| now.get("locked")).is_some_and(|locked| locked == "true");
    let text = match (hash.is_none(), locked) {
        (true, _) => "*".to_owned(),
        (false, locked) => format!("{}{}", if locked { "!" } else { "" }, hash.secret()),
    };
    let input = format!("{}:{text}\n", spec.name);
    Some(AccountCall { tool: "/usr/sbin/chpasswd", arguments: vec!["--encrypted".to_owned()], input })
}

fn chage(spec: &UserSpec, now: &Fields, to: &Fields) -> Option<AccountCall> {
    let options = [
        ("--mindays", "password_min_days"),
        ("--maxdays", "password_max_days"),
        ("--warndays", "password_warn_days"),
    ];
    let mut arguments = Vec::new();
    for (option, field) in options {
        if let Some(days) = changed(now, to, field) {
            push(&mut arguments, option, if days.is_empty() { "-1" } else { days });
        }
    }
    if arguments.is_empty() {
        return None;
    }
    arguments.push(spec.name.clone());
    Some(AccountCall { tool: "/usr/bin/chage", arguments, ..AccountCall::default() })
}

/// A password that is not set is locked and unlocked by its mark alone.
fn lock(spec: &UserSpec, now: &Fields, to: &Fields) -> Option<AccountCall> {
    let locked = changed(now, to, "locked").filter(|_| chpasswd(spec, now, to).is_none())?;
    let option = if locked == "true" { "--lock" } else { "--unlock" };
    let arguments = vec![option.to_owned(), spec.name.clone()];
    Some(AccountCall { tool: "/usr/sbin/usermod", arguments, ..AccountCall::default() })
}

fn changed<'a>(now: &Fields, to: &'a Fields, field: &str) -> Option<&'a str> {
    to.get(field).filter(|text| now.get(field) != Some(*text)).map(String::as_str)
}

fn push(arguments: &mut Vec<String>, option: &str, text: &str) {
    // One argument: a text that begins with `-` is no option then.
    arguments.push(format!("{option}={text}"));
}

/// What to know before an edit: what it leaves behind, and what cannot be undone.
pub fn note(spec: &UserSpec, edit: &Edit<Fields>) -> Option<String> {
    let Edit::Change { from, .. } = edit else { return None };
    let uid = from.get("uid").map(|uid| format!("files outside its home keep the uid {uid}"));
    let home = from.get("home").filter(|_| !spec.move_home);
    let home = home.map(|home| format!("what is in {home} stays there"));
    let hash = from.get("password").filter(|password| password.starts_with("sha256:"));
    let hash = hash.map(|_| "cannot be undone: the password before is kept nowhere".to_owned());
    [uid, home, hash].into_iter().flatten().reduce(|a, b| format!("{a}; {b}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::types::PasswordHash;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbin:x:2:2::/bin:/usr/sbin/nologin\n\
                          amy:x:1000:1000:Amy:/home/amy:/bin/sh\nbroken\n";
    const SHADOW: &str = "root:*:19000:0:99999:7:::\namy:!$6$salt$hash:19000:1:90:7::20819:\n";
    const GROUP: &str = "root:x:0:\nadm:x:4:amy,syslog\nsudo:x:27:amy\namy:x:1000:\nusers:x:100:\n";

    fn database() -> AccountDatabase {
        AccountDatabase::parse(PASSWD, SHADOW, GROUP)
    }

    fn spec(name: &str) -> UserSpec {
        UserSpec {
            name: name.to_owned(),
            ensure: Ensure::Present,
            uid: None,
            group: None,
            groups: None,
            exclusive: false,
            home: None,
            create_home: true,
            move_home: false,
            shell: None,
            comment: None,
            password: None,
            password_on_create: false,
            locked: None,
            expires: None,
            password_days: Default::default(),
            system: false,
            remove_home: false,
        }
    }

    /// The calls that make the database as declared.
    fn made(spec: &UserSpec) -> Vec<String> {
        let database = database();
        let now = observe(spec, &database);
        let to = desired(spec, now.as_ref());
        let Some(edit) = super::super::state::difference(now.as_ref(), to.as_ref()) else {
            return Vec::new();
        };
        assert_eq!(refuse(spec, &database, &edit), None);
        let calls = calls(spec, &database, now.as_ref(), to.as_ref());
        calls
            .iter()
            .map(|call| format!("{} {} {}", call.tool, call.arguments.join(" "), call.input))
            .collect()
    }

    #[test]
    fn what_the_files_say_is_read_by_the_names_of_the_attributes() {
        let fields = observe(&spec("amy"), &database()).unwrap();
        let wanted = [
            ("uid", "1000"),
            ("group", "amy"),
            ("groups", "adm sudo"),
            ("comment", "Amy"),
            ("locked", "true"),
            ("expires", "2027-01-01"),
            ("password_max_days", "90"),
        ];
        for (name, text) in wanted {
            assert_eq!(fields[name], text, "{name}");
        }
        assert!(fields["password"].starts_with("sha256:"), "{fields:?}");
        assert!(!format!("{fields:?} {:?}", database()).contains("salt"));
        assert_eq!(observe(&spec("bob"), &database()), None);
    }

    #[test]
    fn only_options_that_differ_are_given() {
        let mut amy = spec("amy");
        (amy.shell, amy.comment) = (Some("/bin/bash".to_owned()), Some("Amy".to_owned()));
        assert_eq!(made(&amy), ["/usr/sbin/usermod --shell=/bin/bash amy "]);
        (amy.shell, amy.groups) = (None, Some(vec!["users".to_owned()]));
        assert_eq!(made(&amy), ["/usr/sbin/usermod --groups=adm,sudo,users amy "]);
        amy.exclusive = true;
        assert_eq!(made(&amy), ["/usr/sbin/usermod --groups=users amy "]);
        (amy.groups, amy.expires) =
            (Some(vec!["adm".to_owned(), "sudo".to_owned()]), Some("never".to_owned()));
        assert_eq!(made(&amy), ["/usr/sbin/usermod --expiredate= amy "]);
        (amy.expires, amy.password_days.max) = (None, Some(365));
        assert_eq!(made(&amy), ["/usr/bin/chage --maxdays=365 amy "]);
        amy.password_days.max = Some(90);
        assert_eq!(made(&amy), [""; 0]);
    }

    #[test]
    fn a_hash_is_in_no_argument_and_a_locked_one_stays_locked() {
        let mut amy = spec("amy");
        amy.password = Some(PasswordHash::of_shadow("$6$new$hash"));
        assert_eq!(made(&amy), ["/usr/sbin/chpasswd --encrypted amy:!$6$new$hash\n"]);
        amy.locked = Some(false);
        assert_eq!(made(&amy), ["/usr/sbin/chpasswd --encrypted amy:$6$new$hash\n"]);
        amy.password_on_create = true;
        assert!(made(&amy).iter().all(|call| !call.contains("new$hash")), "it keeps its own");
        amy.password_on_create = false;
        amy.password = None;
        assert_eq!(made(&amy), ["/usr/sbin/usermod --unlock amy "]);
        // Root has no password that could be locked.
        let mut root = spec("root");
        root.locked = Some(true);
        assert_eq!(made(&root), [""; 0]);
    }

    #[test]
    fn a_new_user_gets_what_is_declared() {
        let mut bob = spec("bob");
        (bob.groups, bob.home) =
            (Some(vec!["adm".to_owned(), "sudo".to_owned()]), Some("/srv/bob".to_owned()));
        (bob.password, bob.locked) = (Some(PasswordHash::of_shadow("$6$a$b")), Some(true));
        let calls = made(&bob);
        assert_eq!(
            calls[0],
            "/usr/sbin/useradd --create-home --user-group --home-dir=/srv/bob --groups=adm,sudo bob "
        );
        assert_eq!(calls[1..], ["/usr/sbin/chpasswd --encrypted bob:!$6$a$b\n"]);
        let mut daemon = spec("users");
        (daemon.system, daemon.create_home) = (true, false);
        assert_eq!(made(&daemon), ["/usr/sbin/useradd --no-create-home --system --gid=users users "]);
    }

    #[test]
    fn what_would_break_others_is_refused_with_its_name() {
        let refused = |spec: &UserSpec| {
            let database = database();
            let now = observe(spec, &database);
            let to = desired(spec, now.as_ref());
            let edit = super::super::state::difference(now.as_ref(), to.as_ref()).unwrap();
            refuse(spec, &database, &edit).unwrap_or_default()
        };
        let mut bob = spec("bob");
        bob.uid = Some(1000);
        assert!(refused(&bob).contains("the user amy"), "{}", refused(&bob));
        (bob.uid, bob.groups) = (None, Some(vec!["nosuch".to_owned()]));
        assert!(refused(&bob).contains("`nosuch`"), "{}", refused(&bob));
        for (name, system, why) in [("bin", false, "system: true"), ("root", true, "never removed")] {
            let mut gone = spec(name);
            (gone.ensure, gone.system) = (Ensure::Absent, system);
            assert!(refused(&gone).contains(why), "{}", refused(&gone));
        }
        let mut gone = spec("bin");
        (gone.ensure, gone.system) = (Ensure::Absent, true);
        assert_eq!(made(&gone), ["/usr/sbin/userdel bin "]);
    }
}
