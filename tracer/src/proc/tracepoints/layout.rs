//! Where this kernel keeps what the programs read.

use std::io;

use crate::bpf::btf::Types;
use crate::bpf::pages::{Pages, Way};

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
    /// Bits of this architecture; `None`: it has none.
    pub(super) personality: Option<i32>,
    // Of files, directories and mounts.
    pub(super) path_of_file: i32,
    pub(super) working_directory: i32,
    pub(super) umask: i32,
    pub(super) parent_directory: i32,
    pub(super) name_of_entry: i32,
    pub(super) hashed: i32,
    pub(super) entry_flags: i32,
    pub(super) inode_of_entry: i32,
    /// Of an inode: how many names it has.
    pub(super) links: i32,
    pub(super) mount_root: i32,
    pub(super) mount: i32,
    pub(super) parent_mount: i32,
    pub(super) mount_point: i32,
    /// What a task used, in the order of [`COSTS`]; `None`: this kernel does not count it.
    pub(super) costs: [Option<i32>; COSTS.len()],
    /// Where a processor's clock is found from a task; `None`: nowhere.
    pub(super) queue: Option<Queue>,
    pub(super) live_threads: i32,
    pub(super) open: Open,
    pub(super) calls: Calls,
}

/// Offsets of what leads from a task to the queue of its processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Of a task: the tasks of its group that wait there, too.
    pub(super) of_task: i32,
    /// Of those.
    pub(super) of_group: i32,
    // Of the queue.
    pub(super) flags: i32,
    pub(super) clock: i32,
    pub(super) task_clock: i32,
}

/// Offsets of what tells of a call and of sockets.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    /// Number of the type of functions that are called when a call returns.
    pub(super) returns: u32,
    /// Of a task: bits, among them whether it is in a call of a 32-bit program.
    pub(super) status: i32,
    /// Of an open file: the socket that it is.
    pub(super) of_file: i32,
    // Of a socket as a file.
    pub(super) kind: i32,
    pub(super) of_network: i32,
    pub(super) inode: i32,
    // Of one in the network.
    pub(super) family: i32,
    pub(super) state: i32,
    pub(super) local_port: i32,
    pub(super) peer_port: i32,
    /// By IPv4 and by IPv6.
    pub(super) local: (i32, i32),
    pub(super) peer: (i32, i32),
    pub(super) socket: i32,
    // Of one of the domain UNIX.
    pub(super) other: i32,
    pub(super) address: i32,
    // Of an address there.
    pub(super) length: i32,
    pub(super) name: i32,
}

/// Offsets of what leads from a task to what it has open.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// Of a task.
    pub(super) files: i32,
    /// Of that.
    pub(super) table: i32,
    // Of the table.
    pub(super) most: i32,
    pub(super) all: i32,
    /// A bit for each descriptor.
    pub(super) in_use: i32,
    // Of an open file.
    pub(super) mode: i32,
    pub(super) flags: i32,
    pub(super) position: i32,
    pub(super) inode: i32,
    // Of an inode.
    pub(super) kind: i32,
    pub(super) number: i32,
    pub(super) generation: i32,
    pub(super) size: i32,
    pub(super) filesystem: i32,
    pub(super) pipe: i32,
    /// Of a filesystem.
    pub(super) device: i32,
    // Of a pipe.
    pub(super) writers: i32,
    pub(super) head: i32,
    pub(super) tail: i32,
    /// How many buffers it may fill, and has: a power of 2.
    pub(super) room: i32,
    pub(super) slots: i32,
    pub(super) buffers: i32,
    // Of a buffer.
    pub(super) length: i32,
    pub(super) page: i32,
    /// Within the page.
    pub(super) place: i32,
    pub(super) bytes_of_buffer: i32,
    /// Of a page, its description.
    pub(super) bytes_of_page: i32,
}

