//! Processes that do alike, by what they send. Only their times compare: a server is not slower than its
//! clients.

use super::balance::Roles;
use super::messages::Message;
use super::schedule;

/// Processes that do alike send numbers of messages, and messages of a mean size, within this factor of each
/// other.
const ALIKE: u64 = 2;

/// Messages and bytes that a process sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    messages: u64,
    bytes: u64,
}

impl Sent {
    fn does_alike(self, other: Sent) -> bool {
        let is_near = |a: u128, b: u128| a.min(b) * u128::from(ALIKE) >= a.max(b);
        // Sizes as bytes per message, without a division.
        let size = |own: Sent, by: Sent| u128::from(own.bytes) * u128::from(by.messages);
        is_near(self.messages.into(), other.messages.into())
            && is_near(size(self, other), size(other, self))
    }

    /// True if the numbers allow that one has as many partners again as the other. The ends of a chain have
    /// one partner and all others have two, so that their waits are not alike, though their work is.
    fn has_more_partners(self, other: Sent) -> bool {
        let least = self.messages.min(other.messages).saturating_mul(ALIKE);
        let most = self.messages.max(other.messages);
        schedule::may_be_in_step(least as usize, most as usize)
    }
}

fn sent(messages: &[Message], nodes: usize) -> Vec<Sent> {
    let mut sent = vec![Sent::default(); nodes];
    for message in messages {
        let of = &mut sent[usize::from(message.src)];
        of.messages += 1;
        of.bytes = of.bytes.saturating_add(message.bytes);
    }
    sent
}

/// The processes whose work compares.
pub(crate) fn of_work(messages: &[Message], nodes: usize) -> Roles {
    let sent = sent(messages, nodes);
    Roles::new(nodes, |a, b| sent[a].does_alike(sent[b]))
}

/// The processes whose delays compare.
pub(crate) fn of_delays(messages: &[Message], nodes: usize) -> Roles {
    let sent = sent(messages, nodes);
    Roles::new(nodes, |a, b| {
        a == b || sent[a].does_alike(sent[b]) && !sent[a].has_more_partners(sent[b])
    })
}

/// Reason why the times of processes do not compare.
pub(crate) const UNALIKE: &str = "no other process does as the one with the longest delays (by the number and size of the messages that it sends), so that its delays do not compare";
