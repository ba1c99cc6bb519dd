//! The measured values of one guest: sizes drawn from its seed, and values that change with time.
//!
//! Everything is a function of the seed and of the time since the simulation began. So two reads at
//! the same moment are equal, counters never decrease, and no state is kept between scrapes.

use super::{plan::Guest, rng::Random};

/// The values of one guest.
#[derive(Debug, Clone)]
pub struct Model {
    /// Online CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: f64,
    /// Uptime in seconds when the simulation began.
    pub uptime: f64,
    /// Block devices; the first holds the root filesystem.
    pub disks: Vec<String>,
    /// Network interfaces.
    pub nics: Vec<String>,
    /// Kernel release.
    pub kernel: String,
    /// Busy fraction of its CPUs.
    pub busy: f64,
    seed: u64,
}

impl Model {
    /// The model of `guest`.
    pub fn new(guest: &Guest) -> Self {
        let mut random = Random::new(guest.seed);
        let data = 1 + random.below(2);
        Self {
            cpus: [4, 8, 8, 16][random.below(4)],
            memory: [8.0, 16.0, 32.0, 64.0][random.below(4)] * f64::from(1 << 30),
            uptime: random.between(3_600.0, 30.0 * 86_400.0).floor(),
            disks: (0..=data)
                .map(|index| format!("vd{}", ['a', 'b', 'c'][index]))
                .collect(),
            nics: ["lo", "eth0", "cilium_host"]
                .map(str::to_owned)
                .into_iter()
                .chain((0..guest.pods).map(|pod| format!("lxc{:012x}", guest.seed % (1 << 40) + pod as u64)))
                .collect(),
            kernel: format!("6.1.0-{}-amd64", 25 + random.below(15)),
            busy: random.between(0.02, 0.8),
            seed: guest.seed,
        }
    }

    /// A counter named `name` after `elapsed` seconds of simulation, which grows by about `rate`
    /// per second since boot.
    pub fn counter(&self, name: &str, rate: f64, elapsed: f64) -> f64 {
        let (omega, phase, factor) = self.wave(name);
        // The integral of 1 + 0.5 sin(ωt + φ), which never decreases.
        let grown = elapsed + 0.5 / omega * (phase.cos() - (omega * elapsed + phase).cos());
        rate * factor * (self.uptime + grown)
    }

    /// As [`Model::counter`], rounded down to an integer.
    pub fn count(&self, name: &str, rate: f64, elapsed: f64) -> f64 {
        self.counter(name, rate, elapsed).floor()
    }

    /// A gauge named `name` that oscillates by `swing` (a fraction) around `middle`.
    pub fn gauge(&self, name: &str, middle: f64, swing: f64, elapsed: f64) -> f64 {
        let (omega, phase, _) = self.wave(name);
        middle * (1.0 + swing * (omega * elapsed + phase).sin())
    }

    /// Angular frequency (periods of 2 to 20 minutes), phase, and a factor around 1, drawn for this
    /// guest and name.
    fn wave(&self, name: &str) -> (f64, f64, f64) {
        // FNV-1a: a stable hash of the name.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = Random::new(self.seed ^ hash);
        let period = random.between(120.0, 1200.0);
        (
            std::f64::consts::TAU / period,
            random.between(0.0, std::f64::consts::TAU),
            random.between(0.5, 1.5),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Options, Plan};

    #[test]
    fn counters_never_fall() {
        let plan = Plan::new(&Options::default()).unwrap();
        let model = Model::new(&plan.guests[0]);
        for name in ["a", "b", "c"] {
            let values: Vec<f64> = (0..2000)
                .map(|second| model.counter(name, 3.0, f64::from(second)))
                .collect();
            assert!(values.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn gauges_stay_within_their_swing() {
        let plan = Plan::new(&Options::default()).unwrap();
        let model = Model::new(&plan.guests[0]);
        let inside = |second: u32| (90.0..=110.0).contains(&model.gauge("x", 100.0, 0.1, f64::from(second)));
        assert!((0..2000).all(inside));
    }
}
