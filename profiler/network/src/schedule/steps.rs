//! The messages for which each send waited, from the needs of its slot.

use std::collections::BTreeMap;

use super::context::{AT_ONCE, Context};
use super::phases;
use super::sends::Sends;
use super::{Need, Needs, Step};
use crate::run::Node;

/// Messages for which an earlier send of the receiver has waited. A later send waits for that send, and
/// need not repeat the message. With hundreds of partners each send would repeat hundreds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Covered {
    No,
    Maybe,
    Needed,
}

/// The steps of all messages, and the messages for which they wait, one list after the other.
pub(super) fn steps(context: &Context<'_>, needs: &Needs) -> (Vec<Step>, Vec<u32>) {
    let messages = context.messages;
    let mut inboxes = inboxes(context);
    let mut slots = slots(context, needs, &inboxes);
    // Arrivals in a list of their own, since they are read for every source of every send.
    let received: Vec<i64> = messages.iter().map(|m| m.received_ns.1).collect();
    let mut covered = vec![Covered::No; messages.len()];
    let mut steps = Vec::with_capacity(messages.len());
    let mut links = Vec::new();
    let (mut needed, mut maybe, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
    for (i, message) in messages.iter().enumerate() {
        let (me, to, t) = (message.src, message.dst, message.sent_ns.0);
        let (Some(slot), Some(inbox)) = (slots.get_mut(&(me, to)), inboxes.get_mut(&me)) else {
            continue;
        };
        let own = context.before[i].map(|b| messages[b].sent_ns.1);
        // A process that sends soon after a message, compared with the time that the message took to
        // come, had hardly worked before.
        let is_soon = |m: usize, delay_ns: i64| {
            let wait = own.map_or(0, |own| received[m] - own);
            t - received[m] <= delay_ns.max((AT_ONCE * wait as f64) as i64)
        };
        // Whatever the rule says, no send waits for a message that comes later.
        for (due, of) in slot.due.iter_mut().zip(&slot.needs) {
            if i64::from(*due) > slot.number {
                continue;
            }
            let number = phases::number(of.numbers, slot.number as usize);
            let came = |count: i64| nth(of.messages, number + count).filter(|&m| received[m] <= t);
            // The message, unless it is already covered in this way.
            let open = |count: i64, as_what: Covered| came(count).filter(|&m| covered[m] < as_what);
            match of.need {
                Need::Offset { offset, delay_ns } => match open(offset, Covered::Needed) {
                    Some(m) if is_soon(m, delay_ns) => needed.push(m),
                    other => maybe.extend(other.filter(|&m| covered[m] < Covered::Maybe)),
                },
                Need::Either(offset) => {
                    needed.extend(open(offset - 1, Covered::Needed));
                    maybe.extend(open(offset, Covered::Maybe));
                }
                Need::Hidden(offset) => {
                    needed.extend(open(offset - 1, Covered::Needed));
                    hidden.extend(open(offset, Covered::Maybe));
                }
                Need::LongAgo => {}
            }
            // The messages that the next sends need and for which earlier ones waited are covered,
            // unless one of the sends follows its message soon.
            let next = slot.times.get(slot.number as usize + 1);
            let Source { covered, .. } = &mut inbox.sources[of.source];
            let later = match of.need {
                _ if of.numbers.is_some() => 0,
                Need::Offset { offset, delay_ns } => {
                    if came(offset).is_some() {
                        covered.maybe = covered.maybe.max(number + offset);
                    }
                    let is_far = next.is_none_or(|next| next - t > delay_ns);
                    i64::from(is_far) * (covered.maybe - number - offset)
                }
                Need::Either(offset) | Need::Hidden(offset) => {
                    if came(offset - 1).is_some() {
                        covered.needed = covered.needed.max(number + offset - 1);
                    }
                    covered.maybe.min(covered.needed + 1) - number - offset
                }
                Need::LongAgo => 0,
            };
            *due = (slot.number + 1 + later.max(0)) as u32;
        }
        slot.number += 1;
        if slot.is_loose {
            inbox.waited_for(t, &received, &slot.is_in_step, &mut maybe);
        }
        maybe.sort_by_key(|&m| messages[m].src);
        hidden.retain(|&m| own.is_some_and(|own| received[m] <= own));
        let first = links.len();
        let mut take = |list: &mut Vec<usize>, as_what: Covered| {
            let before = links.len();
            for m in list.drain(..) {
                if covered[m] < as_what {
                    covered[m] = as_what;
                    links.push(m as u32);
                }
            }
            (links.len() - before) as u32
        };
        steps.push(Step {
            message: i,
            process: me,
            t_ns: t,
            before: context.before[i],
            first,
            counts: [
                take(&mut needed, Covered::Needed),
                take(&mut maybe, Covered::Maybe),
                take(&mut hidden, Covered::Maybe),
            ],
        });
    }
    (steps, links)
}

/// The message of this number in a list, from 1.
fn nth(list: &[usize], count: i64) -> Option<usize> {
    let at = usize::try_from(count.checked_sub(1)?).ok()?;
    list.get(at).copied()
}

/// The need of the sends of a slot for one source.
struct Of<'a> {
    /// Place of the source in the inbox.
    source: usize,
    messages: &'a [usize],
    need: Need,
    /// Numbers of the sends if they differ from the order of sending.
    numbers: Option<&'a [i64]>,
}

