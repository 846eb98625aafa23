//! Reads a trace as it grows.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use flowtrace_schema::{EndRow, GrowingSampleRow, Part, Result, Trace};

use super::images::Images;
use super::limit::{self, Limiting};
use super::machine::Machine;
use super::managers::Managers;
use super::steps::Steps;
use super::traffic::Traffic;

/// Calls are read when they are so old, ns: then shorter ones are all there.
const SETTLED_NS: i64 = 1_000_000_000;
/// Ids of samples that were left out and may come: most, and longest time to wait for one, ns.
const MOST_GAPS: usize = 4096;
const GAP_NS: i64 = 30_000_000_000;
/// Most ends of channels of one image that are kept.
const MOST_ENDS: usize = 64;

/// Follows a trace that grows, or may.
#[derive(Debug)]
pub struct Follower {
    pub(super) trace: Trace,
    is_open: bool,
    pub(super) is_behind: bool,
    pub(super) images: Images,
    pub(super) steps: Steps,
    pub(super) traffic: Traffic,
    pub(super) machine: Machine,
    pub(super) managers: Managers,
    pub(super) channels: Channels,
    pub(super) read: Positions,
    /// Ids of samples that were left out, with the time at which that was seen, ns.
    gaps: BTreeMap<i64, i64>,
    /// The newest time in the trace, ns.
    pub(super) latest_ns: i64,
    /// Id of the last sample at each second: (time, id).
    marks: Vec<(i64, i64, i64)>,
}

/// The last rows that were read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Positions {
    image: i64,
    sample: i64,
    end: i64,
    measure: i64,
    pub(super) call_ns: i64,
}

/// The holders of channels.
#[derive(Debug, Default)]
pub(super) struct Channels {
    /// Holders of each channel: image and direction.
    pub(super) holders: HashMap<i64, Vec<(i64, Direction)>>,
    pub(super) of_inode: HashMap<i64, i64>,
    pub(super) kinds: HashMap<i64, Arc<str>>,
    /// Rows of the ends of each image.
    ends: HashMap<i64, Vec<i64>>,
}

/// Direction of an end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
    Both,
}

impl Follower {
    /// Opens a trace.
    ///
    /// # Errors
    /// When it is no trace of this version, or cannot be read.
    pub fn open(path: &Path) -> Result<Follower> {
        let trace = Trace::open(path)?;
        // Older activities and counters are of no interest now.
        let sample = trace.last_sample_id()?.saturating_sub(OLD_SAMPLES).max(0);
        let nodes = i64::try_from(trace.nodes()?.len()).unwrap_or(0);
        let old = OLD_SAMPLES.max(nodes.saturating_mul(OLD_OF_NODE));
        let measure = trace.last_measure()?.saturating_sub(old).max(0);
        Ok(Follower {
            images: Images::default(),
            steps: Steps::default(),
            traffic: Traffic::default(),
            machine: Machine::default(),
            managers: Managers::default(),
            channels: Channels::default(),
            read: Positions {
                sample,
                measure,
                call_ns: -1,
                ..Positions::default()
            },
            gaps: BTreeMap::new(),
            latest_ns: 0,
            marks: Vec::new(),
            trace,
            is_open: true,
            is_behind: true,
        })
    }

    /// True if a flowtrace is still writing the trace.
    pub fn is_being_recorded(&self) -> bool {
        self.trace.is_being_recorded()
    }

    /// Closes the file until the next [`Follower::advance`], so that the recording can end in the meantime.
    ///
    /// # Errors
    /// When the system has no memory.
    pub fn rest(&mut self) -> Result<()> {
        self.is_open = false;
        self.trace.close()
    }

