//! Runs every analysis on a trace that others wrote, which must give a result or an error. `fuzz/` calls this
//! with traces and captures that it damages; the tests here damage traces by a seed.

use std::io::sink;
use std::path::Path;

use flowtrace_network::load::Selection;
use flowtrace_network::pages;
use flowtrace_schema::{Result, Trace};

use crate::analysis::bottlenecks::{self, Options};
use crate::analysis::critical_path::CriticalPath;
use crate::analysis::degrees::advice;
use crate::analysis::findings;
use crate::analysis::ideal::{self, Capacities};
use crate::analysis::resources::{Capacity, resources};
use crate::analysis::serial::serial;
use crate::analysis::statistics::calls::load_and_gather;
use crate::analysis::waits::waits;
use crate::load::{load, load_activity};
use crate::report::{self, Limits};
use crate::text::summary::{self, Style};
use crate::text::{self, tree};
use crate::{generate, graph, timeline};

/// Reads the trace at `path` and asks everything about it.
pub fn analyses(path: &Path) {
    // A part that cannot be read is reported, and the rest is answered all the same.
    let parts = [processes, packets, calls, specification];
    let Ok(trace) = Trace::open(path) else { return };
    for part in parts {
        let _ = part(&trace);
    }
}

fn processes(trace: &Trace) -> Result<()> {
    let workflow = load(trace)?;
    let dag = graph::build(&workflow);
    let timeline = timeline::read(trace, &workflow)?;
    let path = CriticalPath::of(&workflow, &load_activity(trace, &workflow)?);
    let verdict = findings::verdict(&workflow, &dag, &timeline, &path);
    let style = Style {
        width: 100,
        is_coloured: false,
    };
    summary::with_verdict(&workflow, trace.path(), style, &verdict);
    for is_full in [false, true] {
        let width = 100;
        tree::text(&workflow, tree::Style { width, is_full });
        let data_ns = path.by_data_alone_ns(&workflow, &graph::lineage(&workflow));
        let facts = text::critical_path::facts(&workflow, &path, data_ns, &[]);
        let style = text::critical_path::Style { width, is_full };
        text::critical_path::text(&workflow, &facts, style);
    }
    let names = bottlenecks::by_rule(&workflow);
    let options = Options::default();
    let found = bottlenecks::analyse(&workflow, &dag, &timeline, &names, true, options);
    text::bottlenecks::text(&found, &timeline, None, ("t.db", 100));
    let advice = advice(&workflow, &found, &timeline, Some(4));
    advice.map(|advice| text::bottlenecks::advice(&advice));
    let waits = waits(&workflow, &timeline);
    let stretches = serial(&workflow, &timeline, &path);
    text::waits::text(&waits, &stretches, &timeline, "t.db");
    let found = resources(
        &workflow,
        &timeline,
        &trace.sequences()?,
        Capacity::default(),
    );
    text::resources::text(&found, &timeline);
    let capacities = Capacities {
        disk_read: 1e8,
        disk_write: 1e8,
        network: None,
        memory: None,
    };
    let phases = ideal::phases(&timeline, &[]);
    let skews = ideal::receive_skew(trace, &phases)?;
    let found = ideal::ideal(&workflow, &timeline, &capacities, &phases, &skews);
    found.map(|found| text::ideal::text(&found, &capacities, timeline.begins_ns));
    let report = report::gather(&workflow, trace, Limits::default())?;
    report.write_html(&mut sink())?;
    Ok(())
}

fn packets(trace: &Trace) -> Result<()> {
    if let Ok(run) = crate::packets::load(trace, &Selection::default())? {
        let pages = [
            pages::overview,
            pages::matrix,
            pages::topology,
            pages::changes,
            pages::iterations,
            pages::stationary,
            pages::cdf,
            pages::peaks,
            pages::period,
            pages::court,
            pages::records,
            pages::balance,
            pages::bias,
            pages::application,
            pages::messages,
            pages::decomposition,
            pages::component,
            pages::slowdown,
            pages::pop,
            pages::critical_path,
            pages::state,
        ];
        for page in pages {
            page(&run).text(true);
        }
        pages::series(&run, true).text(true);
        pages::spectrum(&run, true).text(true);
        pages::predict(&run, &run).text(true);
    }
    Ok(())
}

fn calls(trace: &Trace) -> Result<()> {
    load_and_gather(trace, 100).map(|_| ())
}

fn specification(trace: &Trace) -> Result<()> {
    if let Ok(plan) = generate::plan(trace, generate::Options::default())? {
        generate::make::text(&plan);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::montage::montage_file;
    use crate::spoil;

    /// In a build without optimisation, with its checks of arithmetic.
    #[test]
    fn analyses_of_damaged_traces_end_with_an_answer() {
        let (directory, path) = montage_file(2, false);
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
        drop(db);
        let whole = std::fs::read(&path).unwrap();
        let damaged = directory.path().join("damaged.db");
        let count = std::env::var("FLOWTRACE_DAMAGED_TRACES").map_or(60, |n| n.parse().unwrap());
        let fails = |seed: &u64| {
            std::fs::write(&damaged, &whole).unwrap();
            spoil::trace(&damaged, &mut spoil::seeded(*seed));
            std::panic::catch_unwind(|| analyses(&damaged)).is_err()
        };
        // The last ones give sums of bytes beyond 64 bits.
        let seeds = (1..=count).chain([141, 311, 575]);
        let failed: Vec<u64> = seeds.filter(fails).collect();
        assert!(failed.is_empty(), "seeds {failed:?}");
        analyses(&path);
    }

    /// The greatest time that is read, and the least result: what is compared with them is no overflow.
    #[test]
    fn numbers_at_the_bounds_are_survived() {
        let (_directory, path) = montage_file(2, false);
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch(
            "UPDATE process SET end_ns = 1 << 58, user_ns = 1 << 57;
             UPDATE call SET result = -9223372036854775808 WHERE rowid % 2;",
        )
        .unwrap();
        drop(db);
        analyses(&path);
    }
}
