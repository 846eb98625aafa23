//! Capacities of a machine, as they are stored and read.

use serde::{Deserialize, Serialize};

/// A capacity, with its spread if it is known.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Median of the rounds: bytes per second; operations per second of `cpu_*`.
    pub(crate) value: f64,
    /// Half the distance between the largest and the smallest round, as a share of the value;
    /// none after a single round.
    pub(crate) spread: Option<f64>,
    /// Rounds.
    pub(crate) rounds: usize,
}

impl Measured {
    pub(super) fn of(mut rounds: Vec<f64>) -> Option<Measured> {
        rounds.retain(|value| value.is_finite() && *value > 0.0);
        rounds.sort_by(f64::total_cmp);
        let (&first, &last) = rounds.first().zip(rounds.last())?;
        let n = rounds.len();
        let value = if n % 2 == 1 {
            rounds[n / 2]
        } else {
            (rounds[n / 2 - 1] + rounds[n / 2]) / 2.0
        };
        Some(Measured {
            value,
            spread: (n > 1).then(|| (last - first) / 2.0 / value),
            rounds: n,
        })
    }
}

/// All measured capacities of a machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Capacities {
    /// Always `flowtrace capacities`.
    pub(crate) format: String,
    pub(crate) host: String,
    pub(crate) measured_unix_s: u64,
    pub(crate) cores: usize,
    /// Directory whose disk was measured.
    pub(crate) directory: String,
    /// True if the page cache was bypassed; otherwise the disk's figures are too good.
    pub(crate) is_direct: bool,
    pub(crate) disk_read: Option<Measured>,
    pub(crate) disk_write: Option<Measured>,
    pub(crate) disk_random_read: Option<Measured>,
    pub(crate) disk_random_write: Option<Measured>,
    pub(crate) memory_copy: Option<Measured>,
    pub(crate) cpu_one: Option<Measured>,
    pub(crate) cpu_all: Option<Measured>,
    pub(crate) loopback: Option<Measured>,
    pub(crate) network: Option<Measured>,
    /// Rates of each machine while all sent to all; then `network` is the lesser of sent and received, as the
    /// median over the machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) shuffle: Vec<InShuffle>,
}

/// A machine while all sent to all, bytes per second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InShuffle {
    pub(crate) peer: String,
    pub(crate) sent: Measured,
    pub(crate) received: Measured,
}

/// Name of this machine.
pub(super) fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().replace('/', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_has_no_spread() {
        assert_eq!(Measured::of(vec![5.0]).unwrap().spread, None);
        let three = Measured::of(vec![9.0, 10.0, 12.0]).unwrap();
        assert_eq!((three.value, three.rounds), (10.0, 3));
        assert!((three.spread.unwrap() - 0.15).abs() < 1e-9);
        assert!(Measured::of(vec![0.0, f64::NAN]).is_none());
    }
}
