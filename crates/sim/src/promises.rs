//! What must hold after every event, and what must hold at the end.

use std::collections::BTreeMap;

use crate::world::{NAMES, World};

/// More events than this are a busy loop.
const MAX_EVENTS: u64 = 60_000;
/// More requests than this from one node are hammering.
const MAX_SENT: u64 = 900;

impl World {
    /// What must hold after every event.
    pub(crate) fn look_around(&mut self) {
        for (index, name) in NAMES.iter().enumerate() {
            for note in std::mem::take(&mut self.machines[index].notes) {
                if note.starts_with("refused") {
                    self.seen("node: refused an offer");
                } else if note.starts_with("adopts") {
                    self.seen("node: adopted");
                } else if note.starts_with("goes back") {
                    self.seen("node: went back to a named fallback");
                } else if note.starts_with("no contact") {
                    self.seen("node: warned of no contact");
                }
                self.say_of(index, &note);
            }
            if let Some(violation) = self.machines[index].violation.take() {
                self.fail(format!("{name}: {violation}"));
            }
        }
        self.confirmed_runs_were_made();
        if self.count > MAX_EVENTS {
            self.fail("so many events are a busy loop".to_owned());
        }
    }

    /// A request by tag is confirmed only by a run that began after it and was for all of its tags (CFG-7).
    fn confirmed_runs_were_made(&mut self) {
        for (node, run, requested) in std::mem::take(&mut self.control.tags_confirmed) {
            let machine = self.machines.iter().find(|machine| machine.id == node);
            let made = |tag: &String| {
                machine.is_some_and(|machine| {
                    machine.carried_out.get(tag).is_some_and(|began| *began >= requested)
                })
            };
            if !run.tags.iter().all(made) {
                self.fail(format!("{node}: request {} is confirmed, and was not carried out", run.number));
            }
        }
    }

    /// What must hold at the end.
    pub(crate) fn all_is_well(&mut self) -> Result<(), String> {
        for (index, name) in NAMES.iter().enumerate() {
            self.is_well(index).map_err(|why| format!("{name}: {why}"))?;
            self.facts_are_whole(index).map_err(|why| format!("{name}: {why}"))?;
        }
        match self.control.unconfirmed_runs() {
            0 => Ok(()),
            waiting => Err(format!("{waiting} run requests were never confirmed")),
        }
    }

    fn is_well(&mut self, index: usize) -> Result<(), String> {
        let machine = &self.machines[index];
        let (head, entry) =
            self.publisher.expected(&machine.hostname).ok_or("nothing is published for it")?;
        let held = machine.held().ok_or("it holds nothing")?;
        if (held.header, held.root) != (head.digest, entry.root) {
            return Err(format!("it holds release {}, the newest is {}", held.seq, head.header.seq));
        }
        if machine.host.applied != Some((entry.root, machine.host.traits)) || machine.host.drifted {
            return Err("its host is not what it holds".to_owned());
        }
        if machine.sent > MAX_SENT {
            return Err(format!("it sent {} requests", machine.sent));
        }
        let (id, now) = (machine.id.clone(), self.now);
        let status = self.control.node(&id).status(&self.publisher.heads, now);
        match status.overall().to_string().as_str() {
            "converged" => Ok(()),
            overall => Err(format!("the control plane calls it {overall}: {status:?}")),
        }
    }

    /// Every durable fact was accepted exactly once and in order.
    fn facts_are_whole(&mut self, index: usize) -> Result<(), String> {
        let machine = &self.machines[index];
        let mut next = BTreeMap::new();
        for (incarnation, fact) in self.control.facts(&machine.id) {
            let expected = next.entry(incarnation.clone()).or_insert(1);
            if fact.seq != *expected {
                return Err(format!("fact {} was accepted where {expected} was due", fact.seq));
            }
            *expected += 1;
            let body = machine.appended.get(&(incarnation.clone(), fact.seq));
            if body != Some(&fact.body) {
                return Err(format!("fact {} is not what was appended", fact.seq));
            }
            *self.tally.entry("facts accepted").or_default() += 1;
        }
        let log = &machine.disk.files().log;
        let accepted = next.get(&log.incarnation).map_or(0, |next| next - 1);
        if accepted != log.last {
            return Err(format!("{accepted} of {} facts were accepted", log.last));
        }
        if log.facts.is_empty() { Ok(()) } else { Err("facts wait though all were accepted".to_owned()) }
    }
}
