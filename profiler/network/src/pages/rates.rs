//! Iteration rate, spectrum and period.

use super::{called, cell, name, page};
use crate::calls::{self, SuperPhase};
use crate::page::{Cell, Page, Rows};
use crate::periods::{Basis, Component, Period};
use crate::run::{Mode, Run};
use crate::spectrum::Spectrum;
use crate::wording;
use flowtrace_render::{blocks, units};

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
            wording::number(rates.rate),
            wording::seconds(1.0 / rates.rate)
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
                Cell::Instant(pair.threshold_ns),
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
                "the count of {} depends on the gap that is taken for an iteration (columns at 1 and 4 round trips)",
                units::counted(shaky as i64, "pair", "pairs")
            ));
        }
        page
    })
}

/// `network stationary`: the mean rate over the representative time.
pub fn stationary(run: &Run) -> Page {
    page(run, calls::stationary_rir_avg(run), |known| {
        let (rate, seconds) = known.value;
        let mut page = Page::new(run, &["rate_per_s", "representative_s"]);
        page.lines.push(format!(
            "{} iterations per second, all pairs together, over {}, which hold all but {} % of the swings",
            wording::number(rate),
            wording::seconds(seconds),
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
            wording::number(found.median),
            wording::number(found.spread)
        ));
        for (i, value) in found.percentiles.iter().enumerate() {
            page.rows
                .push(vec![Cell::Count(i as u64 + 1), Cell::PerSecond(*value)]);
        }
        page
    })
}

/// `network spectrum`: power by frequency, of the whole interval or of its representative part.
pub fn spectrum(run: &Run, is_representative: bool) -> Page {
    let answer = match is_representative {
        true => calls::power_spectrum_avg(run),
        false => calls::power_spectrum(run, None),
    };
    page(run, answer, |known| {
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
                wording::number(edge),
                wording::number(2.0 * edge),
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
        if let Ok(known) = calls::power_spectrum_peaks(run) {
            let picture = picture(&found.spectrum);
            page.for_people = Some((picture, peak_rows(&known.value, PEAKS)));
        }
        page
    })
}

/// Number of peaks that are shown with the picture of a spectrum.
const PEAKS: usize = 10;

/// The picture of a spectrum for people: power in decibels below the highest, over the logarithm of the
/// frequency.
fn picture(spectrum: &Spectrum) -> String {
    const WIDTH: usize = 72;
    const HEIGHT: usize = 8;
    const FLOOR_DB: f64 = -40.0;
    let bins = spectrum.power.len();
    let highest = spectrum.power.iter().skip(1).copied().fold(0.0, f64::max);
    if bins < 3 || highest <= 0.0 {
        return String::new();
    }
    // Each column has the highest power from its frequency to that of the next.
    let last = (bins - 1) as f64;
    let bin = |column: usize| (last.powf(column as f64 / WIDTH as f64).round() as usize).max(1);
    let columns: Vec<f64> = (0..WIDTH)
        .map(|column| {
            let from = bin(column);
            let to = bin(column + 1).max(from + 1).min(bins);
            let power = spectrum.power[from..to].iter().copied().fold(0.0, f64::max);
            1.0 - 10.0 * (power / highest).log10() / FLOOR_DB
        })
        .collect();
    let rows = blocks::rows(&columns, HEIGHT);
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        let label = match i {
            0 => "0 dB".into(),
            i if i == HEIGHT / 2 => format!("{} dB", FLOOR_DB / 2.0),
            _ => String::new(),
        };
        text += format!("{label:>8} ┤{row}").trim_end();
        text.push('\n');
    }
    let (low, high) = (spectrum.hz(1), spectrum.hz(bins - 1));
    let [low, middle, high] =
        [low, (low * high).sqrt(), high].map(|hz| format!("{} Hz", wording::number(hz)));
    text += &format!("{FLOOR_DB:>5} dB └{}\n", "─".repeat(WIDTH));
    let third = WIDTH / 3;
    text += &format!("{:10}{low:<third$}{middle:^third$}{high:>third$}\n\n", "");
    text
}

