//! What must be true of a host at every moment, of what it makes durable, and of where it comes to rest.

use activation::{ActivationRecord, ActivationStage, ContactRule};

use super::{Active, LIMITS, SimulatedHost, boot_id};

impl SimulatedHost {
    pub(super) fn persist(&mut self, record: &ActivationRecord) {
        let before = self.agreed.clone();
        assert!(record.kept.len() <= LIMITS.count, "more is kept than the limits say");
        if record.confirmed.id != before.confirmed.id {
            let went_back = matches!(&before.under_way, ActivationStage::Probation(probation) if probation.previous.id == record.confirmed.id);
            if !went_back {
                let target = record.confirmed.id;
                assert_eq!(self.active, Active::On(target), "confirmed, and it does not run");
                assert!(self.passed.contains(&target), "confirmed without its probe");
                let ActivationStage::Confirming(trial) = &before.under_way else {
                    panic!("confirmed from {before:?}")
                };
                assert_eq!(trial.boot, boot_id(self.boot), "confirmed in another boot");
                let may = trial.terms.contact == ContactRule::ProbesAlone || self.answered.contains(&target);
                assert!(may, "confirmed without the control plane");
            }
        }
        self.durable = record.clone();
    }

    /// It went back from what is confirmed by a record that nobody could overwrite: the next agent goes on with that.
    fn is_back(&self) -> bool {
        matches!(&self.record().under_way, ActivationStage::Probation(probation) if self.active == Active::On(probation.previous.id))
    }

    /// It is to leave what is confirmed once that is durable; the record that says so is, and could not be synced.
    fn leaves_later(&self) -> bool {
        let leaves = matches!(&self.record().under_way, ActivationStage::Returning(back) if self.active == Active::On(back.from.id));
        leaves && matches!(self.agreed.under_way, ActivationStage::Probation(_))
    }

    /// What holds at every moment.
    pub(super) fn check(&self) {
        let record = self.record();
        let is_home =
            self.active == Active::On(record.confirmed.id) || self.is_back() || self.returns_unwritten;
        let is_watched = self.process.as_ref().is_some_and(|process| process.is_watchdog);
        assert!(
            is_home || is_watched || self.armed.is_some(),
            "the host is away from {:?}, and nothing is armed: {:?}",
            record.confirmed.id,
            record.under_way
        );
        self.check_is_not_left();
    }

    /// No more faults and no more orders: the host comes to rest, with the network cut and the agent as it is.
    pub fn rest(&mut self) {
        self.faults = false;
        for _ in 0..2000 {
            let record = self.record();
            let is_home = self.active == Active::On(record.confirmed.id)
                || (self.disk_full && (self.is_back() || self.leaves_later()));
            let rests = match record.under_way {
                ActivationStage::Settled => true,
                // Its agent may die still.
                ActivationStage::Probation(_) => self.armed.is_none() || self.disk_full,
                ActivationStage::Deferred(_) if self.disk_full => true,
                ActivationStage::Deferred(_) => {
                    self.reboot();
                    false
                }
                // Nothing can be written down.
                ActivationStage::Returning(_) => self.disk_full,
                ActivationStage::Armed(_) | ActivationStage::Confirming(_) => self.disk_full,
            };
            if rests && is_home {
                return;
            }
            self.step();
        }
        panic!("the host does not come to rest: {:?} {:?}", self.active, self.record());
    }
}
