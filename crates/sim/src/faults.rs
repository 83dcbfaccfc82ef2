//! What goes wrong, and what people do meanwhile.

use crate::machine::KNOWN_TAG;
use crate::world::{Event, World};

impl World {
    /// Lets one random thing happen.
    pub(crate) fn fault(&mut self) {
        let index = self.chance.below(self.machines.len());
        let kind = self.chance.below(18);
        let a_while = self.now.plus(self.chance.secs(10, 2400));
        let name = match kind {
            0 | 1 => {
                let running = self.machines[index].runs();
                let asks = if running { self.machines[index].die() } else { vec![] };
                self.asked(index, asks);
                "fault: killed"
            }
            2..=4 => {
                let (writes, done) = (self.chance.below(6), self.chance.one_in(2));
                self.machines[index].disk.lose_power_after(writes, done);
                "fault: power lost at a write"
            }
            5 => {
                self.full_until[index] = a_while;
                "fault: disk full"
            }
            6 => {
                self.cut_until[index] = a_while;
                "fault: node cut off"
            }
            7 => {
                self.cut_until.fill(a_while);
                "fault: all cut off"
            }
            8 | 9 => {
                if self.control.up {
                    self.control.up = false;
                    self.after(1, 900, Event::ControlStarts);
                }
                "fault: control plane killed"
            }
            10 => {
                self.control.store_down = !self.control.store_down;
                "fault: database down or up"
            }
            11 => {
                self.hostile_until = a_while;
                "fault: control plane broken into"
            }
            12 => {
                let forgotten = self.publisher.sets.keys().copied();
                self.control.forgotten.extend(forgotten);
                "fault: old sets forgotten"
            }
            13 => {
                self.machines[index].ahead = self.another_clock();
                "fault: clock off"
            }
            14 => self.disturb(index),
            15 => self.operate(index),
            _ => {
                self.publish();
                "operator: publishes"
            }
        };
        self.seen(name);
        self.say_of(index, name);
    }

    fn another_clock(&mut self) -> i64 {
        let hour = 3_600_000;
        [-1000 * 24 * hour, -26 * hour, -hour, -30_000, 40_000, hour, 5 * hour, 300 * 24 * hour]
            [self.chance.below(8)]
    }

    fn disturb(&mut self, index: usize) -> &'static str {
        match self.chance.below(3) {
            0 => {
                self.machines[index].host.drifted = true;
                "host: changed by hand"
            }
            1 => {
                self.machines[index].host.traits += 1;
                "host: trait changed"
            }
            _ => {
                let incarnation = self.machines[index].incarnation;
                let asks = if self.machines[index].runs() { self.machines[index].die() } else { vec![] };
                self.asked(index, asks);
                self.machines[index]
                    .disk
                    .lose_log(format!("i-{incarnation}-{}", self.count).parse().unwrap());
                "fault: log lost"
            }
        }
    }

    fn operate(&mut self, index: usize) -> &'static str {
        if self.chance.one_in(2) {
            self.publisher.beacon(self.now);
            return "operator: beacons";
        }
        self.run_requests += 1;
        let id = self.machines[index].id.clone();
        if self.chance.one_in(2) {
            if self.control.up {
                self.control.request_run(&id, self.run_requests);
            }
            return "operator: run requests";
        }
        if self.control.up {
            // One that resources have, and one that none has.
            let tag = if self.chance.one_in(2) { KNOWN_TAG } else { "nope" };
            self.control.request_tagged_run(&id, self.run_requests, tag, self.now);
        }
        "operator: requests runs by tag"
    }

    /// Faults stop. Slow clocks stay slow; fast ones are put right.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
        self.say("world", "calm");
        let now = self.now;
        self.cut_until.fill(now);
        self.full_until.fill(now);
        self.hostile_until = now;
        self.control.store_down = false;
        for machine in &mut self.machines {
            machine.ahead = machine.ahead.min(0);
        }
        if self.chance.one_in(2) {
            self.publish();
        } else {
            self.publisher.beacon(now);
        }
    }
}
