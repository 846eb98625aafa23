//! A run on the terminal while it goes on: the same content as the page.

use std::io::IsTerminal;
use std::time::Duration;

use flowtrace_profiler::live::{Budget, Follower, Limiting, Picture, RunningRow, Search, State};
use flowtrace_render::units;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table};

use crate::failure::Failure;

mod nodes;

/// Shortest time between two drawings.
const EVERY: Duration = Duration::from_millis(500);
/// Shortest time between two searches for the limit.
const SEARCH: Duration = Duration::from_secs(2);
/// Points of the small charts.
const POINTS: usize = 30;

/// Shows the run until it has ended or a key ends it.
pub(super) fn show(mut follower: Follower) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() {
        return Err(Failure::usage("live --text needs a terminal")
            .hint("flowtrace live without --text serves a page"));
    }
    let mut terminal = ratatui::try_init()
        .map_err(|error| Failure::usage(format!("the terminal cannot be taken: {error}")))?;
    let shown = follow(&mut follower, |picture, limiting| {
        // The next drawing may succeed.
        let _ = terminal.draw(|frame| draw(frame, picture, limiting));
    });
    ratatui::restore();
    if let Some(words) = shown? {
        message!("flowtrace: {words}");
    }
    Ok(())
}

/// Follows the run; returns how it ended, or `None` if a key ended this.
fn follow(
    follower: &mut Follower,
    mut show: impl FnMut(&Picture, &Limiting),
) -> Result<Option<&'static str>, Failure> {
    let budget = Budget::default();
    let mut search = Search::new(Duration::ZERO, SEARCH);
    loop {
        let is_live = follower.is_being_recorded();
        let is_all = follower.advance()?;
        let limiting = search.limiting(follower)?;
        let picture = follower.picture(limiting)?;
        show(&picture, limiting);
        if is_all && !is_live && picture.head.state == State::Ended {
            return Ok(Some(
                "the run has ended: flowtrace summary and report explain it",
            ));
        }
        follower.rest()?;
        let pause = budget.pause(if is_all { EVERY } else { Duration::ZERO });
        if event::poll(pause).unwrap_or(false)
            && let Ok(Event::Key(key)) = event::read()
            && key.kind == KeyEventKind::Press
        {
            let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(None),
                KeyCode::Char('c') if is_interrupt => return Ok(None),
                _ => {}
            }
        }
    }
}

fn draw(frame: &mut Frame<'_>, picture: &Picture, limiting: &Limiting) {
    let height = frame.area().height;
    if !picture.head.sees_processes && !picture.nodes.rows.is_empty() {
        let parts = [
            Constraint::Length(2),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [above, body, keys] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(Paragraph::new(head(picture, limiting)), above);
        nodes::draw(frame, &picture.nodes, body);
        frame.render_widget(Line::from("q end").style(dim()), keys);
        return;
    }
    let failures = match picture.failures.rows.len() {
        0 => 0,
        rows => 1 + rows.min(3) as u16,
    };
    let managers = picture.managers.len().min(2) as u16;
    let running = (picture.running.rows.len() as u16 + 1)
        .min(height / 3)
        .max(3);
    let steps = (picture.steps.rows.len() as u16 + 1).min(height / 4).max(3);
    let parts = [3, managers, failures, running, steps].map(Constraint::Length);
    let parts: Vec<Constraint> = parts
        .into_iter()
        .chain([Constraint::Min(0), Constraint::Length(1)])
        .collect();
    let areas = Layout::vertical(parts).split(frame.area());
    frame.render_widget(Paragraph::new(head(picture, limiting)), areas[0]);
    let lines: Vec<Line<'_>> = picture.managers.iter().take(2).map(manager).collect();
    frame.render_widget(Paragraph::new(lines), areas[1]);
    draw_failures(frame, picture, areas[2]);
    draw_running(frame, picture, areas[3]);
    draw_steps(frame, picture, limiting, areas[4]);
    draw_files(frame, picture, areas[5]);
    let keys = Line::from("q end").style(dim());
    frame.render_widget(keys, areas[6]);
}

fn dim() -> Style {
    Style::new().fg(Color::DarkGray)
}

fn red() -> Style {
    Style::new().fg(Color::Red)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn head(picture: &Picture, limiting: &Limiting) -> Vec<Line<'static>> {
    let head = &picture.head;
    let (state, style) = match head.state {
        State::Recording => ("recording", Style::new().fg(Color::Green)),
        State::Ended => ("the run has ended", Style::new()),
        State::Killed => (
            head.unrecorded.as_deref().unwrap_or(
                "the recording was cut short: its recorder has ended without closing the trace",
            ),
            red(),
        ),
    };
    let machine = &picture.machine;
    let last = |values: &[Option<f64>]| values.last().copied().flatten();
    let share = |share: Option<f64>| share.map_or_else(|| "?".into(), units::share);
    let bytes = |values: &[i64]| units::bytes(values.last().copied().unwrap_or(0));
    let lost: Vec<String> = head
        .losses
        .iter()
        .filter(|loss| loss.is_of_data)
        .map(|loss| format!("{} {}", loss.counter, loss.value))
        .collect();
    let lost = match lost.is_empty() {
        true => "lost nothing".to_owned(),
        false => format!("lost: {}", lost.join(", ")),
    };
    let name = match head.command.as_str() {
        "" => String::new(),
        command => format!("{command} · "),
    };
    let processes = match head.sees_processes {
        true => format!(
            " · {} running, {} ended, {} failed",
            head.running, head.ended, head.failed
        ),
        false => String::new(),
    };
    let first = format!(
        "{name}{}{processes} · {lost}",
        units::duration(head.now_ns - head.begins_ns),
    );
    let second = format!(
        "CPUs {} {} · disk {} {} · storage {}/s in, {}/s out · network {}/s in, {}/s out · files {}/s read, {}/s written",
        chart(&machine.cpu),
        share(last(&machine.cpu)),
        chart(&machine.disk_busy),
        share(last(&machine.disk_busy)),
        bytes(&machine.disk_read),
        bytes(&machine.disk_write),
        bytes(&machine.net_in),
        bytes(&machine.net_out),
        units::bytes(head.read_rate),
        units::bytes(head.write_rate)
    );
    let limit = match &limiting.name {
        Some(name) => Line::from(format!(
            "limits it now: {name}, {} of the last seconds",
            units::share(limiting.share)
        ))
        .style(bold()),
        None => Line::from("limits it now: nothing known").style(dim()),
    };
    let first = Line::from(vec![
        ratatui::text::Span::styled(format!("{state} "), style),
        ratatui::text::Span::raw(first),
    ]);
    vec![first, Line::from(second), limit]
}

fn manager(row: &flowtrace_profiler::live::ManagerRow) -> Line<'static> {
    let of = row
        .total
        .map_or_else(String::new, |total| format!(" of {total}"));
    let left = match (row.left_ns, row.error_ns) {
        (Some(left), Some(error)) => {
            format!(
                "about {} left, ± {}",
                units::duration(left),
                units::duration(error)
            )
        }
        _ => "no estimate of the end".into(),
    };
    Line::from(format!(
        "{}: {}{of} done · {left} · {}",
        row.name, row.done, row.note
    ))
}

