//! What happens in a history, and the numbers that choose it.

/// One thing that happens; `u64` chooses the details.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    Change(usize, u64),
    Local(usize, u64),
    Deliver(usize, u64),
    Work(usize, u64),
    Time(u64),
    Restart(usize),
    Cut(u64),
    Connect(u64),
    Backup(usize),
    Restore(usize),
    Approve(usize),
    Shutdown(usize),
}

#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The history of a seed: at least 300 operations, 3 restarts and a partition among them.
pub fn history(seed: u64) -> Vec<Op> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut ops = Vec::new();
    for _ in 0..300 {
        let roll = rng.next();
        let side = rng.below(2) as usize;
        ops.push(match rng.below(100) {
            0..=29 => Op::Change(side, roll),
            30..=59 => Op::Deliver(side, roll),
            60..=84 => Op::Work(side, roll),
            85..=91 => Op::Time([5, 100, 900, 4000, 20_000, 65_000][(roll % 6) as usize]),
            92..=94 => Op::Connect(roll),
            95 => Op::Local(side, roll),
            96 => {
                if roll.is_multiple_of(3) {
                    Op::Restart(side)
                } else {
                    Op::Connect(roll)
                }
            }
            97 => match roll % 4 {
                0 => Op::Backup(side),
                1 => Op::Restore(side),
                _ => Op::Connect(roll),
            },
            98 => {
                if roll.is_multiple_of(4) {
                    Op::Cut(roll)
                } else {
                    Op::Approve(side)
                }
            }
            _ => {
                if roll.is_multiple_of(4) {
                    Op::Shutdown(side)
                } else {
                    Op::Connect(roll)
                }
            }
        });
    }
    for op in [Op::Restart(0), Op::Restart(1), Op::Restart(rng.below(2) as usize), Op::Cut(rng.next())] {
        let at = rng.below(ops.len() as u64) as usize;
        ops.insert(at, op);
    }
    ops
}
