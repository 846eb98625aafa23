//! Sends from one process to another.

use super::slope::LEAST_SAMPLES;
use crate::messages::Message;

/// Slots (as pairs of processes) from which there are many.
pub(super) const MANY_PAIRS: usize = 500;

/// Sends of a slot that are looked at where there are many slots, evenly spread: a server has a slot for every two of its
/// clients. What nearly every send had seen is then that of so many: of the one in fifty that may be a stray one, up to
/// four in a hundred may.
const FEW_SENDS: usize = 100;

/// Where there are many slots, what came so many rounds before a send is no longer followed: most clients of a server get
/// ahead of each other by more.
const LONG_AGO: i64 = 12;

/// Numbers of messages in both directions may differ by this share and still be in step.
const IN_STEP: f64 = 0.05;

/// Sends of one process to another.
pub(super) struct Sends {
    /// The messages.
    pub(super) messages: Vec<usize>,
    /// When each was sent, ns.
    pub(super) times: Vec<i64>,
    /// When the process' own send before each was over, ns; `None`: it is the first.
    pub(super) own: Vec<Option<i64>>,
    /// When they arrived, ns, in the order of time.
    pub(super) arrivals: Vec<i64>,
    /// Every how manyth is looked at.
    pub(super) every: usize,
}

impl Sends {
    /// Of those of all messages that this list has; `before` has the own send before each. There are so many lists.
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

    /// True if what the sends need of a source that they are ahead of by so much came too many rounds before to be followed.
    pub(super) fn is_long_ago(&self, surplus: i64) -> bool {
        self.every > 1 && surplus < -LONG_AGO
    }

    /// The sends that are looked at, by their places, with when they were sent.
    pub(super) fn sampled(&self) -> impl Iterator<Item = (usize, i64)> {
        let times = self.times.iter().copied().enumerate();
        times.step_by(self.every)
    }
}

/// True if so many sends are in step with so many messages of a source, as far as numbers show.
pub(crate) fn may_be_in_step(sends: usize, arrivals: usize) -> bool {
    let (own, theirs) = (sends as f64, arrivals as f64);
    sends >= LEAST_SAMPLES && (own - theirs).abs() <= IN_STEP * own.max(theirs) + 2.0
}
