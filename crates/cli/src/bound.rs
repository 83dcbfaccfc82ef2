//! A node's set bound off the node, by the same code, and its resources as fields.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::module::{CommandLine, Module, OnRemove, Params};
use catalog::schema::{self, FieldKind};
use catalog::types::{EditedFile, Ensure, FileContent, Ownership, Script, Spec, WantedPackage};
use converge::bind::{Inputs, bind_with_sources};
use converge::kinds::content_field;
use converge::{BoundModule, BoundResource, Desired, When};
use lang::Value;
use lang::secret::HIDDEN_SECRET;
use model::delta::MAX_FIELD;
use model::{Digest, Fields};
use resolve::Specialized;

use crate::screen::name_of;

/// The modules and params of a node's set.
#[derive(Clone, Debug)]
pub struct NodeSet {
    /// By name.
    pub modules: BTreeMap<String, Arc<Module>>,
    /// The node's params.
    pub params: Params,
}

/// The modules of a fleet, to make sets of.
pub fn modules(fleet: &Specialized) -> BTreeMap<String, Arc<Module>> {
    fleet.modules.iter().map(|(name, shared)| (name.clone(), Arc::new(shared.module.clone()))).collect()
}

impl NodeSet {
    /// The set with these params; they name its modules.
    pub fn of(modules: &BTreeMap<String, Arc<Module>>, params: Params) -> NodeSet {
        let named = params.modules.iter().filter_map(|name| Some((name.clone(), modules.get(name)?.clone())));
        NodeSet { modules: named.collect(), params }
    }

    /// Binds the set as the node does; each resource has its declaration, so that all of it can be shown.
    pub fn bind(&self, hostname: &str, traits: &Value) -> Desired {
        bind_with_sources(&Inputs {
            modules: &self.modules,
            params: &self.params,
            hostname: Some(hostname),
            traits: Some(traits),
            own_paths: &[],
            secrets: lang::OpenedSecrets::HIDDEN,
        })
    }
}

/// Where the bytes of shipped files come from; those that are not there are named by digest.
pub type BlobLookup<'a> = &'a dyn Fn(&Digest) -> Option<Arc<[u8]>>;

/// What stands in for text that is not to be shown.
pub const HIDDEN: &str = "(hidden: sensitive)";

/// A bound resource as named texts. What is sensitive is in them: [`hide`] takes it out.
pub fn fields(resource: &BoundResource, blobs: BlobLookup<'_>) -> Fields {
    let mut fields = Fields::new();
    match &resource.spec {
        // Not wanted here, so there is nothing to bind.
        Err(_) if matches!(resource.when, When::Never(_)) => {}
        Err(why) => put(&mut fields, "error", why.to_string()),
        Ok(spec) => of_spec(&mut fields, spec, blobs),
    }
    some(&mut fields, "when", when(&resource.when));
    for guard in &resource.guards {
        put(&mut fields, guard.kind.key(), command(&guard.command));
    }
    if resource.retry.retries > 0 {
        let delay = resource.retry.delay.as_secs();
        put(&mut fields, "retries", format!("{}, {delay} s apart", resource.retry.retries));
    }
    listed(&mut fields, "tags", &resource.tags, ", ");
    listed(&mut fields, "depends_on", &resource.depends_on, ", ");
    listed(&mut fields, "notify", &resource.notify, ", ");
    flag(&mut fields, "observe", resource.observe);
    flag(&mut fields, "sensitive", resource.sensitive);
    flag(&mut fields, "ignore_failure", resource.ignore_failure);
    if !matches!(resource.when, When::Never(_)) {
        add_declared(&mut fields, resource);
    }
    fields
}

