//! One line about a run at the bottom of the terminal, below what its command prints.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use flowtrace_profiler::live::{Budget, Limiting, Picture, Search};
use flowtrace_render::units;

use super::companion::wait_for;
use crate::failure::Failure;

/// Shortest time between two lines.
const EVERY: Duration = Duration::from_millis(500);
/// Shortest time between two searches for the limit.
const SEARCH: Duration = Duration::from_secs(3);

/// Shows the line until the run has ended, or standard input.
pub(super) fn show(trace: &Path) -> Result<(), Failure> {
    let (ended, end) = channel();
    thread::spawn(move || {
        // The recorder closes it when the command has ended; so does its death.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        drop(ended);
    });
    let Ok(mut follower) = wait_for(trace) else {
        return Ok(());
    };
    let budget = Budget::default();
    let mut line = Line::default();
    let mut search = Search::new(SEARCH, SEARCH);
    let mut pause = EVERY;
    while end.recv_timeout(pause) == Err::<(), _>(RecvTimeoutError::Timeout) {
        if !follower.is_being_recorded() {
            break;
        }
        if follower.advance()? {
            let limiting = search.limiting(&follower)?;
            let picture = follower.picture(limiting)?;
            line.draw(&text(&picture, limiting));
        }
        follower.rest()?;
        pause = budget.pause(EVERY);
    }
    Ok(())
}

/// The line: time, processes, the step that limits the run now, bytes, losses.
fn text(picture: &Picture, limiting: &Limiting) -> String {
    let head = &picture.head;
    let mut parts = vec![
        units::duration(head.now_ns - head.begins_ns),
        format!("{} running, {} ended", head.running, head.ended),
    ];
    if head.failed > 0 {
        parts.push(format!("{} failed", head.failed));
    }
    for manager in picture.managers.iter().filter(|manager| manager.done > 0) {
        let of = manager
            .total
            .map_or_else(String::new, |total| format!(" of {total}"));
        parts.push(format!("{} {}{of} done", manager.name, manager.done));
    }
    if let Some(name) = &limiting.name {
        parts.push(format!("{name} limits it now"));
    }
    if head.sees_files {
        parts.push(format!(
            "read {}, wrote {}",
            units::bytes(head.read_bytes),
            units::bytes(head.write_bytes)
        ));
    }
    let lost = head.losses.iter().filter(|loss| loss.is_of_data);
    match lost.map(|loss| loss.value).fold(0_i64, i64::saturating_add) {
        0 => parts.push("lost nothing".into()),
        lost => parts.push(format!("lost {lost}")),
    }
    parts.join(" · ")
}

/// The bottom line of the terminal, which does not scroll.
#[derive(Debug, Default)]
struct Line {
    /// Height of the terminal for which the line was made; 0: it was not yet.
    height: u16,
}

impl Line {
    fn draw(&mut self, text: &str) {
        let size = terminal_size::terminal_size_of(io::stderr());
        let Some((terminal_size::Width(width), terminal_size::Height(height))) = size else {
            return;
        };
        if height < 4 {
            return;
        }
        let mut out = String::new();
        if self.height != height {
            // A new line makes space if the cursor is at the bottom; it then stands above the line.
            out += &format!("\n\x1b7\x1b[1;{}r\x1b8\x1b[1A", height - 1);
            self.height = height;
        }
        let shown = units::shorten(&format!("flowtrace: {text}"), usize::from(width));
        out += &format!("\x1b7\x1b[{height};1H\x1b[K\x1b[2m{shown}\x1b[0m\x1b8");
        // A terminal that went away is no reason to stop the run.
        let _ = io::stderr().lock().write_all(out.as_bytes());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.height > 0 {
            let clear = format!("\x1b7\x1b[{};1H\x1b[K\x1b[r\x1b8", self.height);
            let _ = io::stderr().lock().write_all(clear.as_bytes());
        }
    }
}
