//! The machines on a terminal while they run: a line for each, and keys that change the rates.

use std::collections::HashMap;
use std::time::Duration;

use flowtrace_monitor::service::{Control, NodeState};
use flowtrace_render::units;
use flowtrace_schema::HostCounter;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};

/// Number of samples in the small chart of a machine, where the terminal has space for it.
const CHART_SAMPLES: usize = 20;
const WIDE: u16 = 120;
/// A machine that sent nothing for so long may be gone.
const SILENT_NS: u64 = 15_000_000_000;
/// Shortest and longest time between samples, ms.
const PERIODS_MS: (u32, u32) = (10, 3_600_000);
const KEYS: &str = "↑↓ machine · s sort · + − rate of the machine, x stop it · a: of all · q end";

/// The whole terminal, until it is dropped.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    view: View,
}

/// The displayed state, and its machine.
#[derive(Default)]
struct View {
    table: TableState,
    order: Order,
    /// Keys are for all machines, not for the chosen one.
    of_all: bool,
    /// Names and periods of the displayed machines, ms.
    shown: Vec<(String, u32)>,
    /// CPUs in use, by machine.
    history: HashMap<String, Vec<f64>>,
    /// Address of the page.
    page: Option<String>,
}

/// The order of the machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Name,
    Cpu,
    Disk,
    Network,
}

impl Screen {
    /// Takes the terminal; `None`: it cannot be taken.
    ///
    /// `page`: the address at which a browser shows the same.
    pub(super) fn open(page: Option<String>) -> Option<Screen> {
        let terminal = ratatui::try_init().ok()?;
        Some(Screen {
            terminal,
            view: View {
                page,
                ..View::default()
            },
        })
    }

    /// Draws the machines as they are now.
    pub(super) fn show(&mut self, nodes: &[NodeState]) {
        self.view.note(nodes);
        // The next drawing may succeed.
        let _ = self.terminal.draw(|frame| self.view.draw(frame, nodes));
    }

