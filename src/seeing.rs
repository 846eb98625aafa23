//! Arguments of `run` and `mount`: how files are seen.

use std::time::Duration;

use flowtrace_tracer::fs::Filter;
use flowtrace_tracer::session::{Seeing, Transport};

use crate::failure::{Failure, OWN_FAILURE};

/// How long the kernel may answer by itself where it may.
const CACHED_TTL: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Whether every read is seen (exact), or only what the page cache lacks (cached): faster
    #[arg(long, value_enum, default_value_t = Choice::Exact)]
    fidelity: Choice,
    /// Whether repeated stat calls are seen (exact) or answered by the kernel for some seconds
    /// (cached) [default: as --fidelity]
    #[arg(long, value_enum, hide_default_value = true)]
    stat: Option<Choice>,
    /// Record only files that match; may be given several times
    ///
    /// As in a .gitignore: '*.fits' is about names anywhere below a traced directory, 'raw/*.fits'
    /// and './*.fits' about paths from there, '/data/raw' about whole paths; a directory covers
    /// all below it. Everything else still passes through and is counted.
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Do not record files that match; may be given several times
    ///
    /// Patterns as for --include; where both match, the file is left out.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// How the kernel hands file calls to flowtrace
    #[arg(long, value_enum, default_value_t = TransportChoice::Auto, hide_short_help = true)]
    transport: TransportChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Choice {
    /// Every call reaches the trace
    Exact,
    /// The kernel answers by itself what it knows
    Cached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TransportChoice {
    /// Over io_uring as root on Linux 6.18 and newer, with up to 64 processors; else by /dev/fuse
    Auto,
    /// Over io_uring, or not at all (root, Linux 6.14)
    IoUring,
    /// By reads and writes of /dev/fuse
    Device,
}

impl From<TransportChoice> for Transport {
    fn from(choice: TransportChoice) -> Transport {
        match choice {
            TransportChoice::Auto => Transport::Auto,
            TransportChoice::IoUring => Transport::IoUring,
            TransportChoice::Device => Transport::Device,
        }
    }
}

impl Args {
    /// Whether not every read is seen.
    pub(crate) fn is_cached(&self) -> bool {
        self.fidelity == Choice::Cached
    }

    pub(crate) fn seeing(&self) -> Result<Seeing, Failure> {
        let filter = Filter::new(&self.include, &self.exclude).map_err(|error| {
            let message = format!("--include or --exclude: {error}");
            Failure::new(OWN_FAILURE, message)
                .hint("a pattern is like '*.fits', 'part-?', '{a,b}.txt', 'raw/**' or '/data/raw'")
        })?;
        Ok(Seeing {
            cached: self.fidelity == Choice::Cached,
            attribute_ttl: match self.stat.unwrap_or(self.fidelity) {
                Choice::Exact => Duration::ZERO,
                Choice::Cached => CACHED_TTL,
            },
            transport: self.transport.into(),
            filter,
        })
    }
}