/// Adds what is declared and not shown so far, whatever the type: nothing that is written stays unseen.
pub fn add_declared(fields: &mut Fields, resource: &BoundResource) {
    let Some(source) = &resource.source else { return };
    let declared = &source.declared;
    listed(fields, "before", &declared.before, ", ");
    listed(fields, "subscribes", &declared.subscribes, ", ");
    some(fields, "timeout", declared.timeout.map(|seconds| format!("{seconds} s")));
    some(fields, "on_remove", declared.on_remove.map(name_of));
    let Some(kind) = schema::find(&resource.kind) else { return };
    for attribute in kind.attributes.iter().filter(|attribute| !SHOWN_OTHERWISE.contains(&attribute.kind)) {
        let Some(value) = source.attributes.get(attribute.name) else { continue };
        let text = value_text(value);
        if fields.contains_key(attribute.name) || text == attribute.default {
            continue;
        }
        let text = match attribute.may_be_secret {
            true => content_field(None, &Digest::of(text.as_bytes()), text.len() as u64),
            false => text,
        };
        put(fields, attribute.name, text);
    }
}

/// A list of plain values reads as one line.
fn value_text(value: &Value) -> String {
    let plain = |item: &Value| !matches!(item, Value::List(_) | Value::Map(_));
    match value {
        Value::List(items) if items.iter().all(plain) => {
            items.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
        }
        value => value.to_string(),
    }
}

/// What these name is shown by what it holds.
const SHOWN_OTHERWISE: [FieldKind; 2] = [FieldKind::Template, FieldKind::Source];

/// A module's own part as named texts.
pub fn module_fields(module: &BoundModule) -> Fields {
    let mut fields = Fields::new();
    some(&mut fields, "error", module.error.as_ref().map(ToString::to_string));
    listed(&mut fields, "depends_on", &module.depends_on, ", ");
    some(&mut fields, "when", when(&module.when));
    some(&mut fields, "verify", module.verify.as_ref().map(command));
    flag(&mut fields, "observe", module.observe);
    fields
}

/// What is declared of a node as named texts, part by part.
pub fn params_fields(params: &Params) -> BTreeMap<String, Fields> {
    let mut parts: BTreeMap<String, Fields> = BTreeMap::new();
    for (layer, vars) in [("var", &params.vars), ("host var", &params.host_vars)] {
        let value = |value: &Value| Fields::from([("value".to_owned(), value.to_string())]);
        parts.extend(vars.iter().map(|(name, var)| (format!("{layer} {name}"), value(var))));
    }
    for (number, layer) in params.conditional.iter().enumerate() {
        let mut fields: Fields =
            layer.vars.iter().map(|(name, var)| (name.clone(), var.to_string())).collect();
        put(&mut fields, "when", &layer.when);
        parts.insert(format!("conditional vars {}", number + 1), fields);
    }
    let (declared, mut node) = (&params.node, Fields::new());
    put(&mut node, "roles", declared.roles.join(", "));
    put(&mut node, "modules", params.modules.join(", "));
    flag(&mut node, "observe", params.observe);
    some(&mut node, "environment", declared.environment.clone());
    some(&mut node, "owner", declared.owner.clone());
    listed(&mut node, "groups", &declared.groups.iter().collect::<Vec<_>>(), ", ");
    node.extend(declared.labels.iter().map(|(name, text)| (format!("labels.{name}"), text.clone())));
    parts.insert("node".to_owned(), node);
    for (name, window) in &params.windows {
        let days = if window.days.is_empty() { "every day".to_owned() } else { window.days.join(", ") };
        let mut fields = Fields::new();
        put(&mut fields, "open", format!("{days} from {} to {} {}", window.from, window.to, window.zone));
        some(&mut fields, "rules", window.rules.clone());
        parts.insert(format!("window {name}"), fields);
    }
    parts
}

/// Puts [`HIDDEN`] in the place of every text that says what a sensitive resource holds.
pub fn hide(fields: &mut Fields) {
    for (name, text) in fields.iter_mut() {
        if !matches!(
            name.as_str(),
            "mode"
                | "owner"
                | "group"
                | "when"
                | "sensitive"
                | "observe"
                | "notify"
                | "depends_on"
                | "retries"
                | "tags"
                | "before"
                | "subscribes"
                | "timeout"
                | "on_remove"
        ) {
            HIDDEN.clone_into(text);
        }
    }
}

