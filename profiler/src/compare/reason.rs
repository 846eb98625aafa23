//! The reasons why a step took another time: its processes ran more or fewer at a time, computed more, or
//! waited longer for a CPU, for storage, for locks or for others.

use flowtrace_render::units::duration;

use super::facts::RuleFacts;

/// A reason must be this share of the whole change.
const LEAST_SHARE: f64 = 0.15;

/// Least change of the load by other programs that is named: CPUs, and share of the greater load.
const LEAST_LOAD: f64 = 0.1;
const LEAST_SHARE_OF_LOAD: f64 = 0.2;

/// One reason, with the part of the change that it explains.
pub(super) struct Reason {
    /// The part, ns: negative where the step became shorter.
    pub(super) ns: f64,
    /// The kind of reason.
    pub(super) kind: Kind,
    text: String,
}

/// The kind of a reason.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Another number of processes at a time.
    Number,
    /// CPU time.
    Cpu,
    /// Waits for a CPU, for storage, for locks or for others.
    Waits,
}

/// The reasons, the largest part first; empty if none explains a relevant part. `load`: CPUs that other programs
/// used.
///
/// A step takes the lives of its processes, divided by the number of them that live at a time. The change of
/// that quotient is divided exactly: the first part is that of the number at a time, with the lives as they
/// were; the others are those of the parts of the lives, with the number as it is now.
pub(super) fn reasons(a: &RuleFacts, b: &RuleFacts, load: Option<(f64, f64)>) -> Vec<Reason> {
    let change = b.span_ns - a.span_ns;
    let (before, now) = (a.at_a_time(), b.at_a_time());
    let part = |kind, name: &str, of: fn(&RuleFacts) -> f64| Reason {
        ns: (of(b) - of(a)) / now,
        text: format!(
            "{name} {} → {}",
            duration(of(a) as i64),
            duration(of(b) as i64)
        ),
        kind,
    };
    let mut queue = part(Kind::Waits, "waits for a CPU", |facts| facts.queue_ns);
    let is_cause = |&(a, b): &(f64, f64)| {
        (b - a) * queue.ns.signum() >= LEAST_LOAD.max(LEAST_SHARE_OF_LOAD * a.max(b))
    };
    if let Some((a, b)) = load.filter(is_cause) {
        queue.text += &format!(" (other load on the machine: {a:.1} → {b:.1} CPUs)");
    }
    let locks = match locked(a, b) {
        Some(file) => format!("waits for the lock on {file}"),
        None => "waits for locks".into(),
    };
    let mut reasons = vec![
        Reason {
            ns: a.lives_ns() * (1.0 / now - 1.0 / before),
            text: format!("{before:.1} → {now:.1} at a time"),
            kind: Kind::Number,
        },
        part(Kind::Cpu, "CPU", |facts| facts.cpu_ns),
        queue,
        part(Kind::Waits, "waits for storage", |facts| facts.storage_ns),
        part(Kind::Waits, &locks, |facts| facts.lock_ns),
        part(Kind::Waits, "other waits", RuleFacts::other_waits_ns),
    ];
    reasons.retain(|one| one.ns * change > 0.0 && one.ns.abs() >= LEAST_SHARE * change.abs());
    reasons.sort_by(|x, y| y.ns.abs().total_cmp(&x.ns.abs()));
    reasons
}

/// The file whose lock makes up half of the change of waits for locks, or more.
fn locked<'a>(a: &'a RuleFacts, b: &'a RuleFacts) -> Option<&'a str> {
    let of = |facts: &RuleFacts, file: &String| facts.lock_files.get(file).copied().unwrap_or(0.0);
    let change = b.lock_ns - a.lock_ns;
    let files = a.lock_files.keys().chain(b.lock_files.keys());
    let changes = files.map(|file| (file, (of(b, file) - of(a, file)) * change.signum()));
    let (file, most) = changes.max_by(|x, y| x.1.total_cmp(&y.1))?;
    (most * 2.0 >= change.abs()).then_some(file)
}

/// Several reasons as one text.
pub(super) fn texts<'a>(reasons: impl IntoIterator<Item = &'a Reason>) -> Option<String> {
    let texts: Vec<&str> = reasons.into_iter().map(|one| &*one.text).collect();
    (!texts.is_empty()).then(|| texts.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(span_s: f64, cpu_s: f64, queue_s: f64, storage_s: f64) -> RuleFacts {
        RuleFacts {
            span_ns: span_s * 1e9,
            cpu_ns: cpu_s * 1e9,
            queue_ns: queue_s * 1e9,
            storage_ns: storage_s * 1e9,
            waits_ns: storage_s * 1e9,
            ..RuleFacts::default()
        }
    }

    fn words(a: &RuleFacts, b: &RuleFacts, load: Option<(f64, f64)>) -> String {
        texts(&reasons(a, b, load)).unwrap_or_default()
    }

    #[test]
    fn the_reason_is_what_changed_most() {
        let serial = facts(65.0, 65.0, 0.0, 0.0);
        assert_eq!(
            words(&serial, &facts(20.5, 66.0, 1.0, 0.0), None),
            "1.0 → 3.3 at a time"
        );
        assert_eq!(
            words(
                &facts(10.0, 5.0, 0.0, 5.0),
                &facts(30.0, 15.0, 0.0, 15.0),
                None
            ),
            "CPU 5.0 s → 15.0 s · waits for storage 5.0 s → 15.0 s"
        );
        assert_eq!(words(&serial, &serial, None), "");
        assert_eq!(
            words(&RuleFacts::default(), &serial, None),
            "CPU 0 s → 1 min 05 s"
        );
    }

    #[test]
    fn other_load_is_named_where_it_changed_as_the_waits_for_a_cpu() {
        let (quiet, busy) = (facts(65.0, 65.0, 0.0, 0.0), facts(130.0, 65.0, 65.0, 0.0));
        let queue = "waits for a CPU 0 s → 1 min 05 s";
        for (load, expected) in [
            (None, queue.to_owned()),
            (Some((1.0, 0.2)), queue.to_owned()),
            (Some((1.0, 1.1)), queue.to_owned()),
            (
                Some((0.0, 1.5)),
                format!("{queue} (other load on the machine: 0.0 → 1.5 CPUs)"),
            ),
        ] {
            assert_eq!(words(&quiet, &busy, load), expected);
        }
    }

    #[test]
    fn waits_for_locks_are_named_with_their_file() {
        let mut a = facts(10.0, 2.0, 0.0, 0.0);
        (a.waits_ns, a.lock_ns) = (30e9, 22e9);
        let mut b = facts(5.0, 2.0, 0.0, 0.0);
        b.waits_ns = 8e9;
        assert_eq!(words(&a, &b, None), "waits for locks 22.0 s → 0 s");
        a.lock_files = [("db.lock".to_owned(), 21e9), ("b".to_owned(), 1e9)].into();
        assert_eq!(
            words(&a, &b, None),
            "waits for the lock on db.lock 22.0 s → 0 s"
        );
    }
}