/// The strongest peaks, a row each.
fn peak_rows(peaks: &[calls::PeakRow], most: usize) -> Rows {
    let row = |peak: &calls::PeakRow| {
        vec![
            Cell::Count(peak.rank as u64),
            Cell::Hertz(peak.hz),
            Cell::Seconds(1.0 / peak.hz),
            Cell::Number(peak.power),
            cell(peak.p_value, Cell::Number),
        ]
    };
    Rows {
        columns: vec!["rank", "frequency_hz", "period_s", "power", "p_value"],
        rows: peaks.iter().take(most).map(row).collect(),
    }
}

/// `network peaks`: local maxima of the spectrum.
pub fn peaks(run: &Run) -> Page {
    page(run, calls::power_spectrum_peaks(run), |known| {
        const SHOWN: usize = 50;
        let shown = peak_rows(&known.value, SHOWN);
        let mut page = Page::new(run, &shown.columns);
        page.rows = shown.rows;
        let more = known.value.len().saturating_sub(SHOWN);
        if more > 0 {
            page.notes.push(format!("{more} weaker peaks are left out"));
        }
        page.lines.push(match known.value.first() {
            Some(peak) => format!("the strongest peak is at {} Hz", wording::number(peak.hz)),
            None => "the spectrum has no local maximum".into(),
        });
        page
    })
}

/// `network period`: the repetition of the program.
pub fn period(run: &Run) -> Page {
    page(run, calls::super_phase(run), |known| {
        let found = &known.value;
        match run.settings.mode {
            Mode::Thesis => thesis_period(run, found),
            Mode::Default => periods(run, found),
        }
    })
}

/// A period in one line, with the values that all kinds have.
fn in_a_line(seconds: f64, range_s: Option<(f64, f64)>, count: Option<f64>) -> String {
    let interval = range_s.map_or(String::new(), |(low, high)| {
        format!(" ({})", wording::range(low, high))
    });
    let count = count.map_or(String::new(), |n| format!(", {} times", wording::number(n)));
    format!("period {}{interval}{count}", wording::seconds(seconds))
}

fn listed(seconds: &[f64]) -> String {
    let shown: Vec<String> = seconds.iter().map(|s| wording::seconds(*s)).collect();
    shown.join(", ")
}

fn thesis_period(run: &Run, found: &SuperPhase) -> Page {
    let mut page = Page::new(run, &["period_s"]);
    if let Some(seconds) = found.seconds {
        page.lines
            .push(in_a_line(seconds, found.range_s, found.count));
        page.rows.push(vec![Cell::Seconds(seconds)]);
    }
    page.lines.push(found.verdict.clone());
    page.lines.push(format!(
        "the spectrum also allows {}",
        listed(&found.alternatives_s)
    ));
    page.notes.push(
        "the lowest peak of a sliding series is found in noise as well; see the default mode"
            .into(),
    );
    page
}

