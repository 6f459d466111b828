//! What a simulated node is busy with at each instant: jobs, their phases and the load they make.

use super::noise::{between, jitters, mix, mix_step, unit};
use super::spec::Scenario;

/// Steps of 100 ms: as fast as the counters of real drivers move.
pub(super) const STEPS_PER_SECOND: i64 = 10;
pub(super) const STEP_SECONDS: f64 = 0.1;

/// What one job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    Steady,
    Training,
    Inference,
    Interactive,
    Idle,
}

/// One job of a node: from its start to the next job's start.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) kind: JobKind,
    /// Differs from job to job; pids, users and job ids come from it.
    pub(super) seed: u64,
    /// First step that belongs to this job, and first that does not.
    pub(super) first_step: i64,
    pub(super) next_step: i64,
    /// When its processes exit: the rest of its time is quiet.
    exit_step: i64,
    /// GPUs before this position take part.
    gpus: u32,
    /// How good the job's kernels are.
    quality: f64,
    /// Share of device memory it settles at.
    memory: f64,
    load_seconds: f64,
    cycle: TrainingCycle,
}

/// Iterations, then a checkpoint, then the next iterations.
#[derive(Debug, Clone, Copy)]
struct TrainingCycle {
    iteration_seconds: f64,
    iterations: f64,
    checkpoint_seconds: f64,
    /// Where each part of an iteration ends, as a share of it.
    ends: [f64; 4],
}

/// What a GPU does during one step, averaged over it; shares are 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Load {
    /// Share of time with a kernel running.
    pub(super) busy: f64,
    pub(super) sm: f64,
    pub(super) occupancy: f64,
    pub(super) tensor: f64,
    pub(super) fp32: f64,
    pub(super) fp16: f64,
    /// Device memory bandwidth.
    pub(super) dram: f64,
    pub(super) nvlink: f64,
    pub(super) pcie_rx: f64,
    pub(super) pcie_tx: f64,
    /// Share of the device memory in use.
    pub(super) memory: f64,
    /// Whether a process holds the device.
    pub(super) held: bool,
}

/// What faults of this or another GPU do to a GPU's share of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    Healthy,
    /// This GPU is slow and never waits.
    Slow,
    /// Another GPU is slow and this one waits for it.
    BesideSlow,
    /// Another GPU of the job is gone and this one waits for ever.
    BesideDead,
}

/// How much longer an iteration takes with a slow GPU in it.
const SLOW_STRETCH: f64 = 1.7;
/// One iteration of so many waits for data.
const DATA_STALL_EVERY: f64 = 17.0;

// The parts of an iteration: forward, backward, communication, bubble.
const FORWARD: Load = Load {
    busy: 1.0,
    sm: 0.92,
    occupancy: 0.34,
    tensor: 0.60,
    fp32: 0.08,
    fp16: 0.05,
    dram: 0.46,
    nvlink: 0.06,
    pcie_rx: 0.02,
    pcie_tx: 0.002,
    memory: 0.0,
    held: true,
};
const BACKWARD: Load = Load {
    sm: 0.95,
    occupancy: 0.38,
    tensor: 0.67,
    fp32: 0.11,
    dram: 0.52,
    nvlink: 0.14,
    pcie_rx: 0.008,
    ..FORWARD
};
const COMMUNICATION: Load = Load {
    sm: 0.24,
    occupancy: 0.12,
    tensor: 0.0,
    fp32: 0.01,
    fp16: 0.0,
    dram: 0.28,
    nvlink: 0.72,
    ..FORWARD
};
const BUBBLE: Load = Load {
    busy: 0.12,
    sm: 0.03,
    occupancy: 0.01,
    tensor: 0.0,
    fp32: 0.0,
    fp16: 0.0,
    dram: 0.02,
    nvlink: 0.0,
    ..FORWARD
};
const LOADING: Load = Load { busy: 0.2, dram: 0.03, pcie_rx: 0.35, pcie_tx: 0.003, ..BUBBLE };
const CHECKPOINT: Load = Load { busy: 0.08, pcie_rx: 0.001, pcie_tx: 0.24, ..BUBBLE };
/// Kernels that poll for a peer keep a device "busy" while nothing moves.
const SPINNING: Load = Load { busy: 1.0, sm: 0.04, dram: 0.004, pcie_rx: 1e-5, ..BUBBLE };
/// Decoding reads the weights for each token: device memory is the limit, the tensor pipe idles.
const DECODING: Load = Load {
    sm: 0.78,
    occupancy: 0.22,
    tensor: 0.17,
    fp32: 0.06,
    fp16: 0.09,
    dram: 0.78,
    nvlink: 0.05,
    pcie_rx: 0.004,
    pcie_tx: 0.003,
    ..FORWARD
};

/// One person, one GPU: nothing to send to others.
const NOTEBOOK: Load = Load { nvlink: 0.0, ..FORWARD };

