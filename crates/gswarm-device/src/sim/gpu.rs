//! One simulated GPU: power, clocks, heat and counters that follow its load.

use gswarm_types::{DeviceId, Event, EventKind, Severity};

use super::fault::SimFaultKind;
use super::job::{Load, STEP_SECONDS};
use super::model::Model;
use super::noise::{between, jitters, mix, mix_step, unit};

/// Whether the driver can answer for the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Answering,
    Hung,
    Lost,
}

/// One GPU and everything its driver would know.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) model: &'static Model,
    pub(super) id: DeviceId,
    pub(super) health: Health,
    pub(super) slow: bool,
    cooling_failed: bool,
    seed: u64,
    inlet_celsius: f64,
    heat_celsius_per_watt: f64,
    busy_before: f64,
    dram_before: f64,
    /// Loads since the last reading and how many: activities are averages between readings.
    sum: Load,
    sum_steps: u32,
    pub(super) seen: Seen,
}

/// The numbers as a driver would give them, quantised where it quantises.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) utilization_percent: f64,
    pub(super) memory_controller_percent: f64,
    pub(super) memory_used_bytes: f64,
    pub(super) temperature_celsius: f64,
    pub(super) power_watts: f64,
    pub(super) energy_millijoules: f64,
    pub(super) clock_mhz: f64,
    pub(super) clock_event_reasons: u32,
    pub(super) throttle_power_nanoseconds: f64,
    pub(super) throttle_thermal_nanoseconds: f64,
    pub(super) pcie_replays: u32,
    pub(super) ecc_corrected: u32,
    pub(super) ecc_uncorrected: u32,
    pub(super) remapped_rows_corrected: u32,
    pub(super) remapped_rows_uncorrected: u32,
    pub(super) remapped_rows_pending: bool,
    pub(super) xid_last: Option<u32>,
    pub(super) held: bool,
    /// Averages since the reading before.
    pub(super) average: Load,
}

// NVML's clock event reasons.
const REASON_IDLE: u32 = 0x1;
const REASON_POWER_CAP: u32 = 0x4;
const REASON_HARDWARE_SLOWDOWN: u32 = 0x8;
const REASON_HEAT: u32 = 0x20;

const STEP_NANOSECONDS: f64 = STEP_SECONDS * 1e9;
/// Drivers average power over a good third of a second.
const POWER_LAG: f64 = 0.25;
const CLOCK_LAG: f64 = 0.6;
const THERMAL_SECONDS: f64 = 22.0;
const SLOWDOWN_CELSIUS: f64 = 87.0;
const HARDWARE_SLOWDOWN_CELSIUS: f64 = 91.0;
/// A failed fan or a blocked filter, as a factor on the heat of each watt.
const FAILED_COOLING: f64 = 2.3;
/// A context keeps the clocks up even without work.
const HELD_IDLE_FACTOR: f64 = 1.55;
const SLOW_CLOCK: f64 = 0.55;
/// `Model::power_demand` is stated for a large matrix product, which makes this much activity.
const FULL_ACTIVITY: f64 = 0.85;
const MEMORY_STEP_BYTES: f64 = 2_097_152.0;
/// What a device keeps for itself and never lends.
const MEMORY_RESERVED: f64 = 0.007;
const CLOCK_STEP_MHZ: f64 = 15.0;

/// One hour: the window in which at most one spontaneous fault can fall.
const FAULT_WINDOW_STEPS: i64 = 36_000;
const XID_ONE_IN: u64 = 400;
const ECC_ONE_IN: u64 = 50;
/// Application faults first: they are the common ones.
const SPONTANEOUS_XIDS: [u32; 8] = [31, 13, 43, 31, 13, 31, 63, 94];

/// What goes wrong by itself within one window, from the seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpontaneousFault {
    /// Counted from the start of the window.
    step: u64,
    ecc_corrected: bool,
    pub(super) xid: Option<u32>,
}

impl SpontaneousFault {
    pub(super) fn of(seed: u64, window: i64) -> Self {
        let hash = mix_step(mix(seed, 60), window);
        let choice = usize::try_from(hash >> 61).unwrap_or(0);
        Self {
            step: (hash >> 24) % FAULT_WINDOW_STEPS.cast_unsigned(),
            ecc_corrected: hash.is_multiple_of(ECC_ONE_IN),
            xid: (hash >> 8).is_multiple_of(XID_ONE_IN).then(|| SPONTANEOUS_XIDS[choice]),
        }
    }
}

