//! Iteration rate, spectrum and period.

use super::{called, cell, name, page};
use crate::network::calls;
use crate::network::page::{self, Cell, Page};
use crate::network::run::{Mode, Run};
use crate::text::units;

/// `network iterations`: the rate of round trips by pair.
pub fn iterations(run: &Run) -> Page {
    page(run, calls::rir_rate(run, None), |known| {
        let columns = [
            "src",
            "dst",
            "rate_per_s",
            "iterations",
            "threshold_ns",
            "at_1_rtt",
            "at_4_rtt",
            "counted",
        ];
        let mut page = Page::new(run, &columns);
        let rates = &known.value;
        page.lines.push(format!(
            "{} iterations per second (median of the pairs), one every {}",
            page::number(rates.rate),
            page::seconds(1.0 / rates.rate)
        ));
        let mut shaky = 0;
        for pair in &rates.pairs {
            let differs = |(once, four): (usize, usize)| {
                once.abs_diff(four) * 100 > 4 * once.max(four).max(25)
            };
            shaky += u64::from(!pair.is_by_messages && pair.sensitivity.is_some_and(differs));
            page.rows.push(vec![
                name(run, pair.src),
                name(run, pair.dst),
                cell(pair.rate, Cell::PerSecond),
                Cell::Count(pair.events as u64),
                Cell::Moment(pair.threshold_ns),
                cell(pair.sensitivity, |s| Cell::Count(s.0 as u64)),
                cell(pair.sensitivity, |s| Cell::Count(s.1 as u64)),
                Cell::Text(
                    if pair.is_by_messages {
                        "messages"
                    } else {
                        "round trips"
                    }
                    .into(),
                ),
            ]);
        }
        if shaky > 0 {
            page.notes.push(format!(
                "the count of {} hangs on the gap that is taken for an iteration (columns at 1 and 4 round trips)",
                units::counted(shaky as i64, "pair", "pairs")
            ));
        }
        page
    })
}

/// `network stationary`: mean rate over the time that is representative.
pub fn stationary(run: &Run) -> Page {
    page(run, calls::stationary_rir_avg(run), |known| {
        let (rate, seconds) = known.value;
        let mut page = Page::new(run, &["rate_per_s", "representative_s"]);
        page.lines.push(format!(
            "{} iterations per second, all pairs together, over {}, which hold all but {} % of the swings",
            page::number(rate),
            page::seconds(seconds),
            run.settings.cutoff_percent
        ));
        page.rows
            .push(vec![Cell::PerSecond(rate), Cell::Seconds(seconds)]);
        page
    })
}

/// `network cdf`: the distribution of the rate.
pub fn cdf(run: &Run) -> Page {
    page(run, calls::rir_cdf(run), |known| {
        let mut page = Page::new(run, &["percent", "rate_per_s"]);
        let found = &known.value;
        page.lines.push(format!(
            "median {} per second, from 5 to 95 % a spread of {}",
            page::number(found.median),
            page::number(found.spread)
        ));
        for (i, value) in found.percentiles.iter().enumerate() {
            page.rows
                .push(vec![Cell::Count(i as u64 + 1), Cell::PerSecond(*value)]);
        }
        page
    })
}

/// `network spectrum`: power by frequency.
pub fn spectrum(run: &Run) -> Page {
    page(run, calls::power_spectrum(run, None), |known| {
        let mut page = Page::new(run, &["frequency_hz", "power", "background"]);
        let found = &known.value;
        page.lines.push(match found.p_value {
            Some(p) if p < 0.01 => {
                format!("periodic: the highest peak would come by chance with probability {p:.1e}")
            }
            Some(p) => {
                format!("no period found: a peak this high comes by chance with probability {p:.2}")
            }
            None => {
                "the spectrum of the thesis' sliding series: it has peaks in noise as well".into()
            }
        });
        if let Some(edge) = found.edge_hz {
            page.lines.push(format!(
                "95 % of the power lie below {} Hz: sample at {} Hz at least{}",
                page::number(edge),
                page::number(2.0 * edge),
                if found.sample_hz >= 10.0 * edge {
                    ""
                } else {
                    "; this series is sampled less than ten times that edge"
                }
            ));
        }
        for k in 1..found.spectrum.power.len() {
            page.rows.push(vec![
                Cell::Hertz(found.spectrum.hz(k)),
                Cell::Number(found.spectrum.power[k]),
                cell(found.background.get(k).copied(), Cell::Number),
            ]);
        }
        page
    })
}

