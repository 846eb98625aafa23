//! The results that the profiler infers and stores: the derived columns of a trace.

use super::Trace;
use crate::{Error, HostId, Result, Upid, store};

/// The relation of the clock of a host to the common scale: `common = t + offset_ns - t * drift_ppb / 10^9`
/// for its time `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockCorrection {
    /// To add at time 0.
    pub offset_ns: i64,
    /// The clock runs faster than the scale by so many parts per billion.
    pub drift_ppb: i64,
    /// Bound of the error of both; `None`: not estimated.
    pub error_ns: Option<i64>,
}

/// For a trace that was opened by [`Trace::open_to_store`].
impl Trace {
    /// Stores the rules that the profiler inferred.
    ///
    /// # Errors
    /// If the file cannot be written, or another program has locked it.
    pub fn store_rules(&self, rules: impl IntoIterator<Item = (Upid, String)>) -> Result<()> {
        self.change("cannot store rules in", |transaction| {
            let mut update = transaction.prepare("UPDATE process SET rule = ?2 WHERE upid = ?1")?;
            for (upid, rule) in rules {
                update.execute((i64::from(upid), rule))?;
            }
            Ok(())
        })
    }

    /// Stores ends of pipes and FIFOs that samples show to be used, once a recording is complete: a process
    /// that was seen to wait at a side uses it, even a fork that closed neither side and of which no other
    /// record says so.
    ///
    /// # Errors
    /// Likewise.
    pub fn store_inferred_ends(&self) -> Result<()> {
        self.change("cannot store ends of channels in", |transaction| {
            transaction.execute_batch(&store::INFERRED_ENDS)
        })
    }

    /// Stores the relations of the clocks of hosts, which the profiler finds from packets; the views apply
    /// them.
    ///
    /// # Errors
    /// Likewise.
    pub fn store_clocks(
        &self,
        clocks: impl IntoIterator<Item = (HostId, ClockCorrection)>,
    ) -> Result<()> {
        self.change("cannot store clocks in", |transaction| {
            let mut update = transaction.prepare(
                "UPDATE host SET clock_offset_ns = ?2, clock_drift_ppb = ?3, clock_error_ns = ?4,
                   clock_method = 'packets'
                 WHERE host_id = ?1",
            )?;
            for (host, clock) in clocks {
                update.execute((
                    i64::from(host),
                    clock.offset_ns,
                    clock.drift_ppb,
                    clock.error_ns,
                ))?;
            }
            Ok(())
        })
    }

    fn change(
        &self,
        what: &'static str,
        changes: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<()> {
        let store = || -> rusqlite::Result<()> {
            let transaction = self.db.unchecked_transaction()?;
            changes(&transaction)?;
            transaction.commit()
        };
        store().map_err(|source| Error::Sqlite {
            what,
            path: self.path.clone(),
            source,
        })
    }
}
