//! From evaluated attributes to a typed [`Spec`].

use std::collections::BTreeMap;

use lang::Value;
use model::Digest;

use super::read::Read;
use super::{ResourceType, find, read, rules};
use crate::module::{CommandLine, FileRef};
use crate::spec::{
    CustomSpec, DirectorySpec, Ensure, ExecSpec, FileContent, FileSpec, LineSpec, Ownership, Script, Spec,
    SymlinkSpec,
};

/// Reads evaluated attributes into what the type means. `files` are the module's files by
/// path (`files/x`, `executors/y.sh`); `rendered` is the text of `template:`, if there is one.
///
/// Whether a command has a guard is `muster check`'s to say: here it may be a handler.
///
/// # Errors
/// Every mistake in one text.
pub fn bind(
    kind: &str,
    name: &str,
    attributes: &BTreeMap<String, Value>,
    files: &BTreeMap<String, FileRef>,
    rendered: Option<String>,
) -> Result<Spec, String> {
    let kind = find(kind).ok_or_else(|| format!("this version has no resource type `{kind}`"))?;
    let problems = rules::problems(kind, name, attributes, true, |_| false);
    if !problems.is_empty() {
        let all: Vec<String> = problems
            .into_iter()
            .map(|problem| match problem.attribute {
                Some(attribute) => format!("{attribute}: {}", problem.message),
                None => problem.message,
            })
            .collect();
        return Err(all.join("; "));
    }
    let bag = Bag::read(kind, attributes)?;
    match kind.name {
        "file" => file(&bag, name, files, rendered).map(Spec::File),
        "directory" => Ok(Spec::Directory(DirectorySpec {
            path: name.to_owned(),
            ensure: bag.ensure(),
            ownership: bag.ownership(),
            recurse: bag.bool("recurse"),
        })),
        "symlink" => Ok(Spec::Symlink(SymlinkSpec {
            path: name.to_owned(),
            ensure: bag.ensure(),
            target: bag.text("target").unwrap_or_default(),
        })),
        "line" => Ok(Spec::Line(line(&bag))),
        "exec" | "shell" => exec(&bag).map(Spec::Exec),
        "custom" => custom(&bag, files).map(Spec::Custom),
        other => Err(format!("`{other}` cannot be bound")),
    }
}

/// The attributes that are given, read by their kinds.
struct Bag(BTreeMap<&'static str, Read>);

impl Bag {
    fn read(kind: &ResourceType, attributes: &BTreeMap<String, Value>) -> Result<Bag, String> {
        let given = kind.attributes.iter().filter_map(|a| attributes.get(a.name).map(|value| (a, value)));
        given
            .map(|(a, value)| Ok((a.name, read::read(a.kind, value)?)))
            .collect::<Result<_, String>>()
            .map(Bag)
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Read::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn bool(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(Read::Bool(true)))
    }

    fn command(&self, name: &str) -> Option<CommandLine> {
        match self.0.get(name)? {
            Read::Command(command) => Some(command.clone()),
            _ => None,
        }
    }

    fn ensure(&self) -> Ensure {
        if self.text("state").as_deref() == Some("absent") { Ensure::Absent } else { Ensure::Present }
    }

    fn ownership(&self) -> Ownership {
        let mode = match self.0.get("mode") {
            Some(Read::Mode(mode)) => Some(*mode),
            _ => None,
        };
        Ownership { mode, owner: self.text("owner"), group: self.text("group") }
    }
}

fn file(
    bag: &Bag,
    name: &str,
    files: &BTreeMap<String, FileRef>,
    rendered: Option<String>,
) -> Result<FileSpec, String> {
    let content = if let Some(source) = bag.text("source") {
        let file = files
            .get(&format!("files/{source}"))
            .ok_or_else(|| format!("files/{source} is not in the module"))?;
        Some(FileContent::Blob { digest: file.digest, size: file.size })
    } else if let Some(template) = bag.text("template") {
        let text = rendered.ok_or_else(|| format!("template {template} was not rendered"))?;
        Some(inline(text))
    } else {
        bag.text("content").map(inline)
    };
    Ok(FileSpec {
        path: name.to_owned(),
        ensure: bag.ensure(),
        content,
        ownership: bag.ownership(),
        validate: bag.command("validate"),
        backup: bag.bool("backup"),
    })
}

fn inline(text: String) -> FileContent {
    FileContent::Text { digest: Digest::of(text.as_bytes()), text: text.into() }
}

fn line(bag: &Bag) -> LineSpec {
    LineSpec {
        path: bag.text("path").unwrap_or_default(),
        ensure: bag.ensure(),
        line: bag.text("line").unwrap_or_default(),
        matching: bag.text("matching"),
        after: bag.text("after"),
        create: bag.bool("create"),
        ownership: bag.ownership(),
    }
}

fn exec(bag: &Bag) -> Result<ExecSpec, String> {
    let environment = match bag.0.get("environment") {
        Some(Read::Texts(texts)) => texts.clone(),
        _ => BTreeMap::new(),
    };
    let returns = match bag.0.get("returns") {
        Some(Read::Codes(codes)) => codes.clone(),
        _ => vec![0],
    };
    Ok(ExecSpec {
        command: bag.command("command").ok_or("command is missing")?,
        creates: bag.text("creates"),
        unless: bag.command("unless"),
        onlyif: bag.command("onlyif"),
        always: bag.bool("always"),
        cwd: bag.text("cwd"),
        environment,
        returns,
        user: bag.text("user"),
    })
}

fn custom(bag: &Bag, files: &BTreeMap<String, FileRef>) -> Result<CustomSpec, String> {
    let path = bag.text("script").ok_or("script is missing")?;
    let script = if path.starts_with('/') {
        match bag.0.get("sha256") {
            Some(Read::Digest(digest)) => Script::Host { path, digest: *digest },
            _ => return Err("a script on the host needs sha256".into()),
        }
    } else {
        let file = files.get(&path).ok_or_else(|| format!("{path} is not in the module"))?;
        Script::Shipped { path, digest: file.digest, size: file.size }
    };
    let params = match bag.0.get("params") {
        Some(Read::Values(values)) => values.clone(),
        _ => BTreeMap::new(),
    };
    let state = bag.text("state").unwrap_or_else(|| "present".into());
    Ok(CustomSpec { script, state, params, dry_run: bag.bool("dry_run") })
}
