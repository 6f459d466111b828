//! Counters of disks and interfaces that come and go, as rates.

use std::path::PathBuf;

use gswarm_types::Micros;

use super::parse::Counters;

/// The most disks or interfaces that are reported; others are left out.
const TRACKED_MAX: usize = 256;

/// What is tracked decides what is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Whole physical disks.
    Disk,
    /// Physical and bonded interfaces.
    Nic,
}

/// The rows of one file, and the rates of those that count.
#[derive(Debug)]
pub(super) struct Tracked<const N: usize> {
    /// Where the kernel tells what stands behind a name.
    sys: PathBuf,
    class: Class,
    /// Every row in the order of the file, so that a steady state needs no look-up.
    rows: Vec<Row<N>>,
    read_at: Option<Micros>,
}

#[derive(Debug)]
struct Row<const N: usize> {
    name: String,
    reported: bool,
    /// `None` before the first reading, so that there is no rate.
    counters: Option<[u64; N]>,
    rates: [Option<f64>; N],
}

impl<const N: usize> Tracked<N> {
    pub(super) fn new(sys: PathBuf, class: Class) -> Self {
        Self { sys, class, rows: Vec::new(), read_at: None }
    }

    /// Takes a new reading; true when other devices may be reported than before. Without a
    /// reading the devices stay and their rates are absent.
    pub(super) fn update<'t>(
        &mut self,
        now: Micros,
        reading: Option<impl Iterator<Item = Counters<'t, N>>>,
    ) -> bool {
        let span = self.read_at.map(|before| now - before).filter(|span| *span > Micros::ZERO);
        let Some(reading) = reading else {
            self.read_at = None;
            for row in &mut self.rows {
                row.counters = None;
                row.rates = [None; N];
            }
            return false;
        };
        let mut changed = false;
        let mut count = 0;
        for counters in reading {
            if self.rows.get(count).is_none_or(|row| row.name != counters.name) {
                changed |= self.find(count, counters.name);
            }
            if let Some(row) = self.rows.get_mut(count) {
                row.update(span, counters.values);
            }
            count += 1;
        }
        changed |= self.rows.drain(count.min(self.rows.len())..).any(|row| row.reported);
        self.read_at = Some(now);
        changed
    }

    /// Puts the row of a name at a position: one that moved up, or a new one. True when that may
    /// change what is reported.
    fn find(&mut self, position: usize, name: &str) -> bool {
        let rest = self.rows.get(position..).unwrap_or_default();
        if let Some(distance) = rest.iter().position(|row| row.name == name) {
            // Rows between have gone, or the order changed and they are found further down.
            self.rows.get_mut(position..=position + distance).unwrap_or_default().rotate_right(1);
            return true;
        }
        let room = self.rows.iter().filter(|row| row.reported).count() < TRACKED_MAX;
        let reported = room && self.is_reported(name);
        let row = Row { name: name.to_owned(), reported, counters: None, rates: [None; N] };
        self.rows.insert(position.min(self.rows.len()), row);
        reported
    }

    fn is_reported(&self, name: &str) -> bool {
        if self.sys.try_exists().unwrap_or(false) {
            let directory = self.sys.join(name);
            let holds = |entry: &str| directory.join(entry).try_exists().unwrap_or(false);
            return match self.class {
                // Optical drives have a device, too.
                Class::Disk => holds("device") && !name.starts_with("sr"),
                Class::Nic => holds("device") || holds("bonding"),
            };
        }
        // Without sysfs names have to do.
        match self.class {
            Class::Disk => looks_like_disk(name),
            Class::Nic => {
                ["eth", "en", "ib", "bond", "wl"].iter().any(|start| name.starts_with(start))
            },
        }
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.reported().map(|row| row.name.as_str()).collect()
    }

    /// Per second, in the order of `names`.
    pub(super) fn rates(&self) -> impl Iterator<Item = [Option<f64>; N]> {
        self.reported().map(|row| row.rates)
    }

    fn reported(&self) -> impl Iterator<Item = &Row<N>> {
        self.rows.iter().filter(|row| row.reported)
    }
}

impl<const N: usize> Row<N> {
    fn update(&mut self, span: Option<Micros>, values: [u64; N]) {
        let before = self.counters.replace(values);
        self.rates = std::array::from_fn(|at| {
            // A counter that fell belongs to a device that was replaced or reset.
            let grown = values[at].checked_sub(before?[at])?;
            Some(super::whole(grown) / span?.as_secs_f64())
        });
    }
}

/// `sda`, `vda`, `xvda`, `hda`, `nvme0n1` and `mmcblk0`, but not their partitions.
fn looks_like_disk(name: &str) -> bool {
    let lettered = ["xvd", "sd", "vd", "hd"].iter().find_map(|start| name.strip_prefix(start));
    if let Some(rest) = lettered {
        return !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase());
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = name.strip_prefix("nvme") {
        return rest.split_once('n').is_some_and(|(one, two)| digits(one) && digits(two));
    }
    name.strip_prefix("mmcblk").is_some_and(digits)
}
