//! The parts of a trace that the generator needs beyond the model: directories, descriptors,
//! environments, names over time and single actions.

use std::collections::{BTreeMap, HashMap, HashSet};

use flowtrace_schema::{ActionRow, DescriptorRow, NameRow, ProcessRow};

use super::ast::Given;
use crate::model::{ProcessId, Workflow};

/// The reason why no specification can be made of a trace at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The deficiency of the trace.
    pub reason: String,
    /// Advice to the user.
    pub hint: &'static str,
}

/// The processes that shells gave to programs as files.
#[derive(Debug, Default)]
pub(super) struct Substitutions {
    /// Processes given to a program, by the image of the program.
    pub(super) of: HashMap<i64, Vec<Given<ProcessId>>>,
    /// The process of the program that a process was given to.
    pub(super) owner: HashMap<ProcessId, ProcessId>,
}

impl Substitutions {
    /// Returns true if `above` started `process` or was given it, directly or through any number of
    /// processes. Then `above` cannot be given to `process`.
    pub(super) fn is_above(&self, source: &Source, above: ProcessId, process: ProcessId) -> bool {
        let mut at = Some(process);
        while let Some(one) = at {
            if one == above {
                return true;
            }
            let parent = || source.workflow.process(one).parent;
            at = self.owner.get(&one).copied().or_else(parent);
        }
        false
    }
}

/// Variables that shells and make set for their commands, and will set again.
const OF_SHELLS: &[&str] = &["MAKELEVEL", "OLDPWD", "PWD", "SHLVL", "_"];

/// A trace, read for the generator.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) workflow: Workflow,
    /// Images by upid.
    pub(super) rows: HashMap<i64, ProcessRow>,
    /// Process of each image.
    pub(super) process_of: HashMap<i64, ProcessId>,
    pub(super) children: Vec<Vec<ProcessId>>,
    pub(super) descriptors: HashMap<i64, Vec<DescriptorRow>>,
    /// Text that a shell wrote for an image to read from a descriptor, by image and descriptor.
    pub(super) here_documents: HashMap<(i64, i64), String>,
    /// Umask of each image that does not have that of the first one.
    pub(super) umask: HashMap<i64, Option<i64>>,
    /// Environment of each image that does not have that of the first one.
    pub(super) environment: HashMap<i64, Option<i64>>,
    pub(super) variables: HashMap<i64, BTreeMap<String, String>>,
    /// Names of each file in the order of time.
    pub(super) names: HashMap<i64, Vec<NameRow>>,
    /// Files that ever had a name, by that name.
    pub(super) files_named: HashMap<String, Vec<i64>>,
    pub(super) directories: HashSet<i64>,
    /// Symbolic links.
    pub(super) links: HashSet<i64>,
    /// FIFOs with a name below a traced directory.
    pub(super) named_fifos: HashSet<i64>,
    pub(super) actions: Vec<ActionRow>,
    /// Places in `actions` of the actions of each image that changed a file not of the system.
    pub(super) changes: HashMap<i64, Vec<usize>>,
    /// Inodes of the pipes that an image may have written to. Pipes that it certainly did not use are
    /// left out. `pipe_reads` likewise.
    pub(super) pipe_writes: HashMap<i64, HashSet<i64>>,
    pub(super) pipe_reads: HashMap<i64, HashSet<i64>>,
    /// Pipes that an image had open under other descriptors than the standard ones: descriptor, inode,
    /// true if open for reading.
    pub(super) other_pipes: HashMap<i64, Vec<(i64, i64, bool)>>,
    /// Images that had a FIFO open, by channel.
    pub(super) fifos: BTreeMap<i64, Vec<i64>>,
    /// Directory in which the run was started.
    pub(super) root: String,
    /// First image of the run.
    pub(super) first_upid: i64,
    /// Processes that a shell gave to programs as files.
    pub(super) substitutions: Substitutions,
    /// Files that each image read.
    pub(super) read_files: HashSet<(i64, i64)>,
}

impl Source {
    /// The umask of the first image, if known.
    pub(super) fn first_umask(&self) -> Option<i64> {
        self.umask.get(&self.first_upid).copied().flatten()
    }

    /// The umask of an image if it differs from that of the first.
    pub(super) fn other_umask(&self, upid: i64) -> Option<i64> {
        let own = self.umask.get(&upid).copied().flatten()?;
        (Some(own) != self.first_umask()).then_some(own)
    }

    /// Returns true if the environment of an image differs from that of the first, be it in a variable
    /// that was not recorded.
    pub(super) fn has_other_environment(&self, upid: i64) -> bool {
        let own = self.environment.get(&upid).copied().flatten();
        let first = self.environment.get(&self.first_upid).copied().flatten();
        own.is_some() && own != first
    }

