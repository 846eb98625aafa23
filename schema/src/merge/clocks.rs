//! One scale of time for all files.
//!
//! Recordings of one boot of one kernel share its monotonic clock: their moments are related
//! exactly, time namespaces and steps of the wall clock or not. Between kernels the wall clocks
//! say it, as well as they are synchronised; their error is what the kernels knew of it. Packets
//! that two of them captured say it better, drift included ([`KernelClocks`]).

use std::collections::HashMap;

use super::input::{Host, Input};
use crate::ClockCorrection;

/// How the clock of a machine was related to the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockMethod {
    /// It is that of the first file, or of the same boot.
    SameBoot,
    /// By the wall clocks of both.
    WallClock,
    /// By packets that both captured.
    Packets,
}

/// What packets say of the clocks of kernels, on the scale of a merge that knew nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelClocks {
    /// The kernel that the others are related to: its boot, or the name of its machine.
    pub reference: String,
    /// The others, likewise named, each with what brings its times to those of the reference.
    pub others: Vec<(String, ClockCorrection)>,
}

impl ClockMethod {
    /// Name stored in the database.
    pub const fn name(self) -> &'static str {
        match self {
            ClockMethod::SameBoot => "same boot",
            ClockMethod::WallClock => "wall clock",
            ClockMethod::Packets => "packets",
        }
    }
}

/// Where a file lies on the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Added to its times, ns.
    pub(super) shift_ns: i64,
    /// Taken off then, parts per billion of what came out, for it runs fast.
    pub(super) drift_ppb: i64,
    /// Added at last, ns.
    pub(super) offset_ns: i64,
    pub(super) method: ClockMethod,
    /// Bound of the error against the first file's clock; `None`: not known.
    pub(super) error_ns: Option<i64>,
}

impl Place {
    /// A time of the file on the scale.
    pub(super) fn moment(&self, t_ns: i64) -> i64 {
        let t_ns = t_ns.saturating_add(self.shift_ns);
        let drift = i128::from(t_ns) * i128::from(self.drift_ppb) / 1_000_000_000;
        let drift = i64::try_from(drift).unwrap_or(0);
        t_ns.saturating_sub(drift).saturating_add(self.offset_ns)
    }
}

/// The scale: wall clock at its time 0, and the place of each file.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    pub(super) epoch_unix_ns: i64,
    pub(super) places: Vec<Place>,
}

/// A clock that several files share.
struct Clock {
    /// Wall clock at its 0, ns, as each file saw it.
    zeros: Vec<i64>,
    error_ns: Option<i64>,
}

fn monotonic(host: &Host) -> Option<(&str, i64)> {
    Some((host.boot.as_deref()?, host.monotonic_ns?))
}

/// The scale of all files, by what they say of their clocks themselves, and by packets where
/// `packets` says more.
pub(super) fn scale(inputs: &[Input], packets: Option<&KernelClocks>) -> Scale {
    let mut scale = scale_of_files(inputs);
    let Some(packets) = packets else {
        return scale;
    };
    let kernel = |input: &Input| match &input.hosts[..] {
        [host] => Some(host.kernel().to_owned()),
        _ => None,
    };
    let is_reference = |input: &&Input| kernel(input).as_ref() == Some(&packets.reference);
    let reference = inputs.iter().position(|input| is_reference(&input));
    let reference_ns = reference.and_then(|at| scale.places[at].error_ns);
    for (place, input) in scale.places.iter_mut().zip(inputs) {
        let Some(kernel) = kernel(input) else {
            continue;
        };
        let other = packets.others.iter().find(|(name, _)| *name == kernel);
        if let Some((_, clock)) = other {
            place.drift_ppb = clock.drift_ppb;
            place.offset_ns = clock.offset_ns;
            place.method = ClockMethod::Packets;
            place.error_ns = clock.error_ns.zip(reference_ns).map(|(a, b)| a + b);
        }
    }
    // Time 0 stays the begin of the earliest recording.
    let earliest = scale.places.iter().map(|place| place.moment(0)).min();
    let earliest = earliest.unwrap_or(0);
    for place in &mut scale.places {
        place.offset_ns = place.offset_ns.saturating_sub(earliest);
    }
    scale.epoch_unix_ns = scale.epoch_unix_ns.saturating_add(earliest);
    scale
}