impl Load {
    pub(super) fn scaled(self, by: f64) -> Self {
        Self {
            busy: self.busy * by,
            sm: self.sm * by,
            occupancy: self.occupancy * by,
            tensor: self.tensor * by,
            fp32: self.fp32 * by,
            fp16: self.fp16 * by,
            dram: self.dram * by,
            nvlink: self.nvlink * by,
            pcie_rx: self.pcie_rx * by,
            pcie_tx: self.pcie_tx * by,
            ..self
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            busy: self.busy + other.busy,
            sm: self.sm + other.sm,
            occupancy: self.occupancy + other.occupancy,
            tensor: self.tensor + other.tensor,
            fp32: self.fp32 + other.fp32,
            fp16: self.fp16 + other.fp16,
            dram: self.dram + other.dram,
            nvlink: self.nvlink + other.nvlink,
            pcie_rx: self.pcie_rx + other.pcie_rx,
            pcie_tx: self.pcie_tx + other.pcie_tx,
            ..self
        }
    }
}

impl Job {
    /// The job that a node runs at a step.
    pub(super) fn at(scenario: Scenario, seed: u64, gpus: u32, step: i64) -> Self {
        let slot_steps = match scenario {
            Scenario::Steady | Scenario::Training | Scenario::Inference | Scenario::Idle => {
                3_600 * STEPS_PER_SECOND
            },
            Scenario::Mixed => 600 * STEPS_PER_SECOND,
        };
        // Nodes of one cluster do not change jobs all at once.
        let offset = mix(seed, 1) % slot_steps.cast_unsigned();
        let offset = i64::try_from(offset).unwrap_or(0);
        let slot = (step + offset).div_euclid(slot_steps);
        let first_step = slot * slot_steps - offset;
        let seed = mix_step(mix(seed, 2), slot);
        let kind = match scenario {
            Scenario::Steady => JobKind::Steady,
            Scenario::Training => JobKind::Training,
            Scenario::Inference => JobKind::Inference,
            Scenario::Idle => JobKind::Idle,
            Scenario::Mixed => match mix(seed, 3) % 20 {
                0..9 => JobKind::Training,
                9..14 => JobKind::Inference,
                14..17 => JobKind::Interactive,
                _ => JobKind::Idle,
            },
        };
        let next_step = first_step + slot_steps;
        let quiet_steps = match kind {
            JobKind::Steady | JobKind::Idle => 0,
            JobKind::Training | JobKind::Inference | JobKind::Interactive => {
                100 + i64::try_from(mix(seed, 4) % 300).unwrap_or(0)
            },
        };
        Self {
            kind,
            seed,
            first_step,
            next_step,
            exit_step: next_step - quiet_steps,
            gpus: if kind == JobKind::Interactive { gpus.min(2) } else { gpus },
            quality: between(mix(seed, 5), 0.72, 1.0),
            memory: between(mix(seed, 6), 0.72, 0.94),
            load_seconds: between(mix(seed, 7), 8.0, 20.0),
            cycle: TrainingCycle::new(mix(seed, 8)),
        }
    }

    /// Whether the job's processes hold a GPU at a step.
    pub(super) fn holds(&self, gpu: u32, step: i64) -> bool {
        self.kind != JobKind::Idle && gpu < self.gpus && step < self.exit_step
    }

    /// What a GPU does during the step that begins at `step`.
    pub(super) fn load(&self, gpu: u32, step: i64, company: Company) -> Load {
        if !self.holds(gpu, step) {
            return Load::default();
        }
        let steps = i32::try_from(step - self.first_step).unwrap_or(i32::MAX);
        let seconds = f64::from(steps) * STEP_SECONDS;
        let own = mix(self.seed, 100 + u64::from(gpu));
        let mut load = match self.kind {
            JobKind::Idle => return Load::default(),
            JobKind::Steady => BACKWARD.scaled(0.85).plus(COMMUNICATION.scaled(0.15)),
            JobKind::Training | JobKind::Inference if seconds < self.load_seconds => LOADING,
            JobKind::Training => self.training(own, seconds, company),
            JobKind::Inference => inference(own, seconds),
            JobKind::Interactive => interactive(own, seconds),
        };
        load.memory = self.memory_share(own, seconds);
        let [a, b, c, d] = jitters(mix_step(own, step));
        load.sm *= 1.0 + 0.02 * a;
        load.occupancy *= 1.0 + 0.015 * d;
        load.fp32 *= 1.0 + 0.03 * c;
        load.fp16 *= 1.0 + 0.03 * d;
        load.tensor *= self.quality * (1.0 + 0.02 * b);
        load.dram *= 1.0 + 0.03 * c;
        load.nvlink *= 1.0 + 0.04 * d;
        load.pcie_rx *= 1.0 + 0.2 * b;
        load.pcie_tx *= 1.0 + 0.2 * a;
        load
    }