    /// The recorded variables of an image that the first image had not, or had with another value.
    pub(super) fn other_variables(&self, upid: i64) -> Vec<(&str, &str)> {
        let first = self.variables.get(&self.first_upid);
        let own = self.variables.get(&upid).into_iter().flatten();
        own.filter(|(name, value)| {
            !OF_SHELLS.contains(&name.as_str())
                && first.and_then(|first| first.get(*name)) != Some(*value)
        })
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
    }

    /// Recorded variables that the first image had and this one has not.
    pub(super) fn lacks_variables(&self, upid: i64) -> impl Iterator<Item = &str> {
        let own = self.variables.get(&upid);
        let first = self.variables.get(&self.first_upid).into_iter().flatten();
        let lacking = first.filter(move |(name, _)| {
            !OF_SHELLS.contains(&name.as_str()) && own.is_none_or(|own| !own.contains_key(*name))
        });
        lacking.map(|(name, _)| name.as_str())
    }

    /// Returns true if the process of an image, or one below it, read from a file, or may have: reads
    /// outside the traced directories are not recorded.
    pub(super) fn may_read(&self, upid: i64, path: &str) -> bool {
        if !self.is_traced(path) {
            return true;
        }
        let files = self.files_named.get(path).map_or(&[][..], Vec::as_slice);
        let mut processes: Vec<ProcessId> =
            self.process_of.get(&upid).copied().into_iter().collect();
        while let Some(process) = processes.pop() {
            let images = self.workflow.images(process);
            if images.iter().any(|image| {
                files
                    .iter()
                    .any(|&file| self.read_files.contains(&(image.upid, file)))
            }) {
                return true;
            }
            processes.extend(&self.children[process.0 as usize]);
        }
        false
    }

    /// The names that a file had at some time between two instants.
    pub(super) fn names_during(
        &self,
        file_id: i64,
        from: i64,
        to: i64,
    ) -> impl Iterator<Item = &NameRow> {
        let names = self.names.get(&file_id).into_iter().flatten();
        names.filter(move |name| name.from_ns <= to && name.to_ns.is_none_or(|end| end >= from))
    }

    /// Returns true if anything may have been written into a pipe, given by its name in /proc.
    pub(super) fn is_written(&self, pipe: &str) -> bool {
        let mut written = self.pipe_writes.values();
        inode_of_pipe(pipe).is_none_or(|inode| written.any(|inodes| inodes.contains(&inode)))
    }

    /// Returns true if an image may have written into a pipe, given by its name in /proc.
    pub(super) fn may_write_pipe(&self, upid: i64, pipe: &str) -> bool {
        let written = self.pipe_writes.get(&upid);
        inode_of_pipe(pipe)
            .zip(written)
            .is_some_and(|(inode, written)| written.contains(&inode))
    }

    /// Returns true if a program, a later image of its process, or any process that it started may have
    /// read from a pipe, given by its name in /proc.
    pub(super) fn may_read_pipe(&self, upid: i64, pipe: &str) -> bool {
        let (Some(inode), Some(&process)) = (inode_of_pipe(pipe), self.process_of.get(&upid))
        else {
            return true;
        };
        let reads = |image: &i64| {
            let read = self.pipe_reads.get(image);
            read.is_some_and(|inodes| inodes.contains(&inode))
        };
        let mut waiting = vec![process];
        while let Some(one) = waiting.pop() {
            let images = self.workflow.images(one).iter().map(|image| image.upid);
            if images
                .filter(|&image| image >= upid)
                .any(|image| reads(&image))
            {
                return true;
            }
            waiting.extend(&self.children[one.0 as usize]);
        }
        false
    }

    /// The first regular file that had this name between two instants.
    pub(super) fn first_file(&self, path: &str, from: i64, to: i64) -> Option<i64> {
        let files = self.files_named.get(path)?.iter().copied();
        let regular = files.filter(|&file_id| self.is_regular(file_id));
        let since = |file_id: i64| {
            let names = self.names[&file_id].iter();
            let mine = names.filter(|name| name.path == path && name.from_ns <= to);
            let last = mine.filter(|name| name.to_ns.is_none_or(|end| end >= from));
            last.map(|name| (name.from_ns, file_id)).min()
        };
        regular.filter_map(since).min().map(|(_, file_id)| file_id)
    }

    /// Returns true if a file was known under another name before it was under this one.
    pub(super) fn is_renamed(&self, file_id: i64, path: &str) -> bool {
        let names = self.names.get(&file_id).map_or(&[][..], Vec::as_slice);
        let first = names.iter().find(|name| name.path == path);
        first.is_some_and(|own| {
            names
                .iter()
                .any(|other| other.path != path && other.from_ns < own.from_ns)
        })
    }

