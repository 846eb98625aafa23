//! `flowtrace live`: a run while it goes on, in a browser or on the terminal.

use std::io::{IsTerminal, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flowtrace_profiler::live::Follower;

use crate::failure::Failure;

mod board;
pub(super) mod companion;
mod screen;
mod server;
mod status;

use board::Board;
use server::Server;

/// Show a run while it goes on: what runs, what limits it, how far it is
///
/// A small web server shows a page that follows the trace; the address has a token, without which nothing is
/// shown. When the run ends, the page becomes the report.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flowtrace run --live -- make -j8          the page of a run from its begin
  flowtrace collect --live --key KEY        of the machines that agents watch
  flowtrace live trace.db                   of a run that was started elsewhere
  flowtrace live --text trace.db            on this terminal
  flowtrace live --listen 0.0.0.0 trace.db  for other machines, too")]
pub(crate) struct Args {
    /// Trace that is being recorded
    trace: PathBuf,
    /// Show it on this terminal instead
    #[arg(long, conflicts_with_all = ["listen", "port", "no_open"])]
    text: bool,
    /// Address to serve on [default: 127.0.0.1, which only this machine reaches]
    ///
    /// With another one, everyone who can reach this machine and knows the token can see commands, paths and
    /// failures of the run, unencrypted. ssh -L PORT:127.0.0.1:PORT is the safer way.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        hide_default_value = true
    )]
    listen: IpAddr,
    /// Port to serve on [default: a free one]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
    /// Open no browser
    #[arg(long)]
    no_open: bool,
    /// Wait for the trace, and end when the run has ended and its pages have the report (of run --live)
    #[arg(long, hide = true)]
    companion: bool,
    /// Wait for the trace, and keep a line at the bottom of the terminal (of run --progress)
    #[arg(long, hide = true)]
    status: bool,
}

/// Time after the end of a run in which a browser can still connect to a companion.
const FAREWELL: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Args) -> crate::failure::Outcome {
    if args.companion || args.status {
        companion::leave_session()?;
    }
    if args.status {
        status::show(&args.trace)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.text {
        let follower = Follower::open(&args.trace)?;
        screen::show(follower)?;
        return Ok(ExitCode::SUCCESS);
    }
    let opened = match args.companion {
        true => None,
        false => Some(Follower::open(&args.trace)?),
    };
    let board = Arc::new(Board::default());
    let server = Server::bind((args.listen, args.port), Arc::clone(&board)).map_err(|error| {
        Failure::usage(format!("cannot serve on {}: {error}", args.listen))
            .hint("--listen takes an address of this machine, --port a free port")
    })?;
    announce(&server.address(), args)?;
    let trace = args.trace.clone();
    let follow = thread::Builder::new()
        .name("live-follow".into())
        .spawn({
            let board = Arc::clone(&board);
            move || {
                let follower = match opened {
                    Some(follower) => follower,
                    None => companion::wait_for(&trace)?,
                };
                board::follow(follower, &trace, &board)
            }
        })
        .map_err(|error| Failure::usage(format!("cannot start a thread: {error}")))?;
    let serve = move || server.serve();
    if args.companion {
        thread::spawn(serve);
        follow.join().unwrap_or(Ok(()))?;
        let ended = Instant::now();
        while board.viewers() > 0 && ended.elapsed() < 3 * FAREWELL
            || ended.elapsed() < FAREWELL && !board.was_read()
        {
            thread::sleep(Duration::from_millis(100));
        }
        // A browser that is being sent the report gets it.
        thread::sleep(Duration::from_secs(1));
        return Ok(ExitCode::SUCCESS);
    }
    thread::spawn(serve);
    match follow.join() {
        Ok(followed) => followed?,
        Err(_) => return Err(Failure::new(1, "the trace cannot be followed any more")),
    }
    message!(
        "flowtrace: the recording has ended, the page shows its report; Ctrl-C ends the server"
    );
    loop {
        thread::park();
    }
}

/// Prints the address, and opens it on a desktop.
fn announce(address: &str, args: &Args) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{address}")?;
    out.flush()?;
    if !args.listen.is_loopback() {
        message!(
            "flowtrace: whoever reaches this machine and knows the token sees the run; nothing is encrypted"
        );
    }
    let is_desktop = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    // The output of a companion is a pipe: the run that started it looks at its own.
    if is_desktop && !args.no_open && (args.companion || out.is_terminal()) {
        open(address);
    }
    Ok(())
}

/// Opens an address in the browser of the desktop, if there is one.
fn open(address: &str) {
    let started = Command::new("xdg-open")
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    // Whoever has no xdg-open has the printed address.
    if let Ok(mut child) = started {
        thread::spawn(move || child.wait());
    }
}