    /// The requests of the keys pressed since the last call.
    pub(super) fn keys(&mut self) -> Vec<Control> {
        let mut controls = Vec::new();
        while event::poll(Duration::ZERO).unwrap_or(false) {
            match event::read() {
                Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    controls.extend(self.view.key(key));
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        controls
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl View {
    /// Adds the values of the chart.
    fn note(&mut self, nodes: &[NodeState]) {
        for node in nodes {
            let past = self.history.entry(node.status.name.clone()).or_default();
            past.push(cores(node).unwrap_or(0.0));
            if past.len() > CHART_SAMPLES {
                past.remove(0);
            }
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>, nodes: &[NodeState]) {
        let mut nodes: Vec<&NodeState> = nodes.iter().collect();
        self.order.sort(&mut nodes);
        let shown = |node: &&NodeState| (node.status.name.clone(), node.status.period_ms);
        self.shown = nodes.iter().map(shown).collect();
        if self.table.selected().is_none() && !nodes.is_empty() {
            self.table.select(Some(0));
        }
        let parts = [
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [head, body, foot] = Layout::vertical(parts).areas(frame.area());
        let page = self.page.iter().map(|page| format!(" · {page}"));
        let title: String = std::iter::once(title(&nodes)).chain(page).collect();
        frame.render_widget(Line::from(title), head);
        let rows: Vec<Row<'_>> = nodes.iter().map(|node| self.row(node)).collect();
        let chart = if body.width < WIDE {
            0
        } else {
            CHART_SAMPLES as u16
        };
        let widths = [16, 5, chart, 6, 8, 8, 8, 8, 5, 6, 7, 12].map(Constraint::Length);
        let names = [
            "machine", "cpu", "", "iowait", "read/s", "write/s", "in/s", "out/s", "came", "every",
            "clock ±", "",
        ];
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let table = Table::new(rows, widths)
            .header(Row::new(names).style(bold))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, body, &mut self.table);
        let of = if self.of_all {
            "all machines"
        } else {
            "one machine"
        };
        let keys = format!("{KEYS} · by {} · keys for {of}", self.order.name());
        frame.render_widget(
            Line::from(keys).style(Style::new().fg(Color::DarkGray)),
            foot,
        );
    }

    fn row(&self, node: &NodeState) -> Row<'static> {
        let bytes = |counter| {
            let per_second = rate(node, &[counter]);
            per_second.map_or_else(|| "?".into(), |per_second| units::bytes(per_second as i64))
        };
        let number = |cores: Option<f64>| cores.map_or_else(|| "?".into(), |n| format!("{n:.2}"));
        let io_wait = rate(node, &[HostCounter::CpuIoWait]).map(|per_second| per_second / 1e9);
        let status = &node.status;
        let (state, style) = match (status.is_final, node.silent_ns) {
            (true, _) => ("ended".to_owned(), Style::new().fg(Color::DarkGray)),
            (false, silent) if silent > SILENT_NS => (
                format!("silent {} s", silent / 1_000_000_000),
                Style::new().fg(Color::Red),
            ),
            _ => (String::new(), Style::new()),
        };
        let past = self
            .history
            .get(&status.name)
            .map_or(&[][..], Vec::as_slice);
        let cells = [
            units::shorten(&units::plain(&status.name), 16),
            number(cores(node)),
            chart(past),
            number(io_wait),
            bytes(HostCounter::DiskReadBytes),
            bytes(HostCounter::DiskWriteBytes),
            bytes(HostCounter::NetReceiveBytes),
            bytes(HostCounter::NetSendBytes),
            format!("{:.0} %", 100.0 * status.confidence()),
            units::duration(i64::from(status.period_ms) * 1_000_000),
            units::duration(status.present_error_ns as i64),
            state,
        ];
        Row::new(cells.map(Cell::from)).style(style)
    }

    fn key(&mut self, key: KeyEvent) -> Vec<Control> {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => end(),
            KeyCode::Char('q') => end(),
            KeyCode::Up => self.table.select_previous(),
            KeyCode::Down => self.table.select_next(),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('a') => self.of_all = !self.of_all,
            KeyCode::Char('+') => return self.periods(|period_ms| period_ms / 2),
            KeyCode::Char('x') => {
                return self
                    .chosen()
                    .map(|(name, _)| Control::Stop(name))
                    .into_iter()
                    .collect();
            }
            KeyCode::Char('-') => return self.periods(|period_ms| period_ms.saturating_mul(2)),
            _ => {}
        }
        Vec::new()
    }

    /// The chosen machine, or `None` as its name for all, and its period, ms; `None`: there is no machine.
    fn chosen(&self) -> Option<(Option<String>, u32)> {
        let (name, period_ms) = self.shown.get(self.table.selected()?)?;
        Some(((!self.of_all).then(|| name.clone()), *period_ms))
    }

    /// New times between samples, of the chosen machine or of all.
    fn periods(&self, change: impl Fn(u32) -> u32) -> Vec<Control> {
        let period = |(name, period_ms)| {
            Control::Period(name, change(period_ms).clamp(PERIODS_MS.0, PERIODS_MS.1))
        };
        self.chosen().map(period).into_iter().collect()
    }
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Order::Name => "name",
            Order::Cpu => "cpu",
            Order::Disk => "disk",
            Order::Network => "network",
        }
    }

    fn next(self) -> Order {
        match self {
            Order::Name => Order::Cpu,
            Order::Cpu => Order::Disk,
            Order::Disk => Order::Network,
            Order::Network => Order::Name,
        }
    }

    /// The busiest first, or by name.
    fn sort(self, nodes: &mut [&NodeState]) {
        nodes.sort_by(|a, b| a.status.name.cmp(&b.status.name));
        let counters: &[HostCounter] = match self {
            Order::Name => return,
            Order::Cpu => CPU,
            Order::Disk => &[HostCounter::DiskReadBytes, HostCounter::DiskWriteBytes],
            Order::Network => &[HostCounter::NetReceiveBytes, HostCounter::NetSendBytes],
        };
        let busy = |node: &NodeState| rate(node, counters).unwrap_or(-1.0);
        nodes.sort_by(|a, b| busy(b).total_cmp(&busy(a)));
    }
}

const CPU: &[HostCounter] = &[
    HostCounter::CpuUser,
    HostCounter::CpuNice,
    HostCounter::CpuSystem,
];

fn title(nodes: &[&NodeState]) -> String {
    let silent = nodes
        .iter()
        .filter(|node| !node.status.is_final && node.silent_ns > SILENT_NS);
    let ended = nodes.iter().filter(|node| node.status.is_final).count();
    let busy: f64 = nodes.iter().filter_map(|node| cores(node)).sum();
    format!(
        "flowtrace collect · {} · {busy:.1} CPUs busy · {ended} ended · {} silent",
        units::counted(nodes.len() as i64, "machine", "machines"),
        silent.count()
    )
}

/// Signals this process, as Ctrl-C does where the terminal is not taken.
fn end() {
    let _ = kill(Pid::this(), Signal::SIGINT);
}

fn cores(node: &NodeState) -> Option<f64> {
    rate(node, CPU).map(|per_second| per_second / 1e9)
}

/// Columns as high as the values, the highest or 1 as the whole.
fn chart(values: &[f64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().copied().fold(1.0, f64::max);
    let height = |value: &f64| HEIGHTS[(value / highest * 7.0).round().clamp(0.0, 7.0) as usize];
    values.iter().map(height).collect()
}

/// Growth of these totals together in a second.
fn rate(node: &NodeState, counters: &[HostCounter]) -> Option<f64> {
    let (before, apart_ns) = node.before.as_ref().filter(|(_, apart_ns)| *apart_ns > 0)?;
    let value = |totals: &[(u8, u64)], counter: HostCounter| {
        let mut own = totals.iter();
        let own = own.find(|(other, _)| usize::from(*other) == counter as usize);
        own.map(|(_, value)| *value)
    };
    let mut sum = 0;
    for &counter in counters {
        sum += value(&node.totals, counter)?.saturating_sub(value(before, counter)?);
    }
    Some(sum as f64 * 1e9 / *apart_ns as f64)
}

#[cfg(test)]
mod tests {
    use flowtrace_monitor::collector::Status;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    /// A machine that used so many hundredths of a CPU, and read so many bytes, in a second.
    fn node(name: &str, busy: u64, read: u64) -> NodeState {
        let counters = [
            (HostCounter::CpuUser, busy * 10_000_000),
            (HostCounter::CpuNice, 0),
            (HostCounter::CpuSystem, 0),
            (HostCounter::DiskReadBytes, read),
            (HostCounter::DiskWriteBytes, 0),
        ];
        let totals = counters.map(|(counter, value)| (counter as u8, value));
        NodeState {
            status: Status {
                name: name.into(),
                received: 9,
                expected: 10,
                period_ms: 1000,
                ..Status::default()
            },
            before: Some((
                totals.map(|(counter, _)| (counter, 0)).to_vec(),
                1_000_000_000,
            )),
            totals: totals.to_vec(),
            silent_ns: 0,
        }
    }

    fn drawn(view: &mut View, nodes: &[NodeState]) -> String {
        let mut terminal = Terminal::new(TestBackend::new(140, 8)).unwrap();
        view.note(nodes);
        terminal.draw(|frame| view.draw(frame, nodes)).unwrap();
        terminal.backend().to_string()
    }

    fn press(view: &mut View, key: KeyCode) -> Vec<Control> {
        view.key(KeyEvent::new(key, KeyModifiers::NONE))
    }

    #[test]
    fn machines_are_shown_in_the_order_that_was_asked_for() {
        let mut view = View::default();
        let mut nodes = [
            node("n1", 50, 7_000_000),
            node("n2", 150, 0),
            node("n3", 0, 0),
        ];
        nodes[2].silent_ns = 20_000_000_000;
        let text = drawn(&mut view, &nodes);
        assert!(
            text.contains("3 machines · 2.0 CPUs busy · 0 ended · 1 silent"),
            "{text}"
        );
        assert!(text.contains("silent 20 s"), "{text}");
        let place = |text: &str, what: &str| text.find(what).unwrap();
        assert!(place(&text, "n1 ") < place(&text, "n2 "));
        let line = text.lines().find(|line| line.contains("n1 ")).unwrap();
        for cell in ["0.50", "7.0 MB", "90 %", "?"] {
            assert!(line.contains(cell), "{cell}: {line}");
        }
        press(&mut view, KeyCode::Char('s'));
        let text = drawn(&mut view, &nodes);
        assert!(place(&text, "n2 ") < place(&text, "n1 "), "{text}");
        assert!(text.contains("by cpu"));
        press(&mut view, KeyCode::Char('s'));
        let text = drawn(&mut view, &nodes);
        assert!(place(&text, "n1 ") < place(&text, "n2 "), "{text}");
    }

    #[test]
    fn keys_change_the_rate_of_one_machine_or_of_all_and_stop_them() {
        let mut view = View::default();
        assert_eq!(press(&mut view, KeyCode::Char('+')), []);
        drawn(&mut view, &[node("n1", 0, 0), node("n2", 0, 0)]);
        press(&mut view, KeyCode::Down);
        let faster = press(&mut view, KeyCode::Char('+'));
        assert_eq!(faster, [Control::Period(Some("n2".into()), 500)]);
        press(&mut view, KeyCode::Char('a'));
        let slower = press(&mut view, KeyCode::Char('-'));
        assert_eq!(slower, [Control::Period(None, 2000)]);
        assert_eq!(press(&mut view, KeyCode::Char('x')), [Control::Stop(None)]);
        press(&mut view, KeyCode::Char('a'));
        let stop = press(&mut view, KeyCode::Char('x'));
        assert_eq!(stop, [Control::Stop(Some("n2".into()))]);
    }

    #[test]
    fn charts_are_as_high_as_their_values() {
        assert_eq!(chart(&[0.0, 0.5, 1.0]), "▁▅█");
        assert_eq!(chart(&[0.0, 8.0]), "▁█");
    }
}