    fn training(&self, own: u64, seconds: f64, company: Company) -> Load {
        if company == Company::BesideDead {
            return SPINNING;
        }
        let cycle = &self.cycle;
        // A few milliseconds apart, as ranks are.
        let begun = seconds - self.load_seconds + between(own, 0.0, 0.008);
        let stretch = match company {
            Company::Healthy | Company::BesideDead => 1.0,
            Company::Slow | Company::BesideSlow => SLOW_STRETCH,
        };
        let iteration = cycle.iteration_seconds * stretch;
        let within = begun.rem_euclid(cycle.iterations * iteration + cycle.checkpoint_seconds);
        if within >= cycle.iterations * iteration {
            return CHECKPOINT;
        }
        let stalled = (within / iteration).floor().rem_euclid(DATA_STALL_EVERY) < 0.5;
        let begin = within.rem_euclid(iteration) / iteration;
        let shares = match company {
            Company::Slow => cycle.shares(begin, STEP_SECONDS / iteration, 1.0),
            Company::Healthy | Company::BesideSlow | Company::BesideDead => {
                cycle.shares(begin, STEP_SECONDS / iteration, 1.0 / stretch)
            },
        };
        let load = FORWARD
            .scaled(shares[0])
            .plus(BACKWARD.scaled(shares[1]))
            .plus(COMMUNICATION.scaled(shares[2]))
            .plus(BUBBLE.scaled(shares[3]));
        if stalled { load.scaled(0.3) } else { load }
    }

    /// Weights first, then whatever the allocator grew to, and a plateau from there on.
    fn memory_share(&self, own: u64, seconds: f64) -> f64 {
        let settled = self.memory - between(own, 0.0, 0.02);
        let weights = settled * 0.6;
        match self.kind {
            JobKind::Idle => 0.0,
            JobKind::Steady => settled,
            JobKind::Training | JobKind::Inference => {
                let since = seconds - self.load_seconds;
                if since < 0.0 {
                    weights * seconds / self.load_seconds
                } else {
                    // The first iterations still allocate.
                    weights + (settled - weights) * (since / 2.0).min(1.0)
                }
            },
            // Cells of a notebook allocate now and then and never give back.
            JobKind::Interactive => {
                settled * 0.5 * ((seconds / 60.0).floor() / 6.0).min(1.0) + 0.02
            },
        }
    }
}

impl TrainingCycle {
    fn new(seed: u64) -> Self {
        let forward = between(mix(seed, 1), 0.24, 0.30);
        let communication = between(mix(seed, 2), 0.08, 0.22);
        let bubble = between(mix(seed, 3), 0.02, 0.10);
        Self {
            iteration_seconds: between(mix(seed, 4), 0.2, 2.0),
            iterations: between(mix(seed, 5), 60.0, 200.0).floor(),
            checkpoint_seconds: between(mix(seed, 6), 2.0, 6.0),
            ends: [forward, 1.0 - communication - bubble, 1.0 - bubble, 1.0],
        }
    }

    /// How a window that begins at a share of an iteration splits over its parts.
    ///
    /// `pace` below 1 squeezes the parts to the front; the rest is spent in communication,
    /// waiting for a slower GPU.
    fn shares(&self, begin: f64, length: f64, pace: f64) -> [f64; 4] {
        let [forward, backward, communication, end] = self.ends;
        let wait = 1.0 - pace;
        let ends =
            [forward * pace, backward * pace, communication * pace + wait, end * pace + wait];
        let mut shares = [0.0; 4];
        let mut start = 0.0;
        for (share, end) in shares.iter_mut().zip(ends) {
            // The window may reach into the next iteration, never past it.
            let now = (begin + length).min(end) - begin.max(start);
            let next = (begin + length - 1.0).min(end) - start;
            *share = (now.max(0.0) + next.max(0.0)) / length;
            start = end;
        }
        shares
    }
}

/// Waves of requests over minutes with bursts of seconds on top.
fn inference(own: u64, seconds: f64) -> Load {
    let period = between(mix(own, 1), 50.0, 180.0);
    let wave = triangle(seconds / period + unit(mix(own, 2)));
    let burst = value_noise(mix(own, 3), seconds / 2.0);
    let level = (0.15 + 0.6 * wave + 0.5 * (burst - 0.4)).clamp(0.0, 1.0);
    DECODING.scaled(level)
}

/// Someone tries things in a notebook: a few busy seconds, then thought.
fn interactive(own: u64, seconds: f64) -> Load {
    let block = (seconds / 5.0).floor();
    let step = value_hash(own, block);
    if unit(step) < 0.3 {
        NOTEBOOK.scaled(between(mix(step, 1), 0.2, 0.9))
    } else {
        NOTEBOOK.scaled(0.0)
    }
}

/// Up and down between 0 and 1 with period 1.
fn triangle(phase: f64) -> f64 {
    1.0 - (2.0 * phase.rem_euclid(1.0) - 1.0).abs()
}

/// Random values at whole positions, straight lines between.
fn value_noise(seed: u64, position: f64) -> f64 {
    let whole = position.floor();
    let before = unit(value_hash(seed, whole));
    let after = unit(value_hash(seed, whole + 1.0));
    before + (after - before) * (position - whole)
}

fn value_hash(seed: u64, whole: f64) -> u64 {
    mix(seed, whole.to_bits())
}
