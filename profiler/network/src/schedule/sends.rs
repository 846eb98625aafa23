//! Sends from one process to another.

use super::slope::LEAST_SAMPLES;
use crate::messages::Message;

/// Least number of slots (as pairs of processes) that are many.
pub(super) const MANY_PAIRS: usize = 500;

/// Number of sampled sends of a slot if there are many slots, evenly spread, since a server has a slot
/// for every two of its clients. The number that nearly every send had seen is then that of this
/// sample: instead of one in fifty, up to four in a hundred sends may be exceptions.
const FEW_SENDS: usize = 100;

/// Number of rounds after which messages are ignored if there are many slots, since most clients of a
/// server get ahead of each other by more.
const LONG_AGO: i64 = 12;

/// Largest relative difference of the numbers of messages in both directions that are in step.
const IN_STEP: f64 = 0.05;

/// Sends of one process to another.
pub(super) struct Sends {
    /// The messages.
    pub(super) messages: Vec<usize>,
    /// Time of each send, ns.
    pub(super) times: Vec<i64>,
    /// Time of the process's send before each, ns; `None` for the first one.
    pub(super) own: Vec<Option<i64>>,
    /// Arrivals of the messages, ns, in the order of time.
    pub(super) arrivals: Vec<i64>,
    /// Distance of the sampled sends.
    pub(super) every: usize,
}

impl Sends {
    /// The messages at these places. `before` has the process's send before each message. `lists` is
    /// the number of such lists.
    pub(super) fn new(
        list: Vec<usize>,
        messages: &[Message],
        before: &[Option<usize>],
        lists: usize,
    ) -> Sends {
        let mut arrivals: Vec<i64> = list.iter().map(|&i| messages[i].received_ns.1).collect();
        // In order within a connection; two connections of one pair may differ.
        arrivals.sort_unstable();
        let own = |&i: &usize| Some(messages[before[i]?].sent_ns.1);
        let every = match lists > MANY_PAIRS {
            true => list.len().div_ceil(FEW_SENDS).max(1),
            false => 1,
        };
        Sends {
            every,
            times: list.iter().map(|&i| messages[i].sent_ns.0).collect(),
            own: list.iter().map(own).collect(),
            messages: list,
            arrivals,
        }
    }

    /// True if the sends are ahead of a source by so many rounds that its messages are ignored.
    pub(super) fn is_long_ago(&self, surplus: i64) -> bool {
        self.every > 1 && surplus < -LONG_AGO
    }

    /// The sampled sends: place and time.
    pub(super) fn sampled(&self) -> impl Iterator<Item = (usize, i64)> {
        let times = self.times.iter().copied().enumerate();
        times.step_by(self.every)
    }
}

/// True if these numbers allow that sends are in step with messages of a source.
pub(crate) fn may_be_in_step(sends: usize, arrivals: usize) -> bool {
    let (own, theirs) = (sends as f64, arrivals as f64);
    sends >= LEAST_SAMPLES && (own - theirs).abs() <= IN_STEP * own.max(theirs) + 2.0
}