impl Gpu {
    pub(super) fn new(model: &'static Model, id: DeviceId, seed: u64) -> Self {
        let inlet_celsius = between(mix(seed, 1), 24.0, 31.0);
        let heat = model.heat_celsius_per_watt * between(mix(seed, 2), 0.9, 1.12);
        let seen = Seen {
            temperature_celsius: inlet_celsius + heat * model.power_idle_watts,
            power_watts: model.power_idle_watts,
            clock_mhz: model.clock_idle_mhz,
            energy_millijoules: between(mix(seed, 3), 1e9, 4e11).floor(),
            ecc_corrected: if mix(seed, 4).is_multiple_of(6) { 3 } else { 0 },
            pcie_replays: if mix(seed, 5).is_multiple_of(9) { 1 } else { 0 },
            clock_event_reasons: REASON_IDLE,
            ..Seen::default()
        };
        Self {
            model,
            id,
            health: Health::Answering,
            slow: false,
            cooling_failed: false,
            seed,
            inlet_celsius,
            heat_celsius_per_watt: heat,
            busy_before: 0.0,
            dram_before: 0.0,
            sum: Load::default(),
            sum_steps: 0,
            seen,
        }
    }

    /// Lives through one step with this load.
    pub(super) fn step(&mut self, step: i64, load: Load) {
        let jitter = jitters(mix_step(self.seed, step));
        self.seen.held = load.held;
        self.settle_power(load, jitter[0]);
        self.see_load(step, load, jitter[1]);
        self.sum = self.sum.plus(load);
        self.sum_steps += 1;
    }

    /// Power, clock and heat push each other around: work asks for power, the limit lowers the
    /// clock, power becomes heat, and heat lowers the clock again.
    fn settle_power(&mut self, load: Load, jitter: f64) {
        let model = self.model;
        let seen = &mut self.seen;
        let held_factor = if load.held { HELD_IDLE_FACTOR } else { 1.0 };
        let base = model.power_idle_watts * held_factor;
        let activity = (0.22 * load.sm + 0.6 * load.tensor + 0.25 * load.dram) / FULL_ACTIVITY;
        let dynamic = (model.power_limit_watts * model.power_demand - base) * activity;
        let mut reasons = if load.held { 0 } else { REASON_IDLE };
        let mut pace = 1.0_f64;
        let room = model.power_limit_watts - base;
        if dynamic > room {
            // Dynamic power goes about with the square of the clock near the limit.
            pace = (room / dynamic).sqrt();
            reasons |= REASON_POWER_CAP;
            seen.throttle_power_nanoseconds += STEP_NANOSECONDS;
        }
        if self.slow {
            pace = pace.min(SLOW_CLOCK);
            reasons |= REASON_HARDWARE_SLOWDOWN;
        }
        if seen.temperature_celsius >= SLOWDOWN_CELSIUS {
            pace = pace.min(1.0 - 0.08 * (1.0 + seen.temperature_celsius - SLOWDOWN_CELSIUS));
            reasons |= REASON_HEAT;
            seen.throttle_thermal_nanoseconds += STEP_NANOSECONDS;
        }
        if seen.temperature_celsius >= HARDWARE_SLOWDOWN_CELSIUS {
            pace = pace.min(0.5);
            reasons |= REASON_HARDWARE_SLOWDOWN;
        }
        let pace = pace.max(0.2);
        let watts = (base + dynamic * pace * pace) * (1.0 + 0.004 * jitter);
        seen.power_watts += (watts - seen.power_watts) * POWER_LAG;
        seen.energy_millijoules += seen.power_watts * STEP_SECONDS * 1e3;
        let clock = if load.held { model.clock_max_mhz * pace } else { model.clock_idle_mhz };
        seen.clock_mhz += (clock - seen.clock_mhz) * CLOCK_LAG;
        seen.clock_event_reasons = reasons;
        let cooling = if self.cooling_failed { FAILED_COOLING } else { 1.0 };
        let goal = self.inlet_celsius + self.heat_celsius_per_watt * cooling * seen.power_watts;
        seen.temperature_celsius +=
            (goal - seen.temperature_celsius) * (STEP_SECONDS / THERMAL_SECONDS);
    }

    fn see_load(&mut self, step: i64, load: Load, jitter: f64) {
        let seen = &mut self.seen;
        // Drivers refresh utilisation every 200 ms.
        if step.rem_euclid(2) == 1 {
            let busy = (load.busy + self.busy_before) * 50.0;
            let flicker = if busy > 50.0 { 0.6 * jitter } else { 0.0 };
            seen.utilization_percent = (busy + flicker).round().clamp(0.0, 100.0);
            let dram = (load.dram + self.dram_before) * 50.0;
            seen.memory_controller_percent = (dram * 0.9).round().clamp(0.0, 100.0);
        }
        self.busy_before = load.busy;
        self.dram_before = load.dram;
        let lendable = self.model.memory_bytes * (1.0 - MEMORY_RESERVED);
        let used = lendable * load.memory.clamp(0.0, 1.0);
        seen.memory_used_bytes = (used / MEMORY_STEP_BYTES).floor() * MEMORY_STEP_BYTES;
    }

