//! One scale of time for all files.
//!
//! Recordings of one boot of one kernel share its monotonic clock: their times are related exactly, even
//! across time namespaces and steps of the wall clock. Between kernels the wall clocks relate them, as well
//! as they are synchronised; the error is the one that the kernels report. A file of `flowtrace collect`
//! relates them better, for its agents asked for the time, and packets that two machines captured do best
//! ([`KernelClocks`]); both also give the drift.

use std::collections::HashMap;

use super::input::{Host, Input};
use super::options::{ClockMethod, KernelClocks};

/// The place of a file on the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Added to the times of the file, ns.
    pub(super) shift_ns: i64,
    /// Subtracted then, parts per billion of the sum, for the clock runs fast.
    pub(super) drift_ppb: i64,
    /// Added last, ns.
    pub(super) offset_ns: i64,
    pub(super) method: ClockMethod,
    /// Bound of the error against the first file's clock; `None`: not known.
    pub(super) error_ns: Option<i64>,
}

impl Place {
    /// A time of the file on the scale.
    pub(super) fn on_scale(&self, t_ns: i64) -> i64 {
        let t_ns = t_ns.saturating_add(self.shift_ns);
        let drift = match self.drift_ppb {
            // So it is for most machines; the wide division costs more than all else here, for every time of
            // every row.
            0 => 0,
            ppb => {
                let drift = i128::from(t_ns) * i128::from(ppb) / 1_000_000_000;
                i64::try_from(drift).unwrap_or(0)
            }
        };
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
    /// Wall clock at time 0 of the clock, ns, as each file saw it.
    zeros: Vec<i64>,
    error_ns: Option<i64>,
}

fn monotonic(host: &Host) -> Option<(&str, i64)> {
    Some((host.boot.as_deref()?, host.monotonic_ns?))
}

/// The scale of all files, by what the files say of their clocks, and by packets where `packets` has better
/// relations.
pub(super) fn scale(inputs: &[Input], packets: Option<&KernelClocks>) -> Scale {
    let (mut scale, anchors) = by_wall_clocks(inputs);
    by_exchange(&mut scale, inputs, &anchors);
    scale.begin_at_0();
    if let Some(packets) = packets {
        by_packets(&mut scale, inputs, packets);
        scale.begin_at_0();
    }
    scale
}

impl Scale {
    /// Makes time 0 the begin of the earliest recording again.
    fn begin_at_0(&mut self) {
        let earliest = self.places.iter().map(|place| place.on_scale(0)).min();
        let earliest = earliest.unwrap_or(0);
        for place in &mut self.places {
            place.offset_ns = place.offset_ns.saturating_sub(earliest);
        }
        self.epoch_unix_ns = self.epoch_unix_ns.saturating_add(earliest);
    }
}

/// Relates machines to the first one through a file that relates both by exchanged times.
fn by_exchange(scale: &mut Scale, inputs: &[Input], anchors: &[Option<Host>]) {
    let Some((reference, reference_ns)) =
        anchors.first().and_then(|host| monotonic(host.as_ref()?))
    else {
        return;
    };
    let first_ns = scale.places[0].shift_ns;
    for (place, anchor) in scale.places.iter_mut().zip(anchors) {
        let Some((boot, begin_ns)) = anchor.as_ref().and_then(monotonic) else {
            continue;
        };
        if place.method == ClockMethod::SameBoot {
            continue;
        }
        let known = inputs.iter().flat_map(|input| {
            let of = |boot| {
                input
                    .hosts
                    .iter()
                    .filter(move |h| h.boot.as_deref() == Some(boot))
            };
            of(boot).flat_map(move |own| of(reference).map(move |other| (own, other)))
        });
        let known = known.filter_map(|(own, other)| {
            let zeros = (own.monotonic_ns?, other.monotonic_ns?);
            // The file's own machine was not asked, and has no error.
            own.asked.or(other.asked)?;
            let (own, other) = (
                own.asked.unwrap_or_default(),
                other.asked.unwrap_or_default(),
            );
            let error_ns = own.error_ns.saturating_add(other.error_ns);
            Some((error_ns, zeros, own.gains_ppb - other.gains_ppb))
        });
        let Some((error_ns, (zero, reference_zero), gains_ppb)) = known.min() else {
            continue;
        };
        *place = Place {
            shift_ns: begin_ns.saturating_sub(zero),
            drift_ppb: -gains_ppb,
            offset_ns: reference_zero
                .saturating_sub(reference_ns)
                .saturating_add(first_ns),
            method: ClockMethod::Exchange,
            error_ns: Some(error_ns),
        };
    }
}

/// Corrects the clocks by the relations that packets give.
fn by_packets(scale: &mut Scale, inputs: &[Input], packets: &KernelClocks) {
    let kernel = |input: &Input| match &input.hosts[..] {
        [host] => Some(host.kernel().to_owned()),
        _ => None,
    };
    let is_reference = |input: &Input| kernel(input).as_ref() == Some(&packets.reference);
    let reference = inputs.iter().position(is_reference);
    let reference_ns = reference.and_then(|at| scale.places[at].error_ns);
    for (place, input) in scale.places.iter_mut().zip(inputs) {
        let Some(kernel) = kernel(input) else {
            continue;
        };
        let other = packets.others.iter().find(|(name, _)| *name == kernel);
        if let Some((_, clock)) = other {
            let ppb = |value: i64| {
                (i128::from(value) * i128::from(clock.drift_ppb) / 1_000_000_000) as i64
            };
            *place = Place {
                shift_ns: place.shift_ns,
                drift_ppb: place.drift_ppb + clock.drift_ppb - ppb(place.drift_ppb),
                offset_ns: place.offset_ns - ppb(place.offset_ns) + clock.offset_ns,
                method: ClockMethod::Packets,
                error_ns: clock.error_ns.zip(reference_ns).map(|(a, b)| a + b),
            };
        }
    }
}

/// The best relations without exchanges and packets, and the machine whose clock each file uses.
fn by_wall_clocks(inputs: &[Input]) -> (Scale, Vec<Option<Host>>) {
    // Every file uses the clock of one of its machines, of a boot that another file has, too, if there is
    // one.
    let mut files_of: HashMap<&str, u32> = HashMap::new();
    for input in inputs {
        for (boot, _) in input.hosts.iter().filter_map(monotonic) {
            *files_of.entry(boot).or_default() += 1;
        }
    }
    let anchor = |input: &'_ Input| -> Option<Host> {
        let files = |host: &&Host| monotonic(host).map_or(0, |(boot, _)| files_of[boot]);
        // Prefer a machine that was not only asked; of equal ones the first.
        let rank = |host: &&Host| (host.asked.is_none(), files(host));
        input.hosts.iter().rev().max_by_key(rank).cloned()
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
        // The median: a wall clock that was set by one step is outvoted.
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
    let places = anchors.iter().zip(begins).enumerate().map(place).collect();
    let scale = Scale {
        epoch_unix_ns,
        places,
    };
    (scale, anchors)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::input::Asked;
    use super::*;
    use crate::ClockCorrection;

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
                asked: None,
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
        let times: Vec<i64> = scale.places.iter().map(|p| p.on_scale(0)).collect();
        assert_eq!(times, [2_200, 0, 450]);
        assert_eq!(scale.places[1].on_scale(1_000), 900);
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

    #[test]
    fn an_exchange_says_more_than_wall_clocks() {
        // The collector is a third machine; b's clock runs a thousandth slow, and loses.
        let mut asked = input("c", 0, Some(70), None);
        let node = |boot: &str, zero, error_ns, gains_ppb| Host {
            id: 2,
            name: boot.into(),
            boot: Some(boot.into()),
            epoch_unix_ns: 0,
            monotonic_ns: Some(zero),
            wall_error_ns: None,
            asked: Some(Asked {
                error_ns,
                gains_ppb,
            }),
        };
        asked.hosts.push(node("a", 100, 3, 0));
        asked.hosts.push(node("b", 9_000, 4, 1_000_000));
        let inputs = [
            input("a", 50_000, Some(500), Some(30)),
            input("b", 10_000, Some(11_000), Some(12)),
            asked,
        ];
        let scale = scale(&inputs, None);
        // By the collector's clock a began at 400, b at 2002.
        let times: Vec<i64> = scale.places.iter().map(|p| p.on_scale(0)).collect();
        assert_eq!(times, [400, 2_002, 0]);
        assert_eq!(
            scale.places[1].on_scale(10_000) - scale.places[1].on_scale(0),
            10_010
        );
        let errors: Vec<_> = scale.places.iter().map(|p| p.error_ns).collect();
        assert_eq!(errors, [Some(0), Some(7), Some(3)]);
        assert_eq!(scale.epoch_unix_ns, 50_000 - 400);
    }
}
