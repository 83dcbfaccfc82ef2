//! `custom`: a script that speaks JSON (EXE-2).

use std::collections::BTreeMap;

use lang::Value;
use model::Digest;

use super::{COMMAND_TIMEOUT_SECS, Spec};
use crate::module::OnRemove::{Delete, Keep};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short,
};

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "custom",
    summary: "A script that reads `{name, state, params}` as JSON and answers `{changed, error}`. With \
              `on_remove: delete` it runs once more, with `state: absent`, when the resource leaves the set.",
    short: Short::Name,
    attributes: &[
        Attribute::always(
            "script",
            FieldKind::Script,
            "the script; one of the module is shipped and pinned by its hash",
        ),
        Attribute::new(
            "sha256",
            FieldKind::Sha256,
            "",
            "the hash of a script on the host; needed with an absolute path",
        ),
        Attribute::new("state", FieldKind::Text, "present", "handed to the script"),
        Attribute::new("params", FieldKind::Values, "", "handed to the script").takes_secret(),
        Attribute::new(
            "dry_run",
            FieldKind::Bool,
            "false",
            "the script understands `dryRun` and may be started by a plan",
        ),
    ],
    timeout_secs: COMMAND_TIMEOUT_SECS,
    on_remove: &[Keep, Delete],
    handler: true,
    guarded: false,
    example: "- custom: app-health\n  script: executors/health.sh\n  params: {url: \"http://localhost:8080/health\"}\n",
    manages: Manages::Effect,
    removal: &["script", "sha256", "params"],
    rules,
    bind,
};

/// `custom`.
#[derive(Clone, PartialEq, Eq)]
pub struct CustomSpec {
    /// Where the script is.
    pub script: Script,
    /// `state` of the request.
    pub state: String,
    /// `params` of the request.
    pub params: BTreeMap<String, Value>,
    /// The script understands `dryRun` and may be started by a plan.
    pub dry_run: bool,
}

/// Without the values of `params`, which may hold secrets.
impl std::fmt::Debug for CustomSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CustomSpec { script, state, params, dry_run } = self;
        let names: Vec<&String> = params.keys().collect();
        f.debug_struct("CustomSpec")
            .field("script", script)
            .field("state", state)
            .field("params", &names)
            .field("dry_run", dry_run)
            .finish()
    }
}

/// A custom executor's script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// Shipped with the module, pinned by digest.
    Shipped {
        /// Path inside the module, for messages.
        path: String,
        /// SHA-256 of the script.
        digest: Digest,
        /// Length in bytes.
        size: u64,
    },
    /// An absolute path on the host, pinned by digest.
    Host {
        /// The path.
        path: String,
        /// SHA-256 of the script.
        digest: Digest,
    },
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let script = attributes.get("script").and_then(Value::as_str).unwrap_or_default();
    let pinned = attributes.contains_key("sha256");
    if script.starts_with('/') && !pinned {
        let message = "a script on the host needs `sha256`, its hash".to_owned();
        let help = "add `sha256:`, or ship the script below executors/";
        return vec![AttributeProblem::missing(Some("script"), message, help)];
    }
    if script.starts_with("executors/") && pinned {
        let message = "a script of the module is pinned by itself".to_owned();
        return vec![AttributeProblem::conflict("sha256", message, "drop `sha256`")];
    }
    Vec::new()
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let path = given.text("script").ok_or("script is missing")?;
    let script = if path.starts_with('/') {
        let digest = given.digest("sha256").ok_or("a script on the host needs sha256")?;
        Script::Host { path, digest }
    } else {
        let file = given.module_file(&path)?;
        Script::Shipped { digest: file.digest, size: file.size, path }
    };
    Ok(Spec::Custom(CustomSpec {
        script,
        state: given.text("state").unwrap_or_else(|| "present".into()),
        params: given.values("params"),
        dry_run: given.bool("dry_run"),
    }))
}