    /// Closes the window of averages; without a step since the last one it stays as it was.
    pub(super) fn close_window(&mut self) {
        if self.sum_steps > 0 {
            let held = self.sum.held;
            self.seen.average = self.sum.scaled(1.0 / f64::from(self.sum_steps));
            self.seen.average.held = held;
            self.sum = Load::default();
            self.sum_steps = 0;
        }
    }

    pub(super) fn clock_sm_mhz(&self) -> f64 {
        (self.seen.clock_mhz / CLOCK_STEP_MHZ).round() * CLOCK_STEP_MHZ
    }

    /// Whether clocks and links are in their resting state.
    pub(super) fn rests(&self) -> bool {
        self.seen.clock_event_reasons & REASON_IDLE != 0
    }

    /// Lets happen what goes wrong by itself in a step: seldom anything.
    pub(super) fn spontaneous(&mut self, step: i64, events: &mut Vec<Event>) {
        let fault = SpontaneousFault::of(self.seed, step.div_euclid(FAULT_WINDOW_STEPS));
        if step.rem_euclid(FAULT_WINDOW_STEPS).cast_unsigned() != fault.step {
            return;
        }
        if fault.ecc_corrected && self.model.ecc {
            self.seen.ecc_corrected += 1;
        }
        if let (Some(code), true) = (fault.xid, self.seen.held) {
            self.xid(code, events);
        }
    }

    /// Makes a scheduled fault happen.
    pub(super) fn suffer(&mut self, kind: SimFaultKind, events: &mut Vec<Event>) {
        match kind {
            SimFaultKind::Hang => {
                self.health = Health::Hung;
                let text = "the driver does not answer for this GPU";
                events.push(self.event(EventKind::GpuUnresponsive, Severity::Error, text));
            },
            SimFaultKind::Lost if self.model.nvidia => self.xid(79, events),
            SimFaultKind::Lost => self.lose(events),
            SimFaultKind::Xid(code) => self.xid(code, events),
            SimFaultKind::Straggler => self.slow = true,
            SimFaultKind::Thermal => self.cooling_failed = true,
            SimFaultKind::Recover => self.recover(events),
        }
    }

    fn recover(&mut self, events: &mut Vec<Event>) {
        self.slow = false;
        self.cooling_failed = false;
        let (kind, text) = match self.health {
            Health::Answering => return,
            Health::Hung => (EventKind::GpuResponsive, "the driver answers again for this GPU"),
            Health::Lost => (EventKind::GpuFound, "the GPU is back on the bus"),
        };
        self.health = Health::Answering;
        events.push(self.event(kind, Severity::Info, text));
    }

    fn lose(&mut self, events: &mut Vec<Event>) {
        self.health = Health::Lost;
        let text = "the GPU has fallen off the bus";
        events.push(self.event(EventKind::GpuLost, Severity::Error, text));
    }

    /// XIDs are the errors of one vendor's driver.
    fn xid(&mut self, code: u32, events: &mut Vec<Event>) {
        if !self.model.nvidia {
            return;
        }
        let (severity, text) = match code {
            13 => (Severity::Warning, "graphics engine exception"),
            31 => (Severity::Warning, "GPU memory page fault"),
            43 => (Severity::Warning, "GPU stopped processing"),
            48 => (Severity::Error, "double bit ECC error"),
            63 => (Severity::Error, "row remapping recorded"),
            64 => (Severity::Error, "row remapping failed to record"),
            74 => (Severity::Error, "NVLink error"),
            79 => (Severity::Error, "GPU has fallen off the bus"),
            94 => (Severity::Error, "contained ECC error"),
            95 => (Severity::Error, "uncontained ECC error"),
            _ => (Severity::Error, "driver error"),
        };
        self.seen.xid_last = Some(code);
        let mut event = self.event(EventKind::Xid, severity, &format!("XID {code}: {text}"));
        event.code = Some(i64::from(code));
        events.push(event);
        match code {
            48 | 94 | 95 => {
                self.seen.ecc_uncorrected += 1;
                let text = "uncorrected memory error";
                events.push(self.event(EventKind::EccUncorrected, Severity::Error, text));
            },
            63 => {
                self.seen.remapped_rows_uncorrected += 1;
                self.seen.remapped_rows_pending = true;
                let text = "a memory row waits to be replaced at the next reset";
                events.push(self.event(EventKind::RowRemap, Severity::Warning, text));
            },
            79 => self.lose(events),
            _ => {},
        }
    }

    fn event(&self, kind: EventKind, severity: Severity, message: &str) -> Event {
        Event {
            kind,
            severity,
            device: Some(self.id.clone()),
            code: None,
            message: message.to_owned(),
        }
    }

    /// Where the two directions of a link differ, they differ by this factor.
    pub(super) fn lopsided(&self) -> f64 {
        0.996 + 0.004 * unit(self.seed)
    }
}
