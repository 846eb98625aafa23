//! `flowtrace run`: trace a command, then explain it in a few lines.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use flowtrace_tracer::session::{
    self, End, Error, Following, Layer, LeftBehind, Notice, RunOptions, RunReport, Side, Wanted,
};

use flowtrace_tracer::stacks::StackOptions;

use super::live;
use crate::failure::{Failure, OWN_FAILURE, Outcome};
use crate::{capturing, conclude, coverage, launcher, output, seeing};

/// Trace a command: every process, every file call under the traced directories
///
/// The command runs as it would without flowtrace: same paths, same output, same exit status,
/// same signals. (--fidelity cached promises less, see docs/filesystem.md.) A summary follows on
/// standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  flowtrace run -- make -j8
  flowtrace run -o night.db --dir /data --dir /scratch -- ./pipeline.sh
  flowtrace run --force -- sh -c 'sort big.txt | uniq -c > counts.txt'
  mpirun -n 8 flowtrace run --out-dir traces -- ./app; flowtrace merge -o all.db traces/*.db

Exit status: the command's own; signal N that ended it ends flowtrace, too (128+N in a shell); 125 when flowtrace itself
failed before the command ran, 126 when the command cannot be executed, 127 when there is none.")]
pub(crate) struct Args {
    /// Trace file to write
    #[arg(short, long, default_value = flowtrace_schema::DEFAULT_TRACE, value_parser = output::ending::only(output::ending::TRACE))]
    output: PathBuf,
    /// Remove an older trace, instead of keeping it as FILE.old
    #[arg(long)]
    force: bool,
    /// Write DIR/trace.HOST.RANK.db: one file for each of many (mpirun, srun, parallel); see merge
    ///
    /// RANK is the number that the launcher gave this one (Open MPI, MPICH, Slurm, PBS, GNU
    /// parallel, …), or the process id. No two ever write the same file. A local disk is best.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "force"])]
    out_dir: Option<PathBuf>,
    /// Directory to trace; may be given several times [default: the current directory]
    ///
    /// As root, / stands for all directories below it but those of the kernel and /run.
    #[arg(long = "dir", value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Mount nothing, as root does anyway: for other users opens, renames and removals are recorded for all
    /// files, and no other file call
    ///
    /// The command uses the directories themselves, and calls on files cost it less.
    #[arg(long, conflicts_with_all = ["directories", "include", "exclude", "fidelity", "stat", "transport"])]
    no_mount: bool,
    #[command(flatten)]
    seeing: seeing::Args,
    /// Rate at which to sample every thread, a second; 0: never
    ///
    /// The rate falls by itself where it would take more than 1.5 % of a CPU.
    #[arg(long, value_name = "HZ", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=1000))]
    sample: u32,
    /// Rate at which to record counters of the machine (CPUs, memory, disks, network), a second; 0: never
    #[arg(long, value_name = "HZ", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=10))]
    host_sample: u32,
    /// Stop no system calls: files outside the traced directories are not seen, nor pipes and sockets
    /// that open and close between two execs
    #[arg(long)]
    no_topology: bool,
    /// Follow processes by ptrace, also as root
    ///
    /// As root, eBPF programs report every process, its open files, and the calls that opened them, and no
    /// process is stopped; they cost some 0.1 µs for each call of any process. ptrace stops each process for
    /// a short time when it begins, runs a program, ends, and makes such a call, and costs nothing else. It
    /// follows in any case with --net, --detach or --no-topology, under mpirun and the like, for ordinary
    /// users, in containers, and before Linux 6.9.
    #[arg(long, overrides_with_all = ["ptrace", "no_ptrace"])]
    ptrace: bool,
    /// Follow processes without ptrace in any case, for commands that use debuggers or tracers themselves
    ///
    /// As root by eBPF programs; with --no-topology these report only lifetimes, which costs hardly anything.
    /// Elsewhere processes are known from the kernel's announcements (proc connector, taskstats) or from
    /// reading /proc at intervals, which misses short ones, and pipes, sockets and files outside the traced
    /// directories are not seen. This is also what happens by itself where ptrace is not allowed.
    #[arg(long, overrides_with_all = ["ptrace", "no_ptrace"])]
    no_ptrace: bool,
    /// Source of file calls: eBPF programs (kernel; root), or a mount over the traced directories (fuse)
    ///
    /// With kernel nothing is mounted, and calls on files outside of the traced directories are recorded, too;
    /// docs/kernel-layer.md compares the two. auto is kernel where the kernel allows it, and fuse elsewhere and
    /// with options that only a mount can heed.
    #[arg(long, value_enum, default_value_t = LayerChoice::Auto)]
    layer: LayerChoice,
    /// Size of the ring of each CPU for records of calls, KiB: more where losses count calls_dropped
    ///
    /// From 64 to 1048576. [default: 8192, or less where memory is short]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    ring: Option<u32>,
    /// Calls that have rows of their own
    ///
    /// With channels, calls on pipes and sockets have rows, too; otherwise their sums are recorded. A
    /// pipeline that passes a gigabyte makes a million rows. They are in the view channel_calls. Needs
    /// --layer kernel.
    #[arg(long, value_enum, default_value_t = CallsChoice::Files, value_name = "WHICH")]
    calls: CallsChoice,
    /// Sample the call stacks of threads that run, 99 times a second of CPU time
    ///
    /// The summary then says in which functions the limiting step was. With a name, or a pattern like 'gcc*', only
    /// programs of that name are sampled. --stacks=python samples all, and has CPython 3.12 or newer write the names
    /// of its functions (PYTHONPERFSUPPORT=1).
    #[arg(long, value_name = "RULE", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "bare")]
    stacks: Option<String>,
    /// Record these environment variables of every program, too; may be given several times
    ///
    /// PATTERN is a name, or like 'MY_*'. The variables by which workflow managers, batch systems and MPI
    /// number their jobs, tasks and ranks are always recorded, no other ever is.
    #[arg(long = "env", value_name = "PATTERN")]
    environment: Vec<String>,
    /// Store passwords and keys of command lines as they are: otherwise they are masked, and counted
    #[arg(long)]
    keep_secrets: bool,
    /// Capture packets, too, of all interfaces that are up, loopback included
    ///
    /// Needs CAP_NET_RAW; without it, the rest of the trace goes on.
    #[arg(long)]
    net: bool,
    /// Capture packets of this interface alone; may be given several times
    #[arg(long = "interface", value_name = "IF", requires = "net")]
    interfaces: Vec<String>,
    /// Capture packets of this port alone; may be given several times
    #[arg(long = "port", value_name = "PORT", requires = "net", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// Detach from processes that outlive the command, instead of waiting for their end
    ///
    /// They run on untraced. If they still use the traced directories, a flowtrace in the background serves
    /// those until the last of them has ended.
    #[arg(long)]
    detach: bool,
    /// Serve a page that shows the run while it goes on, as flowtrace live does; its address is printed
    #[arg(long)]
    live: bool,
    /// Keep a line at the bottom of the terminal: time, processes, the step that limits the run now, bytes,
    /// losses
    #[arg(long)]
    progress: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// Print notices, but no summary at the end
    #[arg(long)]
    no_summary: bool,
    /// Follow processes by the kernel's announcements alone, even where more can be had (for tests)
    #[arg(long, hide = true)]
    announced: bool,
    /// Mount the same directories and record nothing (for benchmarks)
    #[arg(long, hide = true)]
    bare: bool,
    /// Mount the same directories and record the processes alone (for benchmarks)
    #[arg(long, hide = true)]
    without_calls: bool,
    /// Command to run, with its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LayerChoice {
    /// kernel where the kernel allows it and no option needs a mount, else fuse
    Auto,
    /// eBPF programs; nothing is mounted
    Kernel,
    /// A mount over each traced directory
    Fuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CallsChoice {
    /// Calls on files
    Files,
    /// Calls on files, pipes and sockets
    Channels,
}

impl LayerChoice {
    fn layer(self) -> Layer {
        match self {
            LayerChoice::Auto => Layer::Auto,
            LayerChoice::Kernel => Layer::Kernel,
            LayerChoice::Fuse => Layer::Fuse,
        }
    }
}

/// Refuses options that --layer kernel contradicts, and options that need it.
fn check_layer(args: &Args) -> Result<(), Failure> {
    let contradictions = [
        (
            args.no_topology,
            "--no-topology",
            "it must see which programs use io_uring",
        ),
        (
            args.detach,
            "--detach",
            "nobody would read the calls of detached processes",
        ),
        (
            args.ptrace || args.announced,
            "--ptrace",
            "eBPF programs report the processes then",
        ),
        (args.bare, "--bare", "that records nothing"),
        (
            args.without_calls,
            "--without-calls",
            "that records no calls",
        ),
        (
            args.seeing.is_cached(),
            "--fidelity cached",
            "with it the page cache answers reads, and --layer kernel records all reads",
        ),
        (
            args.seeing.is_about_mounts(),
            "--include, --exclude, --stat or --transport",
            "these are about mounts, and --layer kernel mounts nothing",
        ),
    ];
    if args.ring.is_some() && args.layer == LayerChoice::Fuse {
        return Err(Failure::new(
            OWN_FAILURE,
            "--ring is about --layer kernel, and --layer fuse has no such rings",
        )
        .hint("leave one of them out"));
    }
    if args.no_mount && args.layer == LayerChoice::Fuse {
        return Err(Failure::new(
            OWN_FAILURE,
            "--layer fuse sees file calls through a mount, and --no-mount makes none",
        )
        .hint("leave one of them out"));
    }
    if args.calls == CallsChoice::Channels && args.layer != LayerChoice::Kernel {
        return Err(Failure::new(
            OWN_FAILURE,
            "--calls channels needs --layer kernel: no other layer sees every call on pipes and sockets",
        )
        .hint("add --layer kernel; flowtrace doctor says if it works here"));
    }
    let given = contradictions.iter().find(|(given, ..)| *given);
    match given {
        Some((_, option, why)) if args.layer == LayerChoice::Kernel => Err(Failure::new(
            OWN_FAILURE,
            format!("--layer kernel and {option} contradict each other: {why}"),
        )
        .hint("leave one of them out")),
        _ => Ok(()),
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    check_layer(&args)?;
    let seeing = args.seeing.seeing()?;
    let environment = Wanted::new(&args.environment).map_err(|reason| {
        Failure::new(OWN_FAILURE, format!("--env: {reason}"))
            .hint("a pattern is like 'HOME', 'MY_*' or '{A,B}_ID'")
    })?;
    let stacks = match &args.stacks {
        Some(rule) => Some(StackOptions::new(rule).map_err(|reason| {
            Failure::new(OWN_FAILURE, format!("--stacks={rule}: {reason}"))
                .hint("a pattern is like 'gcc', 'cc*' or '{cc1,as}'")
        })?),
        None => None,
    };
    let launch = launcher::launch();
    let reserved = match &args.out_dir {
        Some(directory) => Some(launcher::reserve(directory, launch.as_ref())?),
        None => None,
    };
    let options = RunOptions {
        command: args.command,
        directories: args.directories,
        mount: !args.no_mount,
        output: output::resolved(reserved.as_deref().unwrap_or(&args.output)),
        // A reserved name is an empty file of this process.
        replace: args.force || reserved.is_some(),
        launch,
        seeing,
        sample_hertz: args.sample,
        host_hertz: args.host_sample,
        topology: !args.no_topology,
        environment,
        keep_secrets: args.keep_secrets,
        detach: args.detach,
        bare: args.bare,
        without_calls: args.without_calls,
        following: match (args.announced, args.ptrace, args.no_ptrace) {
            (true, ..) => Following::Announced,
            (_, true, _) => Following::ByPtrace,
            (.., true) => Following::WithoutPtrace,
            _ => Following::Best,
        },
        net: match args.net {
            true => Some(capturing::options(
                &args.interfaces,
                &args.ports,
                128,
                OWN_FAILURE,
            )?),
            false => None,
        },
        layer: args.layer.layer(),
        ring_kib: args.ring,
        stacks,
        channel_calls: args.calls == CallsChoice::Channels,
    };
    let front = match options.detach.then(session::fork_behind) {
        None => None,
        Some(side) => match side.map_err(Failure::from)? {
            Side::Front(end) => return Ok(end_as(end)),
            Side::Behind(front) => Some(front),
        },
    };
    if args.live {
        live::companion::page(&options.output);
    }
    let progress = match args.progress && !args.quiet {
        true => live::companion::progress(&options.output),
        false => None,
    };
    let mut notify = |notice: Notice| {
        if !args.quiet {
            message!("flowtrace: {}", describe(&notice));
        }
    };
    let report = session::run(&options, &mut notify).map_err(|error| {
        if let Some(path) = &reserved {
            launcher::release(path);
        }
        if let Error::NeverRan { signal } = error {
            Failure::from(error).report();
            session::end_by(signal);
        }
        Failure::from(error)
    })?;
    drop(progress);
    conclude(&options, &report, args.quiet, args.no_summary);
    if let (Some(background), Some(front)) = (report.background, front) {
        if let Err(error) = front.leave(report.end) {
            message!("flowtrace: cannot leave the terminal, and waits here instead: {error}");
        }
        background.serve();
    }
    Ok(end_as(report.end))
}

/// Concludes a recording after the command's end; a failure here must not change its exit status.
fn conclude(options: &RunOptions, report: &RunReport, quiet: bool, no_summary: bool) {
    let Some(trace) = &report.trace else { return };
    if let Some(how) = trace.displaced {
        return message!("flowtrace: {}", conclude::displaced(&options.output, how));
    }
    conclude::say_unrecorded(&options.output);
    if let Some(error) = &trace.write_error {
        message!(
            "flowtrace: cannot write {}: {error}; {} rows are missing from the trace",
            output::shown(&options.output).display(),
            trace.dropped
        );
    }
    if let Some(reason) = &trace.not_folded
        && trace.write_error.is_none()
    {
        message!(
            "flowtrace: {} needs the -wal file beside it: {reason}",
            output::shown(&options.output).display()
        );
    }
    if let (Some(kept), false) = (&trace.kept, quiet) {
        conclude::say_kept(kept);
    }
    if let Err(failure) = conclude::conclude(&options.output, !quiet && !no_summary) {
        message!("flowtrace: {failure}");
    }
}

/// Ends as the command did: with its exit status, or by the signal that ended it.
fn end_as(end: End) -> ExitCode {
    match end {
        End::Exited(code) => ExitCode::from(code as u8),
        End::Killed(signal) => session::end_by(signal),
    }
}

fn describe(notice: &Notice) -> String {
    match notice {
        Notice::OtherPath { directory, view } => format!(
            "no private mount here: the command runs in {} instead of {}; what it reaches by absolute path is not seen",
            view.display(),
            directory.display()
        ),
        Notice::Coverage(coverage) => coverage::described(coverage),
        Notice::SeenAlready { directory } => format!(
            "another flowtrace shows {} already (an outer run, or flowtrace mount): no second mount is made over it, and \
             of its files only opens are recorded",
            directory.display()
        ),
        Notice::OuterTrace { trace } => format!(
            "{} is the trace of an outer run: the command runs without a trace of its own\n  hint: name another file with -o",
            trace.display()
        ),
        Notice::FewDescriptors { limit } => format!(
            "flowtrace may have {limit} files open here, and each open file in a traced directory takes one: with more \
             than some {} at once, all programs together, the command's calls fail\n  hint: ulimit -Sn limits the command alone; ulimit -Hn 1048576, or LimitNOFILE= of the service, is for both",
            limit / 8 * 7
        ),
        Notice::StillRunning { processes } => format!(
            "the command has ended; waiting for processes that it left behind: {}; Ctrl-C ends them",
            named(processes)
        ),
        Notice::NotCaptured(refused) => format!(
            "packets of {} are not captured: {}",
            refused.interface, refused.reason
        ),
        Notice::LetGo { processes } => format!(
            "the command has ended; processes that it left behind run on untraced: {}",
            named(processes)
        ),
    }
}

fn named(processes: &[LeftBehind]) -> String {
    let named = processes.iter().take(3);
    let named = named.map(|p| {
        format!(
            "{} (pid {})",
            flowtrace_render::units::shorten(&p.command, 60),
            p.pid
        )
    });
    let mut named: Vec<_> = named.collect();
    if processes.len() > named.len() {
        named.push(format!("{} more", processes.len() - named.len()));
    }
    named.join(", ")
}