    /// The names directly below a directory at an instant.
    pub(super) fn names_in<'a>(
        &'a self,
        directory: &'a str,
        at: i64,
    ) -> impl Iterator<Item = &'a str> {
        let is_in = move |path: &str| {
            path.rsplit_once('/')
                .is_some_and(|(above, _)| above == directory)
        };
        let names = self.names.values().flatten();
        names
            .filter(move |name| {
                is_in(&name.path) && name.from_ns <= at && name.to_ns.is_none_or(|end| end >= at)
            })
            .map(|name| name.path.as_str())
    }

    /// The names that were ever directly below a directory.
    pub(super) fn names_ever_in<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a str> {
        let names = self.files_named.keys().map(String::as_str);
        names.filter(move |path| {
            path.rsplit_once('/')
                .is_some_and(|(above, _)| above == directory)
        })
    }

    /// Returns true if the trace has a file or directory that ever had this name.
    pub(super) fn is_known(&self, path: &str) -> bool {
        self.files_named.contains_key(path)
    }

    /// The directories that existed at the end of the run.
    pub(super) fn last_directories(&self) -> impl Iterator<Item = &str> {
        let names = self
            .directories
            .iter()
            .filter_map(|file| self.names.get(file));
        let names = names.flatten().filter(|name| name.to_ns.is_none());
        names.map(|name| name.path.as_str())
    }

    /// The regular file that had this name at an instant.
    pub(super) fn file_at(&self, path: &str, at: i64) -> Option<i64> {
        let had_it = |name: &NameRow| {
            name.path == path && name.from_ns <= at && name.to_ns.is_none_or(|end| end >= at)
        };
        let files = self.files_named.get(path)?.iter().copied();
        let mut files = files.filter(|&file_id| self.is_regular(file_id));
        files.find(|file_id| self.names[file_id].iter().any(had_it))
    }

    /// Returns true if a directory had this name at an instant.
    pub(super) fn is_directory_at(&self, path: &str, at: i64) -> bool {
        self.is_named(&self.directories, path, at, at)
    }

    /// Returns true if a directory had this name at some time between two instants.
    pub(super) fn is_directory_during(&self, path: &str, from: i64, to: i64) -> bool {
        self.is_named(&self.directories, path, from, to)
    }

    /// Returns true if a symbolic link had this name at some time between two instants.
    pub(super) fn is_link_during(&self, path: &str, from: i64, to: i64) -> bool {
        self.is_named(&self.links, path, from, to)
    }

    fn is_named(&self, kind: &HashSet<i64>, path: &str, from: i64, to: i64) -> bool {
        let had_it = |name: &NameRow| {
            name.path == path && name.from_ns <= to && name.to_ns.is_none_or(|end| end >= from)
        };
        let files = self.files_named.get(path).into_iter().flatten();
        let mut files = files.filter(|file_id| kind.contains(file_id));
        files.any(|file_id| self.names[file_id].iter().any(had_it))
    }

    /// Returns true if a symbolic link or a FIFO had this name at an instant.
    pub(super) fn is_link_or_fifo_at(&self, path: &str, at: i64) -> bool {
        self.is_named(&self.links, path, at, at) || self.is_named(&self.named_fifos, path, at, at)
    }

    /// The symbolic links that existed at the end of the run.
    pub(super) fn last_links(&self) -> impl Iterator<Item = &str> {
        let names = self.links.iter().filter_map(|file| self.names.get(file));
        let names = names.flatten().filter(|name| name.to_ns.is_none());
        names.map(|name| name.path.as_str())
    }

    /// Returns true if the graph takes a file for one of the system, which the workflow did not make.
    pub(super) fn is_of_machine(&self, file_id: i64) -> bool {
        let file = self.workflow.file_with(file_id);
        file.is_some_and(|file| file.is_system)
    }

    /// Returns true for a regular file; false for a directory, and for a name that no file had.
    pub(super) fn is_regular(&self, file_id: i64) -> bool {
        let file = self.workflow.file_with(file_id);
        file.is_some_and(|file| file.is_regular)
    }

    /// Returns true if all calls on files at this path were recorded, and not only opens.
    pub(super) fn is_traced(&self, path: &str) -> bool {
        let mut directories = self.workflow.directories.iter();
        directories.any(|directory| crate::paths::below(path, &directory.path).is_some())
    }
}

/// The inode in the kernel's name of a pipe, `pipe:[INODE]`.
fn inode_of_pipe(pipe: &str) -> Option<i64> {
    pipe.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()
}
