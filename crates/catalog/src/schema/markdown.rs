//! The reference of resource types, made from the table.

use std::fmt::Write as _;

use super::{Attribute, COMMON, LATER_TYPES, Need, ResourceType, Short, TYPES};
use crate::module::{
    DEFAULT_RETRY_DELAY_SECS, MAX_LOOP_ITEMS, MAX_RETRIES, MAX_RETRY_DELAY_SECS, MAX_TAGS, OnRemove,
};
use crate::traits::TRAITS;
use crate::{duration, schema};

const HEAD: &str = "\
# Resource types

<!-- Made from the declarations in crates/catalog/src/types/; a test holds this file to it. -->

A resource is an item of `resources:` or `handlers:` in a module. The short form
`- file: /etc/motd` is the same thing as `- {type: file, name: /etc/motd}`. Every text may
hold `${{ expression }}`; the names there are `params`, `vars`, `traits` and `node`.

";

const EXTERNAL: &str = "
`traits.external.NAME.KEY` is what an administrator says of the host: `/etc/muster/traits.d/NAME.json`
(an object), `NAME.txt` (lines of `KEY=VALUE`), or a program `NAME` (mode 0755) that prints one or the
other within 10 s. A source has at most 64 KiB, and counts only if nobody but root may write it. Use
`default` for what a host may lack.

A collector that fails leaves what it saw last; `muster query NODE traits` shows its failure. Each looks
again after its own time, or after what `traits:` of the channel says.
";

/// `docs/reference/resource-types.md`, whole.
pub fn markdown() -> String {
    let mut out = String::from(HEAD);
    // Writing to a String cannot fail.
    let _ = write(&mut out);
    out
}

fn write(out: &mut String) -> std::fmt::Result {
    writeln!(out, "## Keys of every resource\n\n| key | holds | meaning |\n|---|---|---|")?;
    for (name, holds, summary) in COMMON {
        writeln!(out, "| `{name}` | {holds} | {summary} |")?;
    }
    bounds(out)?;
    for kind in TYPES {
        resource_type(out, kind)?;
    }
    traits(out)?;
    writeln!(out, "\n## Not in this version\n")?;
    writeln!(out, "Types: {}.", ticked(LATER_TYPES))
}

fn bounds(out: &mut String) -> std::fmt::Result {
    writeln!(out, "\nThe longest `timeout` is {}.", duration::show(schema::MAX_TIMEOUT_SECS))?;
    writeln!(out, "A `foreach` goes over at most {MAX_LOOP_ITEMS} items.")?;
    let (default, most) = (duration::show(DEFAULT_RETRY_DELAY_SECS), duration::show(MAX_RETRY_DELAY_SECS));
    writeln!(
        out,
        "`retries` is at most {MAX_RETRIES}, `retry_delay` {default} unless said and at most {most}."
    )?;
    writeln!(
        out,
        "`only_if` and `not_if` run as root in `/` before the resource is looked at, in a plan too, \
         and end with the resource's `timeout`."
    )?;
    writeln!(out, "A resource has at most {MAX_TAGS} tags.")
}

fn resource_type(out: &mut String, kind: &ResourceType) -> std::fmt::Result {
    writeln!(out, "\n## {}\n\n{}\n\n```yaml\n{}```\n", kind.name, kind.summary, kind.example)?;
    match kind.short {
        Short::Path => writeln!(out, "The name is an absolute path.")?,
        Short::Name => writeln!(out, "The name is any text.")?,
        Short::Attribute(attribute) => {
            writeln!(
                out,
                "In the short form the value is `{attribute}`; the name is `name:`, else `id:`, else made of it."
            )?;
        }
    }
    if kind.guarded {
        writeln!(out, "Outside handlers it needs `creates`, `unless`, `onlyif` or `always: true`.")?;
    }
    let removal: Vec<&str> = kind.on_remove.iter().map(on_remove).collect();
    let default = on_remove(&kind.default_on_remove());
    writeln!(out, "`on_remove`: {} (default `{default}`).", ticked(&removal))?;
    writeln!(out, "Default `timeout`: {}.", duration::show(kind.timeout_secs))?;
    writeln!(out, "{}", if kind.handler { "It may be a handler." } else { "It cannot be a handler." })?;
    writeln!(out, "\n| attribute | holds | default | meaning |\n|---|---|---|---|")?;
    for Attribute { name, kind, need, default, summary, .. } in kind.attributes {
        let default = match (need, *default) {
            (Need::Always | Need::UnlessAbsent, _) => "required".to_owned(),
            (Need::Optional, "") => String::new(),
            (Need::Optional, value) => format!("`{value}`"),
        };
        writeln!(out, "| `{name}` | {} | {default} | {summary} |", kind.describe())?;
    }
    Ok(())
}

fn traits(out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n## Traits\n\nWhat a node observes of itself, as `traits.GROUP.NAME`.\n")?;
    writeln!(out, "| trait | holds | meaning |\n|---|---|---|")?;
    for one in TRAITS.iter() {
        writeln!(out, "| `{}.{}` | {} | {} |", one.group, one.name, one.kind, one.summary)?;
    }
    out.push_str(EXTERNAL);
    Ok(())
}

fn on_remove(value: &OnRemove) -> &'static str {
    match value {
        OnRemove::Keep => "keep",
        OnRemove::Delete => "delete",
        OnRemove::Restore => "restore",
    }
}

fn ticked(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
