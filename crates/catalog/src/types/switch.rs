//! `switch`: something that one command switches to and another one back (ROL-10).

use model::Fields;

use super::{COMMAND_TIMEOUT_SECS, Ensure, STATE, Spec, StateSpec, no_rules};
use crate::module::CommandLine;
use crate::module::OnRemove::{Delete, Keep, Restore};
use crate::schema::{Attribute, FieldKind, Manages, ResourceAttributes, ResourceType, Short};

/// The name of what is switched to in a state.
pub const SWITCH_TEXT: &str = "to";

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "switch",
    summary: "Something that a pair of commands switches: the slots of a firmware, a cluster's active side, what a \
              package manager of its own installs. `run` switches to `to`, and `back` takes exactly that back: it \
              runs when the release that switched is taken back, and when the resource leaves the node's set with \
              `on_remove: delete`. Each must do the same when it runs again: one that was cut off, by a kill or \
              a power cut, is repeated. Without `current`, what is switched to is what was run last. A switch \
              that fails in a rollout takes the host back to the release before.",
    short: Short::Name,
    attributes: &[
        STATE,
        Attribute::required(
            "to",
            FieldKind::Line,
            "what is switched to: a version, a slot; another text is another switch",
        ),
        Attribute::required("run", FieldKind::Command, "switches to `to`"),
        Attribute::always("back", FieldKind::Command, "goes back to what was there before `run`"),
        Attribute::new(
            "current",
            FieldKind::Command,
            "",
            "prints what is switched to, as `to` has it; spaces around it do not count",
        ),
    ],
    timeout_secs: COMMAND_TIMEOUT_SECS,
    on_remove: &[Keep, Delete, Restore],
    handler: false,
    guarded: false,
    example: "- switch: firmware\n  to: \"2.1\"\n  run: [/usr/sbin/fwctl, activate, \"2.1\"]\n  back: [/usr/sbin/fwctl, \
              revert]\n  current: [/usr/sbin/fwctl, version]\n",
    manages: Manages::State,
    removal: &["back", "current"],
    rules: no_rules,
    bind,
};

/// `switch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchSpec {
    /// Its name.
    pub name: String,
    /// Present, or absent: then it is switched back.
    pub ensure: Ensure,
    /// What is switched to; empty where it is absent.
    pub to: String,
    /// Switches to it; nothing where it is absent.
    pub run: Option<CommandLine>,
    /// Takes that back.
    pub back: CommandLine,
    /// Prints what is switched to.
    pub current: Option<CommandLine>,
}

impl StateSpec for SwitchSpec {
    fn ensure(&self) -> Ensure {
        self.ensure
    }

    fn declared(&self) -> Fields {
        Fields::from([(SWITCH_TEXT.to_owned(), self.to.clone())])
    }
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    Ok(Spec::Switch(SwitchSpec {
        name: given.name(),
        ensure: given.ensure(),
        to: given.text_or_empty("to").trim().to_owned(),
        run: given.command("run"),
        back: given.command("back").ok_or("back is missing")?,
        current: given.command("current"),
    }))
}