/// The sends of one process to another.
struct Slot<'a> {
    /// Needs for each source that is in step.
    needs: Vec<Of<'a>>,
    /// Number of the send at which each need is next checked, since most of hundreds of sources have
    /// nothing new.
    due: Vec<u32>,
    /// Times of the sends, ns.
    times: &'a [i64],
    /// True for each source of the inbox that is in step.
    is_in_step: Vec<bool>,
    /// True if one source is not in step.
    is_loose: bool,
    /// Number of sends so far.
    number: i64,
}

fn slots<'a>(
    context: &'a Context<'_>,
    needs: &Needs,
    inboxes: &BTreeMap<Node, Inbox<'a>>,
) -> BTreeMap<(Node, Node), Slot<'a>> {
    let slot = |(&(me, to), sends): (&(Node, Node), &'a Sends)| {
        let sources = inboxes.get(&me).map_or(&[][..], |inbox| &inbox.sources);
        let need = |from: Node| needs.get(&(me, to, from)).copied();
        let of_source = |(at, source): (usize, &Source<'a>)| {
            Some(Of {
                source: at,
                messages: source.messages,
                need: need(source.from)?,
                numbers: context.numbers((me, to, source.from)),
            })
        };
        let in_step = sources.iter().enumerate();
        let in_step = in_step.filter(|(_, source)| need(source.from) != Some(Need::LongAgo));
        let needs: Vec<Of<'a>> = in_step.filter_map(of_source).collect();
        let is_in_step = sources.iter().map(|source| need(source.from).is_some());
        let is_in_step: Vec<bool> = is_in_step.collect();
        let slot = Slot {
            due: vec![0; needs.len()],
            needs,
            times: &sends.times,
            is_loose: is_in_step.contains(&false),
            is_in_step,
            number: 0,
        };
        ((me, to), slot)
    };
    context.sent.iter().map(slot).collect()
}

/// Numbers of the last messages of a source for which sends certainly waited, and may have waited.
#[derive(Default)]
struct UpTo {
    needed: i64,
    maybe: i64,
}

/// Messages of one process to another.
struct Source<'a> {
    from: Node,
    messages: &'a [usize],
    covered: UpTo,
    /// Number of messages that had arrived at the last send that was read.
    arrived: i64,
    /// True if a message came for which no send has waited yet.
    is_open: bool,
}

/// Messages to a process. For sources that are not in step only the last arrival is known.
#[derive(Default)]
struct Inbox<'a> {
    sources: Vec<Source<'a>>,
    /// Arrivals with their sources, in the order of time.
    arrivals: Vec<(i64, u32)>,
    /// Number of arrivals before the last send that was read.
    seen: usize,
    /// Sources with a message for which no send has waited yet.
    open: Vec<u32>,
}

fn inboxes<'a>(context: &Context<'a>) -> BTreeMap<Node, Inbox<'a>> {
    let mut inboxes: BTreeMap<Node, Inbox<'a>> = BTreeMap::new();
    for &me in context.sent.keys().map(|(me, _)| me) {
        inboxes.entry(me).or_default();
    }
    for (&(from, me), sends) in context.sent {
        // A process that never sends has no known waits.
        let Some(inbox) = inboxes.get_mut(&me) else {
            continue;
        };
        let source = inbox.sources.len() as u32;
        inbox.sources.push(Source {
            from,
            messages: &sends.messages,
            covered: UpTo::default(),
            arrived: 0,
            is_open: false,
        });
        inbox
            .arrivals
            .extend(sends.arrivals.iter().map(|&t| (t, source)));
    }
    for inbox in inboxes.values_mut() {
        inbox.arrivals.sort_unstable();
    }
    inboxes
}

impl Inbox<'_> {
    /// Adds the messages of the sources out of step for which a send may have waited.
    fn waited_for(
        &mut self,
        t: i64,
        received: &[i64],
        is_in_step: &[bool],
        maybe: &mut Vec<usize>,
    ) {
        while let Some(&(at, number)) = self.arrivals.get(self.seen)
            && at < t
        {
            self.seen += 1;
            let source = &mut self.sources[number as usize];
            source.arrived += 1;
            if !source.is_open {
                source.is_open = true;
                self.open.push(number);
            }
        }
        let sources = &mut self.sources;
        self.open.retain(|&number| {
            let source = &mut sources[number as usize];
            if is_in_step[number as usize] {
                return true;
            }
            let last = nth(source.messages, source.arrived).filter(|&m| received[m] <= t);
            maybe.extend(last);
            source.is_open = last.is_none();
            source.is_open
        });
    }
}
