//! `switch`: which of its commands runs, and what is remembered of it (ROL-10).
//!
//! What a host is switched to is remembered before the command begins and after it ended. A command that was cut off in between
//! leaves a memory that says so: nothing is taken for switched then, and what follows is run whatever `current` prints.
//!
//! What is taken back leads to what was remembered before it, also where no `current` would say so: who goes on from there
//! finds itself switched, and runs nothing again.

use catalog::module::CommandLine;
use catalog::types::{Ensure, SWITCH_TEXT, SwitchSpec};
use model::Fields;

const TO: &str = "to";
const BEFORE: &str = "before";
const BACK: &str = "back";
const BACK_BEFORE: &str = "backBefore";
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
    /// What would take back what was there before, where Muster switched to that.
    pub back_before: Option<CommandLine>,
    /// The command ended, and well.
    pub ended: bool,
}

impl SwitchMemory {
    /// What was written down; `None` where another version wrote something else: it is run again then.
    pub fn read(fields: &Fields) -> Option<SwitchMemory> {
        Some(SwitchMemory {
            to: fields.get(TO)?.clone(),
            before: fields.get(BEFORE).cloned(),
            back: serde_json::from_slice(fields.get(BACK)?.as_bytes()).ok()?,
            back_before: fields
                .get(BACK_BEFORE)
                .and_then(|text| serde_json::from_slice(text.as_bytes()).ok()),
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
        if let Some(back) = &self.back_before {
            let back = serde_json::to_string(back).map_err(|error| error.to_string())?;
            fields.insert(BACK_BEFORE.to_owned(), back);
        }
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
    let is_before =
        |memory: &&SwitchMemory| to.is_some() && memory.before.as_ref() == to && Some(&memory.to) != to;
    if let (Some(memory), Some(to)) = (memory.filter(is_before), to) {
        // The release that switched is taken back, by the one before it or by what made the change itself.
        let back_before = match spec.ensure {
            Ensure::Present => Some(spec.back.clone()),
            Ensure::Absent => memory.back_before.clone(),
        };
        let after = back_before.map(|back| SwitchMemory {
            to: to.clone(),
            before: None,
            back,
            back_before: None,
            ended: true,
        });
        let during = SwitchMemory { ended: false, ..memory.clone() };
        return Some(SwitchStep { command: memory.back.clone(), during, after });
    }
    let ahead = to.zip(spec.run.clone()).filter(|_| spec.ensure == Ensure::Present);
    let Some((to, run)) = ahead else {
        // It goes, or becomes what it was before Muster.
        let back = memory.map_or(&spec.back, |memory| &memory.back).clone();
        let during = memory.cloned().unwrap_or(SwitchMemory {
            to: spec.to.clone(),
            before: None,
            back: back.clone(),
            back_before: None,
            ended: false,
        });
        let during = SwitchMemory { ended: false, ..during };
        return Some(SwitchStep { command: back, during, after: None });
    };
    let before = match memory {
        Some(memory) if !memory.ended => memory.before.clone(),
        _ => now.and_then(|now| now.get(SWITCH_TEXT)).filter(|now| *now != to).cloned(),
    };
    let back_before = match memory {
        Some(memory) if !memory.ended => memory.back_before.clone(),
        Some(memory) if Some(&memory.to) == before.as_ref() => Some(memory.back.clone()),
        _ => None,
    };
    let after = SwitchMemory { to: to.clone(), before, back: spec.back.clone(), back_before, ended: true };
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
            self.keep(fields);
        }

        /// What release `of` did goes back to a state.
        fn put_back(&mut self, of: &str, to: &str, cut: bool) {
            let now = observed(self.memory.as_ref(), None);
            let step = step(&gone(of), self.memory.as_ref(), now.as_ref(), Some(&state(to))).unwrap();
            let CommandLine::Shell(text) = step.command else { panic!() };
            self.ran.push(text);
            let fields = if cut { Some(step.during) } else { step.after };
            self.keep(fields);
        }

        fn put_back_to_nothing(&mut self, of: &str) {
            let now = observed(self.memory.as_ref(), None);
            let step = step(&gone(of), self.memory.as_ref(), now.as_ref(), None).unwrap();
            let CommandLine::Shell(text) = step.command else { panic!() };
            self.ran.push(text);
            self.keep(step.after);
        }

        /// As it is kept.
        fn keep(&mut self, memory: Option<SwitchMemory>) {
            self.memory = memory.and_then(|memory| SwitchMemory::read(&memory.write().unwrap()));
        }
    }

    /// What is bound of a resource that goes.
    fn gone(of: &str) -> SwitchSpec {
        SwitchSpec { ensure: Ensure::Absent, run: None, to: String::new(), ..spec(of) }
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
        host.to(&gone("3"), false);
        assert_eq!(host.ran[3..], ["to 3", "from 3"]);
        assert_eq!(host.memory, None);
    }

    /// CNV-10: what a `verify` puts back, it puts back by what made it: as a resource that goes, to the state before.
    #[test]
    fn a_release_that_undoes_its_own_switch_leaves_the_one_before_switched() {
        for cut in [false, true] {
            let mut host = Switched::default();
            host.to(&spec("1"), false);
            host.to(&spec("2"), false);
            host.put_back("2", "1", cut);
            if cut {
                host.put_back("2", "1", false);
            }
            // The release before finds itself switched, and can be taken back.
            host.to(&spec("1"), false);
            host.to(&gone("1"), false);
            let backs = if cut { vec!["from 2"; 2] } else { vec!["from 2"] };
            assert_eq!(host.ran, [vec!["to 1", "to 2"], backs, vec!["from 1"]].concat());
            assert_eq!(host.memory, None);
        }
        // What was there before was not Muster's: nothing is remembered of it.
        let mut host = Switched::default();
        host.to(&spec("1"), false);
        host.put_back_to_nothing("1");
        assert_eq!(
            (host.ran.as_slice(), &host.memory),
            (&["to 1".to_owned(), "from 1".to_owned()][..], &None)
        );
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
        first.to(&gone("1"), false);
        assert_eq!(first.ran, ["to 1", "from 1"]);
    }

    #[test]
    fn what_current_prints_counts_but_in_the_middle_of_a_switch() {
        let ended = SwitchMemory {
            to: "2".into(),
            before: Some("1".into()),
            back: command("b"),
            back_before: None,
            ended: true,
        };
        let cut = SwitchMemory { ended: false, ..ended.clone() };
        assert_eq!(observed(Some(&ended), Some("1\n")), Some(state("1")));
        assert_eq!(observed(Some(&cut), Some("1\n")), Some(state("between 1 and 2")));
        assert_eq!(observed(None, Some(" 7 ")), Some(state("7")));
        assert_eq!(observed(None, None), None);
    }
}
