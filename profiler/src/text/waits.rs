//! The waits of steps and what they waited for, for people.

use flowtrace_render::table::{Align, Table, more};
use flowtrace_render::units;

use crate::analysis::phrases::{percent, serial_line};
use crate::analysis::serial::Serial;
use crate::analysis::waits::{Kind, Root, Waits};
use crate::text::storage;
use crate::text::unseen::unseen;
use crate::timeline::Timeline;

/// Rows of a table; more are counted.
const SHOWN: usize = 10;

/// The answer in a line.
pub fn answer(waits: &Waits, serial: &[Serial], timeline: &Timeline) -> String {
    let length = timeline.length().max(1) as f64;
    if let Some(one) = serial.first()
        && waits
            .causes
            .first()
            .is_none_or(|cause| cause.ns < one.saving_ns as f64)
    {
        return serial_line(one);
    }
    let idle = waits.idle_ns();
    match waits
        .causes
        .first()
        .filter(|cause| cause.ns > 0.02 * length)
    {
        Some(cause) => {
            let reason = match (&cause.blocker, cause.root) {
                (Some(who), root @ Root::EachOther) => {
                    format!(" for {}: {}", units::plain(who), root.text())
                }
                (Some(between), Root::Network) => {
                    format!(" for the network, {}", units::plain(between))
                }
                (Some(who), root) => format!(" for {}, which {}", units::plain(who), root.text()),
                (None, Root::Outside) => " for something outside of the run".into(),
                (None, root) => format!(", {}", root.text()),
            };
            let waiters: Vec<String> = cause
                .waiters
                .iter()
                .take(3)
                .map(|(name, ns)| format!("{} {}", units::plain(name), units::duration(*ns as i64)))
                .collect();
            format!(
                "steps waited {}{reason}: {}",
                units::duration(cause.ns as i64),
                waiters.join(" · ")
            )
        }
        None if idle as f64 > 0.2 * length => format!(
            "nothing ran for {} of {}",
            units::duration(idle),
            units::duration(timeline.length())
        ),
        None => {
            let mut own = waits.waits.iter().filter(|wait| !wait.is_orchestrator);
            let longest = own.find(|wait| wait.blocker.is_none() && wait.ns > 0.02 * length);
            let longest = longest.map(|wait| {
                let waiter = units::plain(&wait.waiter);
                let time = units::duration(wait.ns as i64);
                format!(
                    "; the longest wait is that of {waiter}, {time}: {}",
                    wait.kind.name()
                )
            });
            "no step waited long for another".to_owned() + &longest.unwrap_or_default()
        }
    }
}

/// Threads that waited for each other, by program: how many were at work.
fn threads(waits: &Waits) -> String {
    let mut table = Table::new(&[
        ("threads of", Align::Left),
        ("processes", Align::Right),
        ("alive", Align::Right),
        ("at work", Align::Right),
        ("waiting", Align::Right),
        ("idle", Align::Right),
        ("for each other", Align::Right),
    ]);
    let shown: Vec<_> = waits
        .threads
        .iter()
        .filter(|one| one.waited_ns >= 1_000_000)
        .collect();
    for one in shown.iter().take(SHOWN) {
        table.row(vec![
            units::shorten(&units::plain(&one.name), 32),
            units::count(one.processes as i64),
            format!("{:.1}", one.alive),
            format!("{:.1}", one.at_work),
            format!("{:.1}", one.waiting),
            format!("{:.1}", one.idle),
            units::duration(one.waited_ns),
        ]);
    }
    match table.is_empty() {
        true => String::new(),
        false => format!("{}{}\n", table.finish("  "), more(shown.len(), SHOWN)),
    }
}

/// The whole answer as text, ended by a newline.
pub fn text(waits: &Waits, serial: &[Serial], timeline: &Timeline, trace: &str) -> String {
    let mut out = format!("flowtrace: {}\n\n", answer(waits, serial, timeline));
    let length = timeline.length().max(1) as f64;
    let mut table = Table::new(&[
        ("waits", Align::Left),
        ("for", Align::Left),
        ("kind", Align::Left),
        ("time", Align::Right),
        ("processes", Align::Right),
    ]);
    // The waits of a shell for its children are the run itself.
    let steps: Vec<_> = waits
        .waits
        .iter()
        .filter(|wait| !wait.is_orchestrator && wait.ns >= 1e6)
        .collect();
    for wait in steps.iter().take(SHOWN) {
        let kind = match &wait.channel {
            Some(channel) => format!("{} ({channel})", wait.kind.name()),
            None => wait.kind.name().into(),
        };
        let nobody = match wait.kind {
            Kind::LateReader | Kind::LateWriter | Kind::Child => "?",
            _ => "",
        };
        table.row(vec![
            units::shorten(&units::plain(&wait.waiter), 32),
            units::shorten(&units::plain(wait.blocker.as_deref().unwrap_or(nobody)), 32),
            kind,
            units::duration(wait.ns as i64),
            units::count(wait.processes as i64),
        ]);
    }
    if !table.is_empty() {
        out += &table.finish("  ");
        out += &more(steps.len(), SHOWN);
        out.push('\n');
    }
    let mut table = Table::new(&[
        ("root cause", Align::Left),
        ("it", Align::Left),
        ("time", Align::Right),
        ("waiting for it", Align::Left),
    ]);
    let causes: Vec<_> = waits
        .causes
        .iter()
        .filter(|cause| cause.ns >= 1e6)
        .collect();
    for cause in causes.iter().take(SHOWN) {
        let waiters: Vec<String> = cause
            .waiters
            .iter()
            .take(3)
            .map(|(name, _)| units::shorten(&units::plain(name), 24))
            .collect();
        table.row(vec![
            units::shorten(&units::plain(cause.blocker.as_deref().unwrap_or("?")), 32),
            cause.root.text().into(),
            units::duration(cause.ns as i64),
            waiters.join(", "),
        ]);
    }
    if !table.is_empty() {
        out += &table.finish("  ");
        out += &more(causes.len(), SHOWN);
        out.push('\n');
    }
    out += &threads(waits);
    out += &storage::table(&timeline.storage, SHOWN);
    for one in serial.iter().take(5) {
        out += &format!(
            "  serial       {} ({:.1}–{:.1} s, {} of them depend on each other, {:.0} cores)\n",
            serial_line(one),
            one.from as f64 / 1e9,
            one.to as f64 / 1e9,
            units::counted(one.dependencies as i64, "pair", "pairs"),
            one.cores
        );
    }
    let idle = waits.idle_ns();
    let longest = waits.idle.iter().max_by_key(|(from, to)| to - from);
    out += &format!(
        "  nothing ran  {} of the run",
        percent(idle as f64 / length)
    );
    if let Some(&(from, to)) = longest {
        out += &format!(
            ", {} in {}; the longest {} at {}",
            units::duration(idle),
            units::counted(waits.idle.len() as i64, "stretch", "stretches"),
            units::duration(to - from),
            units::since_begin(from, timeline.begins_ns)
        );
    }
    out += &format!("\n  next: flowtrace bottlenecks {trace}\n");
    if !timeline.is_sampled() {
        out += "  no samples: what steps waited for is not known\n";
    }
    out += unseen(timeline);
    out
}
