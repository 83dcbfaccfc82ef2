//! Resource types on booted hosts (`cargo xtask booted`): what only a machine with systemd, a kernel of
//! its own network and real accounts can show.
//!
//! This program is copied into the host, and [`inside`] it does there what a test outside asks for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod accounts_on_real_hosts;
mod inside;
mod packages_on_real_hosts;
mod settings_survive_a_reboot;

use serde_json::{Value, json};
use test_support::booted::BootedHost;

/// Where the copy of this program lies in a host.
const PROGRAM: &str = "/root/resource-types";

/// A host with this program in it.
struct TypesOn<'a>(&'a BootedHost);

impl<'a> TypesOn<'a> {
    fn new(host: &'a BootedHost) -> TypesOn<'a> {
        host.copy_in(&std::env::current_exe().unwrap(), PROGRAM, 0o755);
        TypesOn(host)
    }

    /// Has the program do something; gives what it answered, or why it failed.
    #[track_caller]
    fn asked(&self, what: Value) -> Result<Value, String> {
        self.0.write("/root/ask.json", what.to_string(), 0o600);
        let words = ["env", "MUSTER_INSIDE=1", PROGRAM, "--exact", "inside::what_is_asked_is_done"];
        self.0.ok(words);
        let answer: Value = serde_json::from_str(&self.0.read("/root/answer.json").unwrap()).unwrap();
        match answer["error"].as_str() {
            Some(why) => Err(why.to_owned()),
            None => Ok(answer["done"].clone()),
        }
    }

    #[track_caller]
    fn check(&self, kind: &str, name: &str, attributes: &Value) -> Value {
        let ask = json!({"what": "check", "kind": kind, "name": name, "attributes": attributes});
        self.asked(ask).unwrap()
    }

    /// Applies a resource that is not as declared.
    #[track_caller]
    fn apply(&self, kind: &str, name: &str, attributes: &Value) -> Result<Value, String> {
        self.asked(json!({"what": "apply", "kind": kind, "name": name, "attributes": attributes}))
    }

    /// Applies it, sees that a second run finds nothing to do, and gives what was there before.
    #[track_caller]
    fn made(&self, kind: &str, name: &str, attributes: Value) -> Value {
        let before = self.check(kind, name, &attributes);
        assert_ne!(before["edit"], Value::Null, "{kind} {name}: nothing differs");
        let applied = self.apply(kind, name, &attributes).unwrap();
        assert_eq!(applied["changed"], json!(true));
        assert_eq!(self.check(kind, name, &attributes)["edit"], Value::Null);
        before["prior"].clone()
    }

    /// Applies packages in one go: what came of each in words.
    #[track_caller]
    fn packages(&self, attributes: Value) -> Value {
        self.asked(json!({"what": "together", "kind": "package", "name": "", "attributes": attributes}))
            .unwrap()
    }

    /// Puts back what was there before.
    #[track_caller]
    fn undo(&self, kind: &str, name: &str, attributes: Value, prior: &Value) {
        self.undo_made(kind, name, attributes, prior, &json!([]));
    }

    /// As [`TypesOn::undo`], of a resource around which something was made.
    #[track_caller]
    fn undo_made(&self, kind: &str, name: &str, attributes: Value, prior: &Value, made: &Value) {
        let ask = json!({
            "what": "undo", "kind": kind, "name": name, "attributes": attributes, "prior": prior, "made": made,
        });
        self.asked(ask).unwrap();
    }
}
