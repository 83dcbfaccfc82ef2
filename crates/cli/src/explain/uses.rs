//! The names that a declaration uses: in expressions, and in the template that it names.

use std::collections::BTreeSet;

use catalog::module::{CommandLine, Module};
use catalog::visit::ExpressionVisitor;
use converge::bind::NameUses;
use lang::Value;

/// Dotted names as their parts: `["params", "port"]`.
pub(super) type NamesUsed = BTreeSet<Vec<String>>;

/// The names that a condition uses.
pub(super) fn of_condition(source: &str) -> NamesUsed {
    of(|uses| uses.condition(source))
}

/// The names that the expressions in a value use, at any depth.
pub(super) fn of_value(value: &Value) -> NamesUsed {
    of(|uses| uses.value(value))
}

/// The names that a command uses.
pub(super) fn of_command(command: &CommandLine) -> NamesUsed {
    of(|uses| uses.command(command))
}

/// The names that a template of a module uses.
pub(super) fn of_template(module: &Module, name: &str) -> NamesUsed {
    of(|uses| module.templates.get(name).into_iter().for_each(|source| uses.template_source(source)))
}

fn of(visit: impl FnOnce(&mut NameUses)) -> NamesUsed {
    let mut uses = NameUses::default();
    visit(&mut uses);
    uses.paths().map(<[String]>::to_vec).collect()
}

/// The full name of the var that a name means in a module; none where it means something else.
pub(super) fn var(module: &str, path: &[String]) -> Option<String> {
    match path {
        [root, param, ..] if root == "params" => Some(format!("{module}.{param}")),
        [root, module, param, ..] if root == "vars" => Some(format!("{module}.{param}")),
        _ => None,
    }
}
