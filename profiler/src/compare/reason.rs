//! The reasons why a step took another time: its processes ran more or fewer at a time, computed more, or
//! waited longer for a CPU, for storage or for others.

use flowtrace_render::units::duration;

use super::facts::RuleFacts;

/// A reason must be this share of the whole change.
const LEAST_SHARE: f64 = 0.15;

/// One reason, with the part of the change that it explains.
struct Reason {
    /// The part, ns: negative where the step became shorter.
    ns: f64,
    text: String,
}

/// The reasons in words, the largest part first; empty if none explains a relevant part.
///
/// A step takes the lives of its processes, divided by the number of them that live at a time. The change of
/// that quotient is divided exactly: the first part is that of the number at a time, with the lives as they
/// were; the others are those of the parts of the lives, with the number as it is now.
pub(super) fn reasons(a: &RuleFacts, b: &RuleFacts) -> String {
    let change = b.span_ns - a.span_ns;
    let (before, now) = (a.at_a_time(), b.at_a_time());
    let times = |a: f64, b: f64| format!("{} → {}", duration(a as i64), duration(b as i64));
    let part = |name: &str, of: fn(&RuleFacts) -> f64| Reason {
        ns: (of(b) - of(a)) / now,
        text: format!("{name} {}", times(of(a), of(b))),
    };
    let mut reasons = vec![
        Reason {
            ns: a.lives_ns() * (1.0 / now - 1.0 / before),
            text: format!("{before:.1} → {now:.1} at a time"),
        },
        part("CPU", |facts| facts.cpu_ns),
        part("waits for a CPU", |facts| facts.queue_ns),
        part("waits for storage", |facts| facts.storage_ns),
        part("other waits", RuleFacts::other_waits_ns),
    ];
    reasons.retain(|one| one.ns * change > 0.0 && one.ns.abs() >= LEAST_SHARE * change.abs());
    reasons.sort_by(|x, y| y.ns.abs().total_cmp(&x.ns.abs()));
    let texts: Vec<String> = reasons.into_iter().map(|one| one.text).collect();
    texts.join(", ")
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

    #[test]
    fn the_reason_is_what_changed_most() {
        let serial = facts(65.0, 65.0, 0.0, 0.0);
        assert_eq!(
            reasons(&serial, &facts(20.5, 66.0, 1.0, 0.0)),
            "1.0 → 3.3 at a time"
        );
        assert_eq!(
            reasons(&serial, &facts(130.0, 65.0, 65.0, 0.0)),
            "waits for a CPU 0 s → 1 min 05 s"
        );
        assert_eq!(
            reasons(&facts(10.0, 5.0, 0.0, 5.0), &facts(30.0, 15.0, 0.0, 15.0)),
            "CPU 5.0 s → 15.0 s, waits for storage 5.0 s → 15.0 s"
        );
        assert_eq!(reasons(&serial, &serial), "");
        assert_eq!(
            reasons(&RuleFacts::default(), &serial),
            "CPU 0 s → 1 min 05 s"
        );
    }
}