/// Every period of every component, each with its line and row, followed by the pairs that show it.
fn periods(run: &Run, found: &SuperPhase) -> Page {
    let columns = [
        "component",
        "src",
        "dst",
        "period_s",
        "iterations",
        "found_by",
        "low_s",
        "high_s",
        "p_value",
        "autocorrelation",
        "resolution_hz",
        "bytes",
        "score",
    ];
    let mut page = Page::new(run, &columns);
    let is_one = found.components.len() == 1;
    for (i, component) in found.components.iter().enumerate() {
        let of = match is_one {
            true => String::new(),
            false => format!(" · component {} ({})", i + 1, members(run, component)),
        };
        for period in &component.periods {
            let line = in_a_line(period.seconds, Some(period.range_s), Some(period.count));
            let says = match period.basis {
                Basis::Messages => "the same messages come again",
                Basis::Inner => "a loop within these, of the same messages",
                Basis::Order => "the order of sends comes again",
                Basis::Rate => "the rate of iterations swings",
            };
            page.lines
                .push(format!("{line}: {says}{}{of}", evidence(period)));
            page.rows
                .push(row(i, ["all"; 2].map(|all| Cell::Text(all.into())), period));
        }
        if component.periods.is_empty() && !is_one {
            page.lines.push(format!("no period found{of}"));
        }
        if !component.alternatives_s.is_empty() {
            let shown = listed(&component.alternatives_s);
            page.lines.push(match component.periods.is_empty() {
                false => format!("the spectrum also allows {shown}{of}"),
                true => format!("not confirmed, from the spectrum: {shown}{of}"),
            });
        }
        let Some(iterations) = &component.iterations else {
            continue;
        };
        let lengths = iterations.lengths_s.iter().copied();
        let (shortest, longest) = (
            lengths.clone().fold(f64::INFINITY, f64::min),
            lengths.fold(0.0, f64::max),
        );
        page.lines.push(format!(
            "single iterations took {}{of}",
            wording::range(shortest, longest)
        ));
        for pair in &iterations.pairs {
            let times = &pair.times_ns;
            let count = times.len() - 1;
            let whole = (times[count] - times[0]) as f64 / 1e9;
            page.rows.push(vec![
                Cell::Count(i as u64 + 1),
                name(run, pair.src),
                name(run, pair.dst),
                Cell::Seconds(whole / count as f64),
                Cell::Count(count as u64),
                Cell::Text(
                    if iterations.is_by_order {
                        Basis::Order
                    } else {
                        Basis::Messages
                    }
                    .name()
                    .into(),
                ),
                Cell::Unknown,
                Cell::Unknown,
                cell(pair.p_value, Cell::Number),
                Cell::Unknown,
                Cell::Unknown,
                Cell::Bytes(pair.bytes as f64),
                Cell::Share(pair.score),
            ]);
        }
    }
    let none = found.seconds.is_none();
    if none {
        page.lines.insert(0, found.verdict.clone());
    }
    if let (true, Some(p)) = (none || found.method == "spectrum", found.p_value) {
        page.notes.push(format!(
            "a peak as high as the spectrum's comes by chance with probability {p:.1e}"
        ));
    }
    let periods = || {
        found
            .components
            .iter()
            .flat_map(|component| &component.periods)
    };
    if periods().any(|period| period.basis == Basis::Rate) {
        page.notes.push(
            "half, double and a third of a period of the rate explain nearly as much; frequencies closer than \
             resolution_hz cannot be distinguished"
                .into(),
        );
    }
    if found
        .components
        .iter()
        .any(|component| component.iterations.is_some())
    {
        page.notes.push(
            "bytes: what a pair's sender sends it in one iteration, by the order of sends to all of them".into(),
        );
    }
    page
}

fn row(component: usize, [src, dst]: [Cell; 2], period: &Period) -> Vec<Cell> {
    vec![
        Cell::Count(component as u64 + 1),
        src,
        dst,
        Cell::Seconds(period.seconds),
        Cell::Count(period.count.round() as u64),
        Cell::Text(period.basis.name().into()),
        Cell::Seconds(period.range_s.0),
        Cell::Seconds(period.range_s.1),
        cell(period.p_value, Cell::Number),
        cell(period.autocorrelation, Cell::Number),
        Cell::Hertz(period.resolution_hz),
        Cell::Unknown,
        Cell::Unknown,
    ]
}

/// Basis of a period, in words.
fn evidence(period: &Period) -> String {
    let p = period.p_value.map(|p| match p < 1e-99 {
        true => "by chance below 1e-99".into(),
        false => format!("by chance {p:.0e}"),
    });
    let r = period
        .autocorrelation
        .map(|r| format!("autocorrelation {r:.2}"));
    let resolution = (period.basis == Basis::Rate)
        .then(|| format!("resolution {} Hz", wording::number(period.resolution_hz)));
    let all: Vec<String> = [p, r, resolution].into_iter().flatten().collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(" ({})", all.join(", ")),
    }
}

/// The processes of a component.
fn members(run: &Run, component: &Component) -> String {
    let mut all: Vec<u16> = component.pairs.iter().map(|pair| pair.0).collect();
    all.sort_unstable();
    all.dedup();
    let names: Vec<String> = all
        .into_iter()
        .map(|node| called(run, node).to_string())
        .collect();
    wording::listed(&names, ", ")
}

/// `network components`: pairs whose spectra have the same form.
pub fn components(run: &Run, threshold: f64) -> Page {
    let found = match crate::components::components(run, threshold) {
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