fn step(picture: &Picture, step: usize) -> String {
    picture.steps.name.get(step).cloned().unwrap_or_default()
}

fn draw_failures(frame: &mut Frame<'_>, picture: &Picture, area: Rect) {
    let rows = picture.failures.rows.iter().map(|row| {
        let at = units::since_begin(row.at_ns, picture.head.begins_ns);
        Row::new([
            at,
            match row.count {
                1 => row.ending.clone(),
                n => format!("{} ×{}", row.ending, units::count(n as i64)),
            },
            row.pid.to_string(),
            row.command.clone(),
        ])
        .style(red())
    });
    let widths = [
        Constraint::Length(12),
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Min(10),
    ];
    let table = Table::new(rows, widths)
        .header(Row::new(["failed at", "ended", "pid", "command"]).style(bold()));
    frame.render_widget(table, area);
}

fn draw_running(frame: &mut Frame<'_>, picture: &Picture, area: Rect) {
    let now = picture.head.now_ns;
    let rows = picture.running.rows.iter().map(|row| {
        Row::new([
            step(picture, row.step),
            row.pid.to_string(),
            units::duration(now - row.start_ns),
            row.cpus
                .map_or_else(|| "?".into(), |cpus| format!("{cpus:.2}")),
            wait(picture, row),
            row.command.clone(),
        ])
    });
    let widths = [
        Constraint::Length(18),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(5),
        Constraint::Percentage(40),
        Constraint::Min(10),
    ];
    let names = ["running", "pid", "age", "CPUs", "waits for", "command"];
    frame.render_widget(
        Table::new(rows, widths).header(Row::new(names).style(bold())),
        area,
    );
}

fn wait(picture: &Picture, row: &RunningRow) -> String {
    let whom = row
        .blockers
        .iter()
        .map(|one| format!("{} {}", step(picture, one.step), one.pid));
    let whom: Vec<String> = whom.collect();
    let text = match row.state {
        "" => "not known yet",
        "running" => "on a CPU",
        "runnable" => "waits for a CPU",
        state if row.waits.is_empty() => state,
        _ => &row.waits,
    };
    match whom.is_empty() {
        true => text.to_owned(),
        false => format!("{text} ← {}", whom.join(", ")),
    }
}

fn draw_steps(frame: &mut Frame<'_>, picture: &Picture, limiting: &Limiting, area: Rect) {
    let rows = picture.steps.rows.iter().map(|row| {
        let style = match limiting.steps.contains(&row.step) {
            true => red(),
            false if row.is_runner => dim(),
            false => Style::new(),
        };
        Row::new([
            step(picture, row.step),
            row.running.to_string(),
            row.done.to_string(),
            row.failed.to_string(),
            units::duration(row.cpu_ns),
            format!("{}/s", units::bytes(row.read_rate)),
            format!("{}/s", units::bytes(row.write_rate)),
        ])
        .style(style)
    });
    let widths = [18, 8, 8, 7, 10, 11, 11].map(Constraint::Length);
    let names = [
        "step", "running", "ended", "failed", "CPU time", "reads", "writes",
    ];
    frame.render_widget(
        Table::new(rows, widths).header(Row::new(names).style(bold())),
        area,
    );
}

fn draw_files(frame: &mut Frame<'_>, picture: &Picture, area: Rect) {
    let rows = picture.files.rows.iter().map(|row| {
        Row::new([
            format!("{}/s", units::bytes(row.read_rate)),
            format!("{}/s", units::bytes(row.write_rate)),
            units::bytes(row.read_bytes),
            units::bytes(row.write_bytes),
            row.path.clone(),
        ])
    });
    let widths = [11, 11, 9, 9]
        .map(Constraint::Length)
        .into_iter()
        .chain([Constraint::Min(10)]);
    let names = ["reads", "writes", "read", "written", "file"];
    frame.render_widget(
        Table::new(rows, widths).header(Row::new(names).style(bold())),
        area,
    );
}

/// Columns as high as shares of 1.
fn chart(values: &[Option<f64>]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let first = values.len().saturating_sub(POINTS);
    let height = |value: &Option<f64>| match value {
        Some(share) => HEIGHTS[(share * 7.0).round().clamp(0.0, 7.0) as usize],
        None => ' ',
    };
    values[first..].iter().map(height).collect()
}