/// What becomes of a resource that is no longer declared.
pub fn removal(on_remove: OnRemove) -> &'static str {
    match on_remove {
        OnRemove::Keep => "no longer declared -> kept as it is (on_remove: keep)",
        OnRemove::Delete => "no longer declared -> DELETE (on_remove: delete)",
        OnRemove::Restore => "no longer declared -> RESTORE what was there before (on_remove: restore)",
    }
}

/// A command as it is written.
pub fn command(command: &CommandLine) -> String {
    match command {
        CommandLine::Argv(argv) => format!("[{}]", argv.join(", ")),
        CommandLine::Shell(text) => text.clone(),
    }
}

fn of_spec(fields: &mut Fields, spec: &Spec, blobs: BlobLookup<'_>) {
    match spec {
        Spec::File(file) => {
            state(fields, file.ensure);
            some(fields, "content", file.content.as_ref().map(|content| text(content, blobs)));
            ownership(fields, &file.ownership);
            some(fields, "validate", file.validate.as_ref().map(command));
            flag(fields, "backup", file.backup);
        }
        Spec::Directory(directory) => {
            state(fields, directory.ensure);
            ownership(fields, &directory.ownership);
            flag(fields, "recurse", directory.recurse);
        }
        Spec::Tree(tree) => {
            ownership(fields, &tree.ownership);
            some(fields, "file_mode", tree.file_mode.map(|mode| format!("{mode:04o}")));
            flag(fields, "purge", tree.purge);
        }
        Spec::Archive(archive) => {
            some(fields, "url", archive.from.as_ref().map(|from| from.url.clone()));
            ownership(fields, &archive.ownership);
            some(fields, "file_mode", archive.file_mode.map(|mode| format!("{mode:04o}")));
        }
        Spec::Image(image) => {
            some(fields, "url", image.tree.from.as_ref().map(|from| from.url.clone()));
            ownership(fields, &image.tree.ownership);
        }
        Spec::Switch(switch) => {
            some(fields, "run", switch.run.as_ref().map(command));
            put(fields, "back", command(&switch.back));
            some(fields, "current", switch.current.as_ref().map(command));
        }
        Spec::Nixos(nixos) => {
            put(fields, "caches", nixos.caches.join(" "));
            let keys: Vec<String> = nixos.cache_keys.iter().map(ToString::to_string).collect();
            put(fields, "cache_keys", keys.join(" "));
            put(fields, "control_plane", nixos.control_plane.to_string());
        }
        Spec::Download(download) => {
            state(fields, download.ensure);
            put(fields, "url", &download.from.url);
            put(fields, "sha256", download.digest.to_string());
            ownership(fields, &download.ownership);
        }
        Spec::Symlink(link) => {
            state(fields, link.ensure);
            put(fields, "target", &link.target);
        }
        Spec::Line(line) => {
            state(fields, line.ensure);
            put(fields, "path", &line.path);
            put(fields, "line", &line.line);
            some(fields, "matching", line.matching.clone());
            some(fields, "after", line.after.clone());
            flag(fields, "create", line.create);
            some(fields, "validate", line.validate.as_ref().map(command));
            ownership(fields, &line.ownership);
        }
        Spec::Exec(exec) => {
            put(fields, "command", command(&exec.command));
            some(fields, "creates", exec.creates.clone());
            some(fields, "unless", exec.unless.as_ref().map(command));
            some(fields, "onlyif", exec.onlyif.as_ref().map(command));
            flag(fields, "always", exec.always);
            some(fields, "remove", exec.remove.as_ref().map(command));
            // It may hold secrets: that it changes is shown, not what it is.
            let stdin = |text: &String| content_field(None, &Digest::of(text.as_bytes()), text.len() as u64);
            some(fields, "stdin", exec.stdin.as_ref().map(stdin));
            some(fields, "cwd", exec.cwd.clone());
            some(fields, "user", exec.user.clone());
            let pairs = exec.environment.iter().map(|(name, value)| format!("{name}={value}"));
            listed(fields, "environment", &pairs.collect::<Vec<_>>(), " ");
        }
        Spec::Custom(custom) => {
            let (Script::Shipped { path, digest, .. } | Script::Host { path, digest }) = &custom.script;
            put(fields, "script", format!("{path} (sha256:{})", digest.short()));
            put(fields, "state", &custom.state);
            for (name, value) in &custom.params {
                put(fields, &format!("params.{name}"), value.to_string());
            }
            flag(fields, "dry_run", custom.dry_run);
        }
        // Where a part is that has a name of its own; what it holds is its state.
        Spec::Host(host) => put(fields, "path", &host.path),
        Spec::Block(block) => edited(fields, &block.file),
        Spec::Json(json) => edited(fields, &json.file),
        Spec::Ini(ini) => {
            edited(fields, &ini.file);
            some(fields, "section", ini.section.clone());
            some(fields, "key", ini.key.clone());
        }
        Spec::SshKey(key) => {
            put(fields, "user", &key.user);
            some(fields, "path", key.path.clone());
        }
        Spec::Package(package) => flag(fields, "purge", package.options.purge),
        _ => {}
    }
    if let Some(spec) = spec.state() {
        state(fields, spec.ensure());
        fields.extend(spec.declared());
    }
    if let Spec::Package(package) = spec {
        // Beside these `installed` would say nothing, or the contrary.
        match package.wanted {
            WantedPackage::Absent | WantedPackage::Latest => drop(fields.remove("status")),
            WantedPackage::Any | WantedPackage::Version { .. } => {}
        }
    }
}