impl Open {
    /// Where the kernel has what is in pages. `None`: not where it is looked for.
    pub(super) fn pages(&self) -> Option<Pages> {
        Pages::find(&Way {
            to_files: [self.files, self.table, self.all],
            to_buffers: [self.inode, self.pipe, self.buffers],
            page: self.page,
            described: u64::try_from(self.bytes_of_page).ok()?,
        })
    }
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

/// `None`: this kernel has it otherwise.
fn queue(types: &Types) -> Option<Queue> {
    let offset = |structure, member| types.displacement(structure, member);
    Some(Queue {
        of_task: offset("task_struct", "se.cfs_rq")?,
        of_group: offset("cfs_rq", "rq")?,
        flags: offset("rq", "clock_update_flags")?,
        clock: offset("rq", "clock")?,
        task_clock: offset("rq", "clock_task")?,
    })
}

impl Layout {
    /// That of the running kernel.
    ///
    /// # Errors
    /// When the kernel does not tell of its types, or has others than are known here.
    pub(super) fn of_kernel() -> io::Result<Layout> {
        let types = Types::of_kernel()?;
        let offset = |structure: &str, member: &str| {
            let found = types.displacement(structure, member);
            found.ok_or_else(|| {
                io::Error::other(format!("this kernel has no {member} of {structure}"))
            })
        };
        let size = |structure: &str| {
            let found = types.size(structure);
            let found = found.and_then(|size| i32::try_from(size).ok());
            found.ok_or_else(|| io::Error::other(format!("this kernel has no {structure}")))
        };
        if !types.tell_states_of_switches() {
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
            personality: offset("mm_struct", "context.flags").ok(),
            path_of_file: offset("file", "f_path")?,
            working_directory: offset("fs_struct", "pwd")?,
            umask: offset("fs_struct", "umask")?,
            parent_directory: offset("dentry", "d_parent")?,
            name_of_entry: offset("dentry", "d_name.name")?,
            hashed: offset("dentry", "d_hash.pprev")?,
            entry_flags: offset("dentry", "d_flags")?,
            inode_of_entry: offset("dentry", "d_inode")?,
            links: offset("inode", "i_nlink")?,
            mount_root: offset("vfsmount", "mnt_root")?,
            mount: offset("mount", "mnt")?,
            parent_mount: offset("mount", "mnt_parent")?,
            mount_point: offset("mount", "mnt_mountpoint")?,
            costs,
            queue: queue(types),
            live_threads: offset("signal_struct", "live")?,
            open: Open {
                files: task("files")?,
                table: offset("files_struct", "fdt")?,
                most: offset("fdtable", "max_fds")?,
                all: offset("fdtable", "fd")?,
                in_use: offset("fdtable", "open_fds")?,
                mode: offset("file", "f_mode")?,
                flags: offset("file", "f_flags")?,
                position: offset("file", "f_pos")?,
                inode: offset("file", "f_inode")?,
                kind: offset("inode", "i_mode")?,
                number: offset("inode", "i_ino")?,
                generation: offset("inode", "i_generation")?,
                size: offset("inode", "i_size")?,
                filesystem: offset("inode", "i_sb")?,
                pipe: offset("inode", "i_pipe")?,
                device: offset("super_block", "s_dev")?,
                writers: offset("pipe_inode_info", "writers")?,
                head: offset("pipe_inode_info", "head")?,
                tail: offset("pipe_inode_info", "tail")?,
                room: offset("pipe_inode_info", "max_usage")?,
                slots: offset("pipe_inode_info", "ring_size")?,
                buffers: offset("pipe_inode_info", "bufs")?,
                length: offset("pipe_buffer", "len")?,
                page: offset("pipe_buffer", "page")?,
                place: offset("pipe_buffer", "offset")?,
                bytes_of_buffer: size("pipe_buffer")?,
                bytes_of_page: size("page")?,
            },
            calls: Calls {
                returns: types.typedef("btf_trace_sys_exit").ok_or_else(|| {
                    io::Error::other("this kernel does not tell the type of sys_exit")
                })?,
                status: task("thread_info.status")?,
                of_file: offset("file", "private_data")?,
                kind: offset("socket", "type")?,
                of_network: offset("socket", "sk")?,
                inode: offset("socket_alloc", "vfs_inode")?,
                family: offset("sock_common", "skc_family")?,
                state: offset("sock_common", "skc_state")?,
                local_port: offset("sock_common", "skc_num")?,
                peer_port: offset("sock_common", "skc_dport")?,
                local: (
                    offset("sock_common", "skc_rcv_saddr")?,
                    offset("sock_common", "skc_v6_rcv_saddr")?,
                ),
                peer: (
                    offset("sock_common", "skc_daddr")?,
                    offset("sock_common", "skc_v6_daddr")?,
                ),
                socket: offset("sock", "sk_socket")?,
                other: offset("unix_sock", "peer")?,
                address: offset("unix_sock", "addr")?,
                length: offset("unix_address", "len")?,
                name: offset("unix_address", "name")?,
            },
        })
    }
}
