//! The command as a job of the shell that started flowtrace.

use nix::unistd::Pid;

use super::super::signals::{self, CommandEnd};
use super::Notice;
use crate::proc::lifetimes::{End, LeftBehind, Watcher};

/// The command as a job of the shell that started flowtrace.
pub(super) struct Job<'a> {
    pub(super) root: Pid,
    pub(super) notify: &'a mut dyn FnMut(Notice),
    /// `None` until the command runs.
    pub(super) command_end: Option<CommandEnd>,
    pub(super) detach: bool,
    /// True if flowtrace has detached from processes.
    pub(super) left: bool,
}

impl Watcher for Job<'_> {
    fn stopped(&mut self, signal: i32) {
        signals::stop_with(self.root, signal);
    }

    fn ended(&mut self, _end: End, others: Vec<LeftBehind>) -> bool {
        if others.is_empty() {
            return false;
        }
        if let Some(command_end) = &self.command_end {
            command_end.report();
        }
        self.left = self.detach;
        let processes = others;
        (self.notify)(match self.detach {
            true => Notice::LetGo { processes },
            false => Notice::StillRunning { processes },
        });
        self.detach
    }
}
