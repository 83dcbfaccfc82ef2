//! The end of a history: everything works, and the world must come to rest with equal sets.

use std::collections::BTreeSet;

use model::condition::{Difference, SetCondition};
use sync::link::LinkCommand;
use sync::{Input, refusal};

use super::history::Rng;
use super::{AGENT, PRINCIPAL, Side, World};

impl World {
    /// Everything works from now on; the world must come to rest with equal sets.
    pub fn heal(&mut self) {
        self.healed = true;
        self.cut_until = self.now;
        self.restart(PRINCIPAL);
        self.restart(AGENT);
        let mut rng = Rng::new(7);
        let (mut approvals, mut approved_at) = (0, None);
        for round in 0..4000 {
            self.connect(&mut rng);
            if self.is_busy() {
                for at in [PRINCIPAL, AGENT] {
                    while !self.sides[at].jobs.is_empty() {
                        self.work(at, &mut rng);
                    }
                    for _ in 0..self.wires[at].len() {
                        self.deliver(at, &mut rng);
                    }
                }
                continue;
            }
            if self.is_at_rest() {
                return self.verify();
            }
            let mut approved_now = false;
            for at in [PRINCIPAL, AGENT] {
                let side = &self.sides[at];
                let kept = side.link.as_ref().map(|link| link.replica_condition(&side.replica));
                let kept =
                    matches!(kept, Some(SetCondition::OutOfSync(Difference::DeletionsUnconfirmed { .. })));
                if kept && approved_at != Some(self.now) {
                    approved_now = true;
                    approvals += 1;
                    assert!(approvals < 20, "approval does not help: {:?}", self.told());
                    self.reach("approved");
                    self.give(at, Input::Command(LinkCommand::Approve));
                }
            }
            if approved_now {
                // It is on its way: no time passes.
                approved_at = Some(self.now);
                continue;
            }
            let due = self.sides.iter().filter_map(|side| side.link.as_ref()?.next_deadline()).min();
            self.now = due.unwrap_or(self.now).max(self.now);
            self.tick();
            assert!(round < 3999, "the world does not come to rest: {:?}", self.told());
        }
    }

    fn is_busy(&self) -> bool {
        (0..2).any(|at| !self.wires[at].is_empty() || !self.sides[at].jobs.is_empty())
    }

    fn told(&self) -> Vec<String> {
        self.sides
            .iter()
            .map(|side| {
                let status = side
                    .link
                    .as_ref()
                    .map(|link| (link.feed_condition(&side.feed), link.replica_condition(&side.replica)));
                format!(
                    "{:?} {status:?} feed {:?} replica {:?}",
                    side.role,
                    side.feed.cursor(),
                    side.replica.cursor()
                )
            })
            .collect()
    }

    fn is_at_rest(&mut self) -> bool {
        let [a, b] = &mut self.sides;
        let settled = |side: &Side| {
            let Some(link) = &side.link else { return false };
            let theirs = link.replica_condition(&side.replica);
            let fine = theirs == SetCondition::InSync
                || (!side.replica.rejected().is_empty()
                    && matches!(theirs, SetCondition::OutOfSync(Difference::Rejected { .. })));
            fine && link.under_way() == 0
        };
        settled(a)
            && settled(b)
            && a.feed.root() == b.replica.root()
            && b.feed.root() == a.replica.root()
            && b.replica.cursor() == Some(&a.feed.cursor())
            && a.replica.cursor() == Some(&b.feed.cursor())
    }

    /// Equal, with the source of truth's content, on disk and in the backend.
    fn verify(&mut self) {
        for at in [PRINCIPAL, AGENT] {
            let (source, replica) = (&self.sides[at], &self.sides[1 - at]);
            let mut fit = BTreeSet::new();
            for (key, stub) in source.feed.objects() {
                let content = source.disk.ours[key].1.as_ref().unwrap().bytes.clone();
                if let Some(rejected) = replica.replica.rejected().get(key) {
                    assert_eq!(rejected.stub.as_ref().map(|s| s.digest), Some(stub.digest), "{key}");
                    let cursed = content.starts_with(b"!");
                    let expected = match rejected.code.as_str() {
                        refusal::KIND => key.section.kind.as_str() == "Evil",
                        refusal::UID_TWICE => {
                            // One that is gone at the source may still hold it, where its removal is refused.
                            replica.replica.objects().any(|(other, s)| other != key && s.uid == stub.uid)
                        }
                        code => cursed && code == "cursed",
                    };
                    assert!(expected, "{key} is refused: {}", rejected.code);
                    continue;
                }
                fit.insert(key.clone());
                let kept = replica.disk.theirs.get(key);
                assert_eq!(kept.map(|(s, _, c)| (s, &c.bytes)), Some((stub, &content)), "{key} on disk");
                assert_eq!(replica.backend.get(key), Some(&content), "{key} in the backend");
                if key.section.kind.as_str() == "Action" {
                    assert_eq!(self.delivered.get(key), Some(&content), "{key} was not delivered");
                }
            }
            let extra = replica
                .disk
                .theirs
                .keys()
                .find(|key| !fit.contains(*key) && !replica.replica.rejected().contains_key(*key));
            assert_eq!(extra, None, "gone at the source");
        }
    }
}
