//! Arguments of `run` and `mount`: the layer of file calls.

use std::time::Duration;

use flowtrace_tracer::fs::Filter;
use flowtrace_tracer::session::{Seeing, Transport};

use crate::failure::{Failure, OWN_FAILURE};

/// Time for which the kernel may answer from its cache where that is allowed.
const CACHED_TTL: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Record every read (exact), or only those that the page cache cannot answer (cached): faster
    #[arg(long, value_enum, default_value_t = Choice::Exact)]
    fidelity: Choice,
    /// Record repeated stat calls (exact), or let the kernel answer them for some seconds (cached) [default:
    /// as --fidelity]
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
    /// Transport of file calls from the kernel to flowtrace
    #[arg(long, value_enum, default_value_t = TransportChoice::Auto, hide_short_help = true)]
    transport: TransportChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Choice {
    /// Every call is recorded
    Exact,
    /// The kernel answers from its caches
    Cached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TransportChoice {
    /// Over io_uring as root on Linux 6.18 and newer, with up to 64 CPUs; else by /dev/fuse
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
    /// True if some reads are not seen.
    pub(crate) fn is_cached(&self) -> bool {
        self.fidelity == Choice::Cached
    }

    /// True if options are given that only a mount can heed, besides --fidelity.
    pub(crate) fn is_about_mounts(&self) -> bool {
        !self.include.is_empty()
            || !self.exclude.is_empty()
            || self.stat.is_some()
            || self.transport != TransportChoice::Auto
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
