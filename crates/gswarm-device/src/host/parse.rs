//! The few numbers that are needed from the text of procfs.

/// CPU time of all CPUs together, in ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuTimes {
    pub(super) total: u64,
    pub(super) idle: u64,
}

/// Main memory and swap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total_bytes: Option<u64>,
    available_bytes: Option<u64>,
    swap_total_bytes: Option<u64>,
    swap_free_bytes: Option<u64>,
}

/// A named row of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counters<'t, const N: usize> {
    pub(super) name: &'t str,
    pub(super) values: [u64; N],
}

impl CpuTimes {
    /// Busy share in percent; `None` when no tick has passed.
    pub(super) fn busy_since(self, before: Self) -> Option<f64> {
        let total = self.total.checked_sub(before.total).filter(|total| *total > 0)?;
        // The kernel's idle time may step back a little.
        let idle = self.idle.saturating_sub(before.idle).min(total);
        Some(super::whole(total - idle) / super::whole(total) * 100.0)
    }
}

impl Memory {
    pub(super) fn used_bytes(self) -> Option<u64> {
        Some(self.total_bytes?.saturating_sub(self.available_bytes?))
    }

    pub(super) fn swap_used_bytes(self) -> Option<u64> {
        Some(self.swap_total_bytes?.saturating_sub(self.swap_free_bytes?))
    }
}

/// The first line of `/proc/stat`.
pub(super) fn cpu_times(text: &[u8]) -> Option<CpuTimes> {
    let line = lines(text).next()?;
    let mut words = line.split_ascii_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    // user nice system idle iowait irq softirq steal; guest time is part of user already.
    let mut times = [0_u64; 8];
    for (position, time) in times.iter_mut().enumerate() {
        match words.next() {
            Some(word) => *time = word.parse().ok()?,
            None if position >= 4 => break,
            None => return None,
        }
    }
    let total = times.iter().fold(0, |sum: u64, time| sum.saturating_add(*time));
    Some(CpuTimes { total, idle: times[3].saturating_add(times[4]) })
}

/// The first word of `/proc/loadavg`.
pub(super) fn first_number(text: &[u8]) -> Option<f64> {
    let word = lines(text).next()?.split_ascii_whitespace().next()?;
    word.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The second word of `/proc/self/statm`.
pub(super) fn resident_pages(text: &[u8]) -> Option<u64> {
    lines(text).next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What is needed of `/proc/meminfo`.
pub(super) fn memory(text: &[u8]) -> Memory {
    let mut memory = Memory::default();
    for line in lines(text) {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let field = match name {
            "MemTotal" => &mut memory.total_bytes,
            "MemAvailable" => &mut memory.available_bytes,
            "SwapTotal" => &mut memory.swap_total_bytes,
            "SwapFree" => &mut memory.swap_free_bytes,
            _ => continue,
        };
        let kibibytes = rest.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        *field = kibibytes.map(|kibibytes: u64| kibibytes.saturating_mul(1_024));
        if name == "SwapFree" {
            // The last one that is needed: the other forty lines follow.
            break;
        }
    }
    memory
}

/// `/proc/diskstats`: sectors read, sectors written, milliseconds busy.
pub(super) fn disks(text: &[u8]) -> impl Iterator<Item = Counters<'_, 3>> {
    lines(text).filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(2);
        let name = words.next()?;
        // reads merged sectors ms, writes merged sectors ms, in flight, ms busy
        let read = words.nth(2)?.parse().ok()?;
        let written = words.nth(3)?.parse().ok()?;
        let busy = words.nth(2)?.parse().ok()?;
        Some(Counters { name, values: [read, written, busy] })
    })
}

/// `/proc/net/dev`: bytes received, bytes sent.
pub(super) fn nics(text: &[u8]) -> impl Iterator<Item = Counters<'_, 2>> {
    lines(text).filter_map(|line| {
        let (name, rest) = line.rsplit_once(':')?;
        let mut words = rest.split_ascii_whitespace();
        let received = words.next()?.parse().ok()?;
        let sent = words.nth(7)?.parse().ok()?;
        Some(Counters { name: name.trim(), values: [received, sent] })
    })
}

/// The product of the first CPU in `/proc/cpuinfo`.
pub(super) fn cpu_product(text: &[u8]) -> Option<String> {
    let product = lines(text).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim())
    })?;
    (!product.is_empty()).then(|| product.to_owned())
}

/// Lines that are text; others are skipped.
fn lines(text: &[u8]) -> impl Iterator<Item = &str> {
    text.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok())
}