/// The file of which a part is managed.
fn edited(fields: &mut Fields, file: &EditedFile) {
    put(fields, "path", &file.path);
    flag(fields, "create", file.create);
    some(fields, "validate", file.validate.as_ref().map(command));
}

fn text(content: &FileContent, blobs: BlobLookup<'_>) -> String {
    match content {
        FileContent::Text { text, .. } => text.to_string(),
        FileContent::Bytes { .. } => HIDDEN_SECRET.to_owned(),
        FileContent::Blob { digest, size } => {
            let bytes = blobs(digest).filter(|bytes| bytes.len() <= MAX_FIELD);
            let whole = bytes.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
            whole.unwrap_or_else(|| format!("sha256:{} ({size} bytes)", digest.short()))
        }
    }
}

fn state(fields: &mut Fields, ensure: Ensure) {
    if ensure == Ensure::Absent {
        put(fields, "state", "absent");
    }
}

fn ownership(fields: &mut Fields, ownership: &Ownership) {
    some(fields, "mode", ownership.mode.map(|mode| format!("{mode:04o}")));
    some(fields, "owner", ownership.owner.clone());
    some(fields, "group", ownership.group.clone());
}

/// A condition, and what is known of it off the node; `None` when there is none.
fn when(when: &When) -> Option<String> {
    match when {
        When::Always => None,
        When::Never(source) => Some(format!("{source}  (false here)")),
        When::Ask(condition) => Some(format!("{}  (asked on the node)", condition.source())),
        When::Failed(why) => Some(format!("cannot be evaluated: when: {why}")),
    }
}

fn listed<T: ToString>(fields: &mut Fields, name: &str, items: &[T], between: &str) {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    some(fields, name, (!items.is_empty()).then(|| items.join(between)));
}

fn put(fields: &mut Fields, name: &str, text: impl Into<String>) {
    fields.insert(name.to_owned(), text.into());
}

fn some(fields: &mut Fields, name: &str, text: Option<String>) {
    if let Some(text) = text {
        put(fields, name, text);
    }
}

fn flag(fields: &mut Fields, name: &str, set: bool) {
    some(fields, name, set.then(|| "true".to_owned()));
}