    /// Reads what has come. Returns true if that was all.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn advance(&mut self) -> Result<bool> {
        let is_all = self.read_more()?;
        self.is_behind = !is_all;
        Ok(is_all)
    }

    fn read_more(&mut self) -> Result<bool> {
        if !self.is_open {
            self.trace.reopen()?;
            self.is_open = true;
        }
        let is_live = self.is_being_recorded();
        // Rows that refer to images are read before these, so that each finds its image.
        let samples = self.trace.samples_after(self.read.sample)?;
        let newest = self.trace.newest_call_ns()?.unwrap_or(-1);
        let ends = self.trace.ends_after(self.read.end)?;
        let began = self.trace.began_after(self.read.image)?;
        let mut is_all = samples.is_all && ends.is_all && began.is_all;
        if let Some(last) = began.rows.last() {
            self.read.image = last.upid;
        }
        for row in &began.rows {
            self.latest_ns = self.latest_ns.max(row.start_ns);
        }
        self.images.add(began.rows, &mut self.steps);
        for row in ends.rows {
            self.read.end = row.end_id;
            self.add_end(row);
        }
        // While images are missing, nothing can be added to them.
        if !is_all && !began.is_all {
            return Ok(false);
        }
        if let (true, Some(first)) = (self.marks.is_empty(), samples.rows.first()) {
            let Positions {
                sample, measure, ..
            } = self.read;
            self.marks.push((first.t_ns, sample, measure));
        }
        for row in samples.rows {
            self.note_gaps(row.sample_id);
            self.read.sample = row.sample_id;
            self.add_sample(&row);
        }
        self.read_again()?;
        self.end_images()?;
        self.latest_ns = self.latest_ns.max(newest);
        let until = match is_live {
            true => self.latest_ns - SETTLED_NS,
            false => self.latest_ns,
        };
        if until > self.read.call_ns {
            let (calls, read_until) = self.trace.data_between(self.read.call_ns, until)?;
            self.read.call_ns = read_until;
            is_all &= read_until >= until;
            for call in calls {
                self.traffic.add(&call, &self.images, &mut self.steps);
            }
        }
        let measured = self.trace.measured_after(self.read.measure)?;
        is_all &= measured.is_all;
        if let Some(last) = measured.rows.last() {
            self.read.measure = last.row_id;
            self.latest_ns = self.latest_ns.max(last.t_ns);
        }
        self.machine.add(measured.rows);
        if self
            .marks
            .last()
            .is_none_or(|&(at, ..)| self.latest_ns >= at + 1_000_000_000)
        {
            self.marks
                .push((self.latest_ns, self.read.sample, self.read.measure));
            let old = self.marks.len().saturating_sub(limit::WINDOWS + 30);
            self.marks.drain(..old);
        }
        Ok(is_all)
    }

    /// Samples get their ids when they begin, and some are stored when they end.
    fn note_gaps(&mut self, id: i64) {
        let from = self.read.sample.saturating_add(1);
        if self.read.sample > 0 && id.saturating_sub(from) < MOST_GAPS as i64 {
            for gap in from..id {
                self.gaps.insert(gap, self.latest_ns);
            }
        }
        while self.gaps.len() > MOST_GAPS {
            self.gaps.pop_first();
        }
    }

    /// Reads again the rows that may have changed: the last one of each living thread, and those left out.
    fn read_again(&mut self) -> Result<()> {
        for id in self.images.open_samples() {
            if let Some(row) = self.trace.sample(id)? {
                self.add_sample(&row);
            }
        }
        let missing: Vec<i64> = self.gaps.keys().copied().collect();
        for id in missing {
            if let Some(row) = self.trace.sample(id)? {
                self.gaps.remove(&id);
                self.add_sample(&row);
            }
        }
        let latest = self.latest_ns;
        self.gaps.retain(|_, since| latest - *since < GAP_NS);
        Ok(())
    }

    fn add_sample(&mut self, row: &GrowingSampleRow) {
        self.latest_ns = self.latest_ns.max(row.end_ns);
        self.images.sampled(row);
    }

    fn end_images(&mut self) -> Result<()> {
        for place in self.images.living() {
            let upid = self.images.upid(place);
            if let Some(end) = self.trace.ended(upid)? {
                self.latest_ns = self.latest_ns.max(end.end_ns);
                self.images.end(place, end, &mut self.steps);
            }
        }
        Ok(())
    }

    fn add_end(&mut self, row: EndRow) {
        let direction = match &*row.direction {
            "read" => Direction::Read,
            "write" => Direction::Write,
            _ => Direction::Both,
        };
        if let Some(inode) = row.inode {
            self.channels.of_inode.insert(inode, row.channel_id);
        }
        let holders = self.channels.holders.entry(row.channel_id).or_default();
        if holders.len() < MOST_ENDS {
            holders.push((row.upid, direction));
        }
        let ends = self.channels.ends.entry(row.upid).or_default();
        if ends.len() < MOST_ENDS {
            ends.push(row.end_id);
        }
        let is_socket = !matches!(&*row.kind, "pipe" | "fifo");
        self.channels.kinds.insert(row.channel_id, row.kind);
        // A shell has both ends of the pipes of its programs open, and moves nothing.
        let step = |upid| self.images.step_that_works(upid, &self.steps);
        let Some(own) = step(row.upid) else { return };
        let others: Vec<(usize, Direction)> = self.channels.holders[&row.channel_id]
            .iter()
            .filter_map(|&(upid, direction)| Some((step(upid)?, direction)))
            .collect();
        for (other, theirs) in others {
            match (direction, theirs) {
                (Direction::Write, Direction::Read) => self.steps.connect(own, other, is_socket),
                (Direction::Read, Direction::Write) => self.steps.connect(other, own, is_socket),
                _ => {}
            }
        }
    }
}

/// Samples, and values of counters, that are read of a trace that is there already.
const OLD_SAMPLES: i64 = 20_000;
/// Values of counters of each machine that an agent watched: all that were collected for some 25 s.
const OLD_OF_NODE: i64 = 1_000;
/// Most rows of a kind that the search for the limit takes.
const MOST_IMAGES: usize = 3_000;
const MOST_SAMPLES: i64 = 40_000;
const MOST_CALLS: u32 = 20_000;

impl Follower {
    /// The step or channel that limits the run now: the algorithms of `bottlenecks` over the last complete windows.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn limiting(&self) -> Result<Limiting> {
        let wanted_ns = self.latest_ns - limit::WINDOWS as i64 * limit::WINDOW_NS;
        let before = self.marks.partition_point(|&(at, ..)| at <= wanted_ns);
        let mark = self.marks.get(before.saturating_sub(1));
        // Nothing limits a run without processes.
        let mark = mark.filter(|_| self.images.programs > 0);
        let Some(&(from_ns, sample, measure)) = mark else {
            return Ok(Limiting::default());
        };
        let images = self.images.since(from_ns, MOST_IMAGES);
        let image = |&place: &usize| {
            let image = self.images.get(place);
            (
                image.program.upid,
                self.steps.rows[image.step].name.to_string(),
            )
        };
        let part = Part {
            from_ns,
            images: images.iter().map(image).collect(),
            after_sample: sample.max(self.read.sample.saturating_sub(MOST_SAMPLES)),
            samples: self.images.open_samples(),
            ends: images
                .iter()
                .filter_map(|&place| self.channels.ends.get(&self.images.upid(place)))
                .flatten()
                .copied()
                .collect(),
            calls: MOST_CALLS,
            after_measure: measure,
        };
        let number = |name: &str| self.steps.place(name);
        let mut limiting = limit::limiting(&self.trace.part(&part)?, from_ns, number)?;
        // The copy may have rows that are not read yet.
        limiting.until_ns = limiting.until_ns.min(self.latest_ns);
        Ok(limiting)
    }
}
