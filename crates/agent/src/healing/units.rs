//! The thread that hears from systemd what becomes of units.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use converge::WatchPlan;
use host::{BusError, SpawnCompactly, UnitEvent, UnitWatch};

use super::{WatchShared, lock};
use crate::render::chain;

/// The first wait before the bus is tried again; it doubles with each time.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest of these waits.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// How long systemd is listened to before it is looked whether other units are of interest.
const LISTEN: Duration = Duration::from_secs(30);

pub(super) fn start(shared: Arc<WatchShared>) -> io::Result<()> {
    let listener = UnitListener { shared, plan: Arc::default(), names: BTreeMap::new() };
    std::thread::Builder::new()
        .name("watch units".to_owned())
        .spawn_compactly(move || listener.run())
        .map(drop)
}

struct UnitListener {
    shared: Arc<WatchShared>,
    plan: Arc<WatchPlan>,
    /// Units that are declared by another name than their own, by that.
    names: BTreeMap<String, Vec<String>>,
}

impl UnitListener {
    fn run(mut self) {
        let mut failures = 0;
        loop {
            self.wait_for_units();
            let ended = self.shared.host.systemd().watch().and_then(|watch| {
                // What was not heard of until now is looked at.
                let mut missed = BTreeSet::new();
                self.shared.plan().of_units(&mut missed);
                match failures {
                    0 => self.shared.suspect(missed),
                    _ => self.shared.suspect_after_loss(missed),
                }
                self.shared.show(|view| view.units_problem = None);
                failures = 0;
                self.listen(watch)
            });
            let Err(error) = ended else { continue };
            failures += 1;
            let why = format!("systemd is not heard: {}", chain(&error));
            tracing::debug!(why, failures, "units are looked at by full runs alone");
            self.shared.show(|view| view.units_problem = Some(why));
            let wait = FIRST_RETRY.saturating_mul(1 << (failures - 1).min(6)).min(LONGEST_RETRY);
            std::thread::sleep(wait);
        }
    }

    /// Waits until some unit is of interest.
    fn wait_for_units(&self) {
        let desired = lock(&self.shared.desired);
        let none = |desired: &mut super::DesiredWatch| desired.plan.units().next().is_none();
        drop(self.shared.changed.wait_while(desired, none).unwrap_or_else(PoisonError::into_inner));
    }

    /// Hears what becomes of units until none is of interest.
    fn listen(&mut self, mut watch: UnitWatch) -> Result<(), BusError> {
        self.plan = Arc::default();
        loop {
            self.follow();
            if self.plan.units().next().is_none() {
                return Ok(());
            }
            let mut suspects = BTreeSet::new();
            match watch.next_event(LISTEN)? {
                Some(UnitEvent::State(unit)) => {
                    self.follow();
                    self.plan.of_unit(&unit, &mut suspects);
                    for name in self.names.get(&unit).into_iter().flatten() {
                        self.plan.of_unit(name, &mut suspects);
                    }
                }
                Some(UnitEvent::Files) => self.plan.of_units(&mut suspects),
                None => {}
            }
            self.shared.suspect(suspects);
        }
    }

    /// Takes over the plan. Signals bear a unit's own name, and it may be declared by an alias.
    fn follow(&mut self) {
        let plan = self.shared.plan();
        if Arc::ptr_eq(&plan, &self.plan) {
            return;
        }
        self.names.clear();
        for unit in plan.units() {
            // What cannot be asked now is known by its name alone.
            let own =
                self.shared.host.systemd().unit(unit).map(|properties| properties.id).unwrap_or_default();
            if !own.is_empty() && own != unit {
                self.names.entry(own).or_default().push(unit.to_owned());
            }
        }
        self.plan = plan;
    }
}
