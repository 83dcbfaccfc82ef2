//! Chance, and generations that break what they touch.

use std::sync::LazyLock;
use std::time::Duration;

use activation::{
    BootId, Generation, GenerationId, GenerationLimits, HealthProbe, HealthProbeKind, HealthProbeMode,
    ProbeTopology,
};
use model::Digest;

pub const SECOND: Duration = Duration::from_secs(1);
pub const LIMITS: GenerationLimits = GenerationLimits { count: 3, bytes: 1000 };

/// Numbers that follow from a seed (splitmix64).
#[derive(Clone)]
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What a generation does to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    Works,
    CutsTheNetwork,
    AgentDies,
    AgentNeverStarts,
    ProbeFailsAfter(u64),
    SwitchFails,
    SwitchHangs,
    NeedsReboot,
    BootFallsBack,
}

/// Generations that are used again and again.
const IDS: u8 = 8;

pub fn id(number: u8) -> GenerationId {
    static FIRST: LazyLock<[GenerationId; IDS as usize]> =
        LazyLock::new(|| std::array::from_fn(|number| of_bytes(&[u8::try_from(number).unwrap()])));
    match FIRST.get(usize::from(number)) {
        Some(id) => *id,
        None => of_bytes(&[number]),
    }
}

fn of_bytes(bytes: &[u8]) -> GenerationId {
    GenerationId(Digest::of(bytes))
}

pub fn generation(number: u8) -> Generation {
    Generation { id: id(number), seq: number.into(), bytes: 100 }
}

pub fn probe(name: &str, mode: HealthProbeMode) -> HealthProbe {
    HealthProbe {
        name: name.to_owned(),
        kind: HealthProbeKind::Unit { unit: format!("{name}.service") },
        mode,
        grace: 5 * SECOND,
        sustained: 10 * SECOND,
        every: 5 * SECOND,
        timeout: 2 * SECOND,
    }
}

pub fn probes() -> ProbeTopology {
    static DECLARED: LazyLock<ProbeTopology> = LazyLock::new(|| {
        let modes = [HealthProbeMode::Enforce, HealthProbeMode::Observe, HealthProbeMode::Disabled];
        let named = ["web", "look", "off"].into_iter().zip(modes);
        ProbeTopology::declare(named.map(|(name, mode)| probe(name, mode)).collect()).unwrap()
    });
    DECLARED.clone()
}

pub fn boot_id(number: u32) -> BootId {
    format!("boot-{number}").parse().unwrap()
}

/// What a generation does, by chance.
pub fn nature(chance: &mut Chance) -> Nature {
    match chance.below(10) {
        0 => Nature::CutsTheNetwork,
        1 => Nature::AgentDies,
        2 => Nature::AgentNeverStarts,
        3 => Nature::ProbeFailsAfter(chance.below(150)),
        4 => Nature::SwitchFails,
        5 => Nature::SwitchHangs,
        6 => Nature::NeedsReboot,
        7 => Nature::BootFallsBack,
        _ => Nature::Works,
    }
}
