//! The machines of a cluster on the terminal.

use flowtrace_profiler::analysis::nodes::{Node, NodeState, Nodes};
use flowtrace_render::units;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table};

/// Draws the line of all machines, and as many machines as there is space for.
pub(super) fn draw(frame: &mut Frame<'_>, nodes: &Nodes, area: Rect) {
    let parts = [
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, body, foot] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(line(nodes)), head);
    let widths = [16, 6, 10, 10, 10, 10, 9, 9, 8, 11].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Min(10)]);
    let names = [
        "node", "CPUs", "in", "out", "read", "written", "samples", "lost", "clock ±", "state", "",
    ];
    let rows = nodes.rows.iter().map(row);
    let table = Table::new(rows, widths)
        .header(Row::new(names).style(Style::new().add_modifier(Modifier::BOLD)));
    frame.render_widget(table, body);
    let space = usize::from(body.height.saturating_sub(1));
    let more = nodes.all.nodes.saturating_sub(space.min(nodes.rows.len()));
    if more > 0 {
        let text = format!("+{} more", units::count(more as i64));
        frame.render_widget(
            Line::from(text).style(Style::new().fg(Color::DarkGray)),
            foot,
        );
    }
}

fn line(nodes: &Nodes) -> String {
    let all = &nodes.all;
    let lost = all.sent - all.received;
    format!(
        "{} of {} report, {} silent, {} ended, {} unlike the others · {:.1} samples a second, lost {} of {}",
        all.reporting,
        units::counted(all.nodes as i64, "node", "nodes"),
        all.silent,
        all.ended,
        all.differing,
        all.samples_per_second,
        units::count(lost),
        units::count(all.sent)
    )
}

fn row(node: &Node) -> Row<'static> {
    let rate = |rate: Option<f64>| {
        rate.map_or_else(
            || "?".into(),
            |rate| format!("{}/s", units::bytes(rate as i64)),
        )
    };
    let watched = node.watched.as_ref();
    let number = |number: Option<i64>| number.map_or_else(|| "?".into(), units::count);
    let (state, style) = match node.state {
        NodeState::Silent => {
            let quiet = units::duration(node.quiet_ns.unwrap_or(0));
            (format!("silent {quiet}"), Style::new().fg(Color::Red))
        }
        NodeState::Reporting if node.why.is_empty() => ("reports".into(), Style::new()),
        NodeState::Reporting => ("reports".into(), Style::new().fg(Color::Yellow)),
        NodeState::Ended => ("ended".into(), Style::new().fg(Color::DarkGray)),
        NodeState::Cut => ("no end".into(), Style::new().fg(Color::Red)),
        NodeState::Recorded => ("recorded".into(), Style::new()),
    };
    let cpu = node.rates.cpu.map_or_else(|| "?".into(), units::share);
    Row::new([
        node.name.clone(),
        cpu,
        rate(node.rates.net_in),
        rate(node.rates.net_out),
        rate(node.rates.disk_read),
        rate(node.rates.disk_write),
        number(watched.map(|watched| watched.received)),
        number(watched.map(|watched| watched.sent - watched.received)),
        node.clock_error_ns
            .map_or_else(|| "?".into(), units::duration),
        state,
        node.why.join(" · "),
    ])
    .style(style)
}