/// `network peaks`: local maxima of the spectrum.
pub fn peaks(run: &Run) -> Page {
    page(run, calls::power_spectrum_peaks(run), |known| {
        let mut page = Page::new(
            run,
            &["rank", "frequency_hz", "period_s", "power", "p_value"],
        );
        const SHOWN: usize = 50;
        for peak in known.value.iter().take(SHOWN) {
            page.rows.push(vec![
                Cell::Count(peak.rank as u64),
                Cell::Hertz(peak.hz),
                Cell::Seconds(1.0 / peak.hz),
                Cell::Number(peak.power),
                cell(peak.p_value, Cell::Number),
            ]);
        }
        let more = known.value.len().saturating_sub(SHOWN);
        if more > 0 {
            page.notes.push(format!("{more} weaker peaks are left out"));
        }
        page.lines.push(match known.value.first() {
            Some(peak) => format!("the strongest peak is at {} Hz", page::number(peak.hz)),
            None => "the spectrum has no local maximum".into(),
        });
        page
    })
}

/// `network period`: how the program repeats itself.
pub fn period(run: &Run) -> Page {
    page(run, calls::super_phase(run), |known| {
        let mut page = Page::new(
            run,
            &["src", "dst", "period_s", "iterations", "bytes", "score"],
        );
        let found = &known.value;
        if let Some(period) = found.seconds {
            let interval = found.range_s.map_or(String::new(), |(low, high)| {
                format!(" ({})", page::range(low, high))
            });
            let count = found
                .count
                .map_or(String::new(), |n| format!(", {} times", page::number(n)));
            page.lines
                .push(format!("period {}{interval}{count}", page::seconds(period)));
        }
        page.lines.push(found.verdict.clone());
        if !found.alternatives_s.is_empty() {
            let shown: Vec<String> = found
                .alternatives_s
                .iter()
                .map(|s| page::seconds(*s))
                .collect();
            page.lines.push(match found.seconds {
                Some(_) => format!("the spectrum also allows {}", shown.join(", ")),
                None => format!("not confirmed, from the spectrum: {}", shown.join(", ")),
            });
        }
        if let Some(p) = found.p_value {
            page.notes.push(format!(
                "a peak as high as the spectrum's comes by chance with probability {p:.1e}"
            ));
        }
        if found.method != "thesis" && found.method == "spectrum" && found.seconds.is_some() {
            page.notes.push(format!("half, double and a third of a spectral period explain nearly as much; frequencies closer than {} Hz cannot be told apart", page::number(found.resolution_hz)));
        }
        if run.settings.mode == Mode::Thesis {
            page.notes.push("the lowest peak of a sliding series is found in noise as well; see the default mode".into());
        }
        if let Some(iterations) = &found.iterations {
            for pair in &iterations.pairs {
                let times = &pair.times_ns;
                let count = times.len() - 1;
                let whole = (times[count] - times[0]) as f64 / 1e9;
                page.rows.push(vec![
                    name(run, pair.src),
                    name(run, pair.dst),
                    Cell::Seconds(whole / count as f64),
                    Cell::Count(count as u64),
                    Cell::Bytes(pair.bytes as f64),
                    Cell::Share(pair.score),
                ]);
            }
            let longest = iterations.lengths_s.iter().copied().fold(0.0, f64::max);
            let shortest = iterations
                .lengths_s
                .iter()
                .copied()
                .fold(f64::INFINITY, f64::min);
            page.lines.push(format!(
                "single iterations took {}",
                page::range(shortest, longest)
            ));
            if let Some(first) = iterations.pairs.first() {
                page.notes.push(format!(
                    "bytes: what {} sends in one iteration to one partner",
                    called(run, first.src)
                ));
            }
        }
        page
    })
}

/// `network components`: pairs whose spectra have the same form.
pub fn components(run: &Run, threshold: f64) -> Page {
    let found = match crate::network::components::components(run, threshold) {
        Ok(found) => found,
        Err(unknown) => return Page::unknown(run, &unknown),
    };
    let mut page = Page::new(run, &["component", "src", "dst"]);
    page.lines.push(units::counted(
        found.len() as i64,
        "component",
        "components",
    ));
    for (number, component) in found.iter().enumerate() {
        for &(src, dst) in component {
            page.rows.push(vec![
                Cell::Count(number as u64 + 1),
                name(run, src),
                name(run, dst),
            ]);
        }
    }
    page
}
