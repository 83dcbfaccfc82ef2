//! `switch`: which of its commands runs, and what is remembered of it (ROL-10).
//!
//! What a host is switched to is remembered before the command begins and after it ended. A command that was cut off in between
//! leaves a memory that says so: nothing is taken for switched then, and what follows is run whatever `current` prints.

use catalog::module::CommandLine;
use catalog::types::{Ensure, SWITCH_TEXT, SwitchSpec};
use model::Fields;

const TO: &str = "to";
const BEFORE: &str = "before";
const BACK: &str = "back";
const ENDED: &str = "ended";
const YES: &str = "true";

/// What is remembered of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchMemory {
    /// What was switched to.
    pub to: String,
    /// From what, where that is known.
    pub before: Option<String>,
    /// What takes it back.
    pub back: CommandLine,
    /// The command ended, and well.
    pub ended: bool,
}

impl SwitchMemory {
    /// What was written down; `None` where another version wrote something else: it is run again then.
    pub fn read(fields: &Fields) -> Option<SwitchMemory> {
        Some(SwitchMemory {
            to: fields.get(TO)?.clone(),
            before: fields.get(BEFORE).cloned(),
            back: serde_json::from_str(fields.get(BACK)?).ok()?,
            ended: fields.get(ENDED).is_some_and(|text| text == YES),
        })
    }

    /// To be written down.
    ///
    /// # Errors
    /// In words, never for a command that was read.
    pub fn write(&self) -> Result<Fields, String> {
        let back = serde_json::to_string(&self.back).map_err(|error| error.to_string())?;
        let mut fields = Fields::from([(TO.to_owned(), self.to.clone()), (BACK.to_owned(), back)]);
        fields.extend(self.before.clone().map(|before| (BEFORE.to_owned(), before)));
        if self.ended {
            fields.insert(ENDED.to_owned(), YES.to_owned());
        }
        Ok(fields)
    }
}

/// The state of the host: what it is switched to. `printed` is what `current` says, where there is one.
pub fn observed(memory: Option<&SwitchMemory>, printed: Option<&str>) -> Option<Fields> {
    let to = match (memory, printed) {
        (Some(memory), _) if !memory.ended => format!("between {} and {}", from(memory), memory.to),
        (_, Some(printed)) => printed.trim().to_owned(),
        (Some(memory), None) => memory.to.clone(),
        (None, None) => return None,
    };
    Some(Fields::from([(SWITCH_TEXT.to_owned(), to)]))
}

fn from(memory: &SwitchMemory) -> &str {
    memory.before.as_deref().unwrap_or("what was there before")
}

/// A command to be run, with what is remembered while it runs and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchStep {
    /// The command.
    pub command: CommandLine,
    /// Remembered before it begins.
    pub during: SwitchMemory,
    /// Remembered once it ended; nothing where the host is as it was before the first switch.
    pub after: Option<SwitchMemory>,
}

