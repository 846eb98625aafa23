//! Where this kernel keeps what the programs read.

use std::io;

use crate::bpf::btf::Types;

/// Offsets of members in their structures, bytes.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    // Of a task.
    pub(super) tid: i32,
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) leader: i32,
    pub(super) memory: i32,
    pub(super) filesystem: i32,
    pub(super) signal: i32,
    pub(super) exit_code: i32,
    pub(super) start: i32,
    pub(super) name: i32,
    pub(super) number: i32,
    // Of the number of a task, which it has in each pid namespace that it is in.
    pub(super) level: i32,
    pub(super) numbers: i32,
    // Of what the threads of a process share.
    pub(super) group_exit_code: i32,
    pub(super) group_flags: i32,
    pub(super) peak_memory: i32,
    // Of an address space.
    /// Where their begin and end are.
    pub(super) arguments: (i32, i32),
    pub(super) environment: (i32, i32),
    pub(super) executable: i32,
    // Of files, directories and mounts.
    pub(super) path_of_file: i32,
    pub(super) working_directory: i32,
    pub(super) parent_directory: i32,
    pub(super) name_of_entry: i32,
    pub(super) hashed: i32,
    pub(super) mount_root: i32,
    pub(super) mount: i32,
    pub(super) parent_mount: i32,
    pub(super) mount_point: i32,
    /// What a task used, in the order of [`COSTS`]; `None`: this kernel does not count it.
    pub(super) costs: [Option<i32>; COSTS.len()],
}

/// Members of a task that say what it used.
pub(super) const COSTS: [&str; 13] = [
    "se.sum_exec_runtime",
    "se.exec_start",
    "utime",
    "stime",
    "sched_info.run_delay",
    "min_flt",
    "maj_flt",
    "nvcsw",
    "nivcsw",
    "ioac.syscr",
    "ioac.syscw",
    "ioac.rchar",
    "ioac.wchar",
];
/// The first of them that the kernel may leave out.
const OPTIONAL: usize = 4;

impl Layout {
    /// That of the running kernel.
    ///
    /// # Errors
    /// When the kernel does not tell of its types, or has others than are known here.
    pub(super) fn of_kernel() -> io::Result<Layout> {
        let types = Types::of_kernel()?;
        let offset = |structure: &str, member: &str| {
            let found = types.offset(structure, member);
            let found = found.and_then(|offset| i32::try_from(offset).ok());
            found.ok_or_else(|| {
                io::Error::other(format!("this kernel has no {member} of {structure}"))
            })
        };
        // Arguments of a task that is switched away from, its state among them since Linux 5.18, after our own.
        if types.parameters("btf_trace_sched_switch") != Some(5) {
            return Err(io::Error::other(
                "this kernel tells of switches in another way",
            ));
        }
        let task = |member: &str| offset("task_struct", member);
        let mut costs = [None; COSTS.len()];
        for (index, (place, member)) in costs.iter_mut().zip(COSTS).enumerate() {
            *place = match task(member) {
                Err(error) if index < OPTIONAL => return Err(error),
                found => found.ok(),
            };
        }
        Ok(Layout {
            tid: task("pid")?,
            pid: task("tgid")?,
            parent: task("real_parent")?,
            leader: task("group_leader")?,
            memory: task("mm")?,
            filesystem: task("fs")?,
            signal: task("signal")?,
            exit_code: task("exit_code")?,
            start: task("start_time")?,
            name: task("comm")?,
            number: task("thread_pid")?,
            level: offset("pid", "level")?,
            numbers: offset("pid", "numbers")?,
            group_exit_code: offset("signal_struct", "group_exit_code")?,
            group_flags: offset("signal_struct", "flags")?,
            peak_memory: offset("signal_struct", "maxrss")?,
            arguments: (
                offset("mm_struct", "arg_start")?,
                offset("mm_struct", "arg_end")?,
            ),
            environment: (
                offset("mm_struct", "env_start")?,
                offset("mm_struct", "env_end")?,
            ),
            executable: offset("mm_struct", "exe_file")?,
            path_of_file: offset("file", "f_path")?,
            working_directory: offset("fs_struct", "pwd")?,
            parent_directory: offset("dentry", "d_parent")?,
            name_of_entry: offset("dentry", "d_name.name")?,
            hashed: offset("dentry", "d_hash.pprev")?,
            mount_root: offset("vfsmount", "mnt_root")?,
            mount: offset("mount", "mnt")?,
            parent_mount: offset("mount", "mnt_parent")?,
            mount_point: offset("mount", "mnt_mountpoint")?,
            costs,
        })
    }
}
