//! Changes of the own sets.

use std::sync::Arc;

use bytes::Bytes;
use model::{ObjectKey, Stub};
use sync::durable::{Content, Write};
use sync::feed::Change;
use sync::object::status_key;
use sync::{Input, Mode};

use super::history::Rng;
use super::{AGENT, PRINCIPAL, TOMBSTONES, World, key};

/// An object, and its uid and content, or nothing.
type Edit = (ObjectKey, Option<(Arc<str>, String)>);

impl World {
    pub fn change(&mut self, at: usize, rng: &mut Rng) {
        let objects = match (at, self.mode) {
            (PRINCIPAL, Mode::Managed) | (AGENT, Mode::Autonomous) => true,
            (PRINCIPAL, _) => false,
            (_, Mode::Off) => return,
            (_, Mode::Managed | Mode::Autonomous) => false,
        };
        if at == PRINCIPAL && (!objects || rng.chance(15)) {
            return self.action(rng);
        }
        if at == AGENT && (!objects || rng.chance(40)) {
            return self.status(rng);
        }
        let kind = match rng.below(60) {
            0 => "Evil",
            1..=20 => "Proj",
            _ => "App",
        };
        let key = key(kind, rng.below(4));
        let old = self.sides[at].feed.stub(&key).map(|stub| stub.uid.clone());
        if old.is_some() && rng.chance(30) {
            self.reach("remove");
            self.commit(at, vec![(key, None)], rng);
            return;
        }
        let uid: Arc<str> = match old {
            Some(old) if rng.chance(70) => old,
            Some(_) => {
                self.reach("recreate");
                self.uid()
            }
            None if rng.chance(2) => {
                let other = self.sides[at].feed.objects().find(|(k, _)| k.section == key.section);
                match other.map(|(_, stub)| stub.uid.clone()) {
                    Some(uid) => {
                        self.reach("uid twice");
                        uid
                    }
                    None => self.uid(),
                }
            }
            None => self.uid(),
        };
        self.reach("put");
        let cursed = if rng.chance(4) { "!" } else { "" };
        let content = format!("{cursed}{}", rng.below(6));
        self.commit(at, vec![(key, Some((uid, content)))], rng);
    }

    fn uid(&mut self) -> Arc<str> {
        self.uids += 1;
        format!("u{}", self.uids).into()
    }

    fn action(&mut self, rng: &mut Rng) {
        let done: Vec<ObjectKey> = self.sides[PRINCIPAL]
            .feed
            .objects()
            .filter(|(key, _)| key.section.kind.as_str() == "Action" && self.delivered.contains_key(key))
            .map(|(key, _)| key.clone())
            .collect();
        if !done.is_empty() && rng.chance(60) {
            self.reach("action done");
            let done = done.into_iter().map(|key| (key, None)).collect();
            return self.commit(PRINCIPAL, done, rng);
        }
        if self.sides[PRINCIPAL].feed.len() > 24 {
            return;
        }
        self.reach("action");
        let uid = self.uid();
        self.commit(
            PRINCIPAL,
            vec![(ObjectKey::of("Action", &uid), Some((uid.clone(), format!("do {uid}"))))],
            rng,
        );
    }

    fn status(&mut self, rng: &mut Rng) {
        self.reach("status");
        let key = status_key(&key(if rng.chance(30) { "Proj" } else { "App" }, rng.below(4)));
        if rng.chance(10) {
            return self.commit(AGENT, vec![(key, None)], rng);
        }
        let uid = self.sides[AGENT].feed.stub(&key).map_or_else(|| "".into(), |stub| stub.uid.clone());
        let uid = if uid.is_empty() || rng.chance(10) { self.uid() } else { uid };
        self.commit(AGENT, vec![(key, Some((uid, format!("s{}", rng.below(9)))))], rng);
    }

    fn commit(&mut self, at: usize, edits: Vec<Edit>, rng: &mut Rng) {
        let now = self.now.0;
        let side = &mut self.sides[at];
        let mut planner = side.feed.planner();
        let mut ours = Vec::new();
        for (key, new) in edits {
            match new {
                Some((uid, content)) => {
                    let content = Bytes::from(content);
                    let stub = Stub { uid, ..Stub::of(&content) };
                    let change = planner.put(&key, &stub).unwrap();
                    ours.extend(
                        change.map(|change| (change, Some(Content { bytes: content, trace: None, at: now }))),
                    );
                }
                None => ours.extend(planner.remove(&key).map(|change| (change, None))),
            }
        }
        if ours.is_empty() {
            return;
        }
        let changes: Vec<Change> = ours.iter().map(|(change, _)| change.clone()).collect();
        side.disk.write(Write::of(&side.feed, ours));
        if !self.healed && rng.chance(1) {
            self.reach("crash before commit");
            return self.restart(at);
        }
        let feed = &mut self.sides[at].feed;
        let mut forgot = 0;
        for change in changes {
            let before = feed.compacted();
            feed.commit(change).unwrap();
            forgot += u64::from(feed.compacted() > before);
        }
        assert!(feed.tombstones() <= TOMBSTONES);
        self.reach_n("compacted", forgot);
        self.give(at, Input::Tick);
    }

    /// Somebody edits or deletes what was applied; the shell puts it right from the replica.
    pub fn local_edit(&mut self, at: usize, rng: &mut Rng) {
        let keys: Vec<ObjectKey> = self.sides[at].backend.keys().cloned().collect();
        if keys.is_empty() {
            return;
        }
        self.reach("local edit");
        let key = keys[rng.below(keys.len() as u64) as usize].clone();
        let side = &mut self.sides[at];
        side.backend.insert(key.clone(), Bytes::from("edited"));
        if let Some((.., content)) = side.disk.theirs.get(&key) {
            side.backend.insert(key, content.bytes.clone());
        }
    }
}