/// What leads to the state `to`, given the state `now`; nothing where no command does.
pub fn step(
    spec: &SwitchSpec,
    memory: Option<&SwitchMemory>,
    now: Option<&Fields>,
    to: Option<&Fields>,
) -> Option<SwitchStep> {
    let to = to.and_then(|to| to.get(SWITCH_TEXT));
    let ahead = to.zip(spec.run.clone()).filter(|_| spec.ensure == Ensure::Present);
    let Some((to, run)) = ahead else {
        // It goes, or becomes what it was before Muster.
        let back = memory.map_or(&spec.back, |memory| &memory.back).clone();
        let during = memory.cloned().unwrap_or(SwitchMemory {
            to: spec.to.clone(),
            before: None,
            back: back.clone(),
            ended: false,
        });
        let during = SwitchMemory { ended: false, ..during };
        return Some(SwitchStep { command: back, during, after: None });
    };
    let arrived = |before| SwitchMemory { to: to.clone(), before, back: spec.back.clone(), ended: true };
    if let Some(memory) = memory.filter(|memory| memory.before.as_ref() == Some(to) && memory.to != *to) {
        // The release that switched is taken back.
        let during = SwitchMemory { ended: false, ..memory.clone() };
        return Some(SwitchStep { command: memory.back.clone(), during, after: Some(arrived(None)) });
    }
    let before = match memory {
        Some(memory) if !memory.ended => memory.before.clone(),
        _ => now.and_then(|now| now.get(SWITCH_TEXT)).filter(|now| *now != to).cloned(),
    };
    let after = arrived(before);
    let during = SwitchMemory { ended: false, ..after.clone() };
    Some(SwitchStep { command: run, during, after: Some(after) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn command(text: &str) -> CommandLine {
        CommandLine::Shell(text.to_owned())
    }

    fn spec(to: &str) -> SwitchSpec {
        SwitchSpec {
            name: "firmware".to_owned(),
            ensure: Ensure::Present,
            to: to.to_owned(),
            run: Some(command(&format!("to {to}"))),
            back: command(&format!("from {to}")),
            current: None,
        }
    }

    fn state(to: &str) -> Fields {
        Fields::from([(SWITCH_TEXT.to_owned(), to.to_owned())])
    }

    /// A host that is switched, with each command as it ran.
    #[derive(Default)]
    struct Switched {
        memory: Option<SwitchMemory>,
        ran: Vec<String>,
    }

    impl Switched {
        /// Goes to what is declared; `cut` off before the command ends, or not.
        fn to(&mut self, spec: &SwitchSpec, cut: bool) {
            let now = observed(self.memory.as_ref(), None);
            let to = (spec.ensure == Ensure::Present).then(|| state(&spec.to));
            if now == to {
                return;
            }
            let step = step(spec, self.memory.as_ref(), now.as_ref(), to.as_ref()).unwrap();
            let CommandLine::Shell(text) = step.command else { panic!() };
            self.ran.push(text);
            let fields = if cut { Some(step.during) } else { step.after };
            // As it is kept.
            self.memory = fields.and_then(|memory| SwitchMemory::read(&memory.write().unwrap()));
        }
    }

    #[test]
    fn a_release_that_is_taken_back_runs_what_takes_it_back() {
        let mut host = Switched::default();
        host.to(&spec("1"), false);
        host.to(&spec("1"), false);
        host.to(&spec("2"), false);
        host.to(&spec("1"), false);
        assert_eq!(host.ran, ["to 1", "to 2", "from 2"]);
        // It is on 1 by what 2 took back, and goes on from there.
        host.to(&spec("3"), false);
        host.to(&SwitchSpec { ensure: Ensure::Absent, run: None, to: String::new(), ..spec("3") }, false);
        assert_eq!(host.ran[3..], ["to 3", "from 3"]);
        assert_eq!(host.memory, None);
    }

    #[test]
    fn what_was_cut_off_is_done_again_or_taken_back() {
        let mut host = Switched::default();
        host.to(&spec("1"), false);
        host.to(&spec("2"), true);
        host.to(&spec("2"), true);
        host.to(&spec("1"), true);
        host.to(&spec("1"), false);
        host.to(&spec("1"), false);
        assert_eq!(host.ran, ["to 1", "to 2", "to 2", "from 2", "from 2"]);
        let mut first = Switched::default();
        first.to(&spec("1"), true);
        first.to(&SwitchSpec { ensure: Ensure::Absent, run: None, to: String::new(), ..spec("1") }, false);
        assert_eq!(first.ran, ["to 1", "from 1"]);
    }

    #[test]
    fn what_current_prints_counts_but_in_the_middle_of_a_switch() {
        let ended =
            SwitchMemory { to: "2".into(), before: Some("1".into()), back: command("b"), ended: true };
        let cut = SwitchMemory { ended: false, ..ended.clone() };
        assert_eq!(observed(Some(&ended), Some("1\n")), Some(state("1")));
        assert_eq!(observed(Some(&cut), Some("1\n")), Some(state("between 1 and 2")));
        assert_eq!(observed(None, Some(" 7 ")), Some(state("7")));
        assert_eq!(observed(None, None), None);
    }
}
