//! Which type a resource is of.

use catalog::schema::{self, LATER_TYPES, ResourceType};
use catalog::types::TYPES;

use crate::shape::{Reading, near_or_all};
use crate::yaml::{At, Spanned, YamlNode};

type Entries = [(Spanned<String>, YamlNode)];

type FoundType<'n> = (&'static ResourceType, Option<&'n (Spanned<String>, YamlNode)>);

/// The type: what `type:` says, or the first key that is a type's name.
pub(super) fn find<'n>(
    reading: &mut Reading<'_>,
    node: &YamlNode,
    entries: &'n Entries,
) -> Option<FoundType<'n>> {
    if let Some((_, value)) = entries.iter().find(|(key, _)| key.value == "type") {
        let name = reading.text(value, "type")?;
        let Some(kind) = schema::find(&name.value) else {
            unknown_type(reading, &name.value, name.at);
            return None;
        };
        return Some((kind, None));
    }
    let is_type = |key: &str| schema::find(key).is_some() || LATER_TYPES.contains(&key);
    let first = entries.iter().find(|(key, _)| is_type(&key.value));
    let Some(entry) = first else {
        let near = entries
            .iter()
            .find_map(|(key, _)| lang::nearest(&key.value, type_names()).map(|near| (key, near)));
        match near {
            Some((key, near)) => {
                reading
                    .error("E070", key.at, format!("there is no resource type `{}`", key.value))
                    .help(format!("did you mean `{near}`?"));
            }
            None => {
                reading
                    .error("E070", At { len: 1, ..node.at }, "the resource says no type")
                    .help("write `- file: /etc/motd`, or `type: file` and `name: /etc/motd`");
            }
        }
        return None;
    };
    match schema::find(&entry.0.value) {
        Some(kind) => Some((kind, Some(entry))),
        None => {
            later_type(reading, &entry.0, entries);
            None
        }
    }
}

fn type_names() -> impl Iterator<Item = &'static str> + Clone {
    TYPES.iter().map(|kind| kind.name)
}

fn unknown_type(reading: &mut Reading<'_>, name: &str, at: At) {
    if LATER_TYPES.contains(&name) {
        let all: Vec<&str> = type_names().collect();
        reading
            .error("E024", at, format!("the type `{name}` is not available in this version"))
            .help(format!("there are {}", all.join(", ")));
    } else {
        let help = near_or_all(name, type_names());
        reading.error("E070", at, format!("there is no resource type `{name}`")).help(help);
    }
}

fn later_type(reading: &mut Reading<'_>, key: &Spanned<String>, entries: &Entries) {
    let owner = entries.iter().find_map(|(other, _)| {
        schema::find(&other.value).filter(|kind| kind.attribute(&key.value).is_some())
    });
    match owner {
        Some(kind) => {
            reading
                .error(
                    "E070",
                    key.at,
                    format!("the type's key comes first, and `{}` is no type here", key.value),
                )
                .help(format!("begin the resource with `{}:`", kind.name));
        }
        None => unknown_type(reading, &key.value, key.at),
    }
}