fn scale_of_files(inputs: &[Input]) -> Scale {
    // Every file stands on the clock of one of its machines, of a boot that another has if it can.
    let mut files_of: HashMap<&str, u32> = HashMap::new();
    for input in inputs {
        for (boot, _) in input.hosts.iter().filter_map(monotonic) {
            *files_of.entry(boot).or_default() += 1;
        }
    }
    let anchor = |input: &'_ Input| -> Option<Host> {
        let files = |host: &&Host| monotonic(host).map_or(0, |(boot, _)| files_of[boot]);
        // The first of several that are equal.
        input.hosts.iter().rev().max_by_key(files).cloned()
    };
    let anchors: Vec<Option<Host>> = inputs.iter().map(anchor).collect();
    let mut clocks: HashMap<&str, Clock> = HashMap::new();
    for host in anchors.iter().flatten() {
        if let Some((boot, monotonic_ns)) = monotonic(host) {
            let clock = clocks.entry(boot).or_insert(Clock {
                zeros: Vec::new(),
                error_ns: host.wall_error_ns,
            });
            clock
                .zeros
                .push(host.epoch_unix_ns.saturating_sub(monotonic_ns));
            clock.error_ns = match (clock.error_ns, host.wall_error_ns) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
    }
    for clock in clocks.values_mut() {
        // The median: a wall clock that was set once is outvoted.
        clock.zeros.sort_unstable();
    }
    let begin = |host: &Host| match monotonic(host) {
        Some((boot, monotonic_ns)) => {
            let zeros = &clocks[boot].zeros;
            zeros[zeros.len() / 2].saturating_add(monotonic_ns)
        }
        None => host.epoch_unix_ns,
    };
    let begins: Vec<i64> = anchors
        .iter()
        .map(|host| host.as_ref().map_or(0, begin))
        .collect();
    let epoch_unix_ns = begins.iter().copied().min().unwrap_or(0);
    let first = anchors.first().and_then(Option::as_ref);
    let error = |host: &Host| match monotonic(host) {
        Some((boot, _)) => clocks[boot].error_ns,
        None => host.wall_error_ns,
    };
    let place = |(at, (host, begin)): (usize, (&Option<Host>, i64))| {
        let boot = |host: Option<&Host>| host.and_then(monotonic).map(|(boot, _)| boot.to_owned());
        let is_same =
            at == 0 || boot(host.as_ref()).is_some() && boot(host.as_ref()) == boot(first);
        Place {
            shift_ns: begin.saturating_sub(epoch_unix_ns),
            drift_ppb: 0,
            offset_ns: 0,
            method: if is_same {
                ClockMethod::SameBoot
            } else {
                ClockMethod::WallClock
            },
            error_ns: if is_same {
                Some(0)
            } else {
                let errors = host.as_ref().and_then(error).zip(first.and_then(error));
                errors.map(|(a, b)| a.saturating_add(b))
            },
        }
    };
    Scale {
        epoch_unix_ns,
        places: anchors.iter().zip(begins).enumerate().map(place).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn input(boot: &str, epoch: i64, monotonic: Option<i64>, error: Option<i64>) -> Input {
        Input {
            path: PathBuf::new(),
            state: (0, 0),
            hosts: vec![Host {
                id: 1,
                name: "n".into(),
                boot: Some(boot.into()),
                epoch_unix_ns: epoch,
                monotonic_ns: monotonic,
                wall_error_ns: error,
            }],
            runs: Vec::new(),
            offsets: Default::default(),
        }
    }

    #[test]
    fn one_boot_is_related_exactly_though_its_wall_clock_was_set() {
        let inputs = [
            input("a", 1_000_000, Some(500), None),
            input("a", 1_000_300, Some(800), None),
            // Set back by half a second between.
            input("a", 1_001_500 - 500_000, Some(2_000), None),
        ];
        let scale = scale(&inputs, None);
        let shifts: Vec<i64> = scale.places.iter().map(|p| p.shift_ns).collect();
        assert_eq!(shifts, [0, 300, 1_500]);
        assert!(scale.places.iter().all(|p| p.error_ns == Some(0)));
        assert_eq!(scale.epoch_unix_ns, 1_000_000);
    }

    #[test]
    fn machines_are_related_by_their_wall_clocks_with_the_sum_of_both_errors() {
        let inputs = [
            input("a", 2_000, Some(500), Some(30)),
            input("b", 1_000, Some(9_000), Some(12)),
            input("c", 5_000, None, None),
        ];
        let scale = scale(&inputs, None);
        let shifts: Vec<i64> = scale.places.iter().map(|p| p.shift_ns).collect();
        assert_eq!(shifts, [1_000, 0, 4_000]);
        let errors: Vec<_> = scale.places.iter().map(|p| p.error_ns).collect();
        assert_eq!(errors, [Some(0), Some(42), None]);
        assert_eq!(scale.places[1].method, ClockMethod::WallClock);
    }

    #[test]
    fn packets_say_more_than_wall_clocks() {
        let inputs = [
            input("a", 2_000, Some(500), Some(30)),
            input("b", 1_000, Some(9_000), Some(12)),
            input("b", 1_500, Some(9_500), Some(12)),
        ];
        let clock = ClockCorrection {
            offset_ns: -1_200,
            drift_ppb: 100_000_000,
            error_ns: Some(5),
        };
        let clocks = KernelClocks {
            reference: "a".into(),
            others: vec![("b".into(), clock)],
        };
        let scale = scale(&inputs, Some(&clocks));
        // By the wall clocks b began 1000 before a; by packets 2200, and its clock runs a tenth fast.
        let moments: Vec<i64> = scale.places.iter().map(|p| p.moment(0)).collect();
        assert_eq!(moments, [2_200, 0, 450]);
        assert_eq!(scale.places[1].moment(1_000), 900);
        assert_eq!(scale.epoch_unix_ns, 1_000 - 1_200);
        let errors: Vec<_> = scale
            .places
            .iter()
            .map(|p| (p.error_ns, p.method))
            .collect();
        let by_packets = (Some(5), ClockMethod::Packets);
        assert_eq!(
            errors,
            [(Some(0), ClockMethod::SameBoot), by_packets, by_packets]
        );
    }
}
