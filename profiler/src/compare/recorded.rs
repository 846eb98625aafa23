//! Differences in how runs were recorded.

use crate::compare::{BTreeMap, RunFacts};
/// One warning for each difference in how the runs were recorded.
pub(super) fn differences(runs: &[&RunFacts]) -> Vec<String> {
    const SHOWN: usize = 2;
    let mut values: BTreeMap<(usize, &str), BTreeMap<String, Vec<&str>>> = BTreeMap::new();
    for run in runs {
        let aspects = run.recording.aspects(run.is_replay).into_iter();
        for (place, (aspect, value)) in aspects.enumerate() {
            if let Some(value) = value {
                let of_aspect = values.entry((place, aspect)).or_default();
                of_aspect.entry(value).or_default().push(&run.trace);
            }
        }
    }
    let differ = values.into_iter().filter(|(_, values)| values.len() > 1);
    let warning = |((_, aspect), values): ((usize, &str), BTreeMap<String, Vec<&str>>)| {
        let side = |(value, traces): (&String, &Vec<&str>)| {
            let more = traces.len().saturating_sub(SHOWN);
            let more = match more {
                0 => String::new(),
                more => format!(" +{more} more"),
            };
            let shown = traces.iter().take(SHOWN).copied().collect::<Vec<_>>();
            format!("{value} in {}{more}", shown.join(", "))
        };
        let sides: Vec<String> = values.iter().map(side).collect();
        format!(
            "recorded in different ways, so that differences may come from that: {aspect}: {}",
            sides.join("; ")
        )
    };
    differ.map(warning).collect()
}
