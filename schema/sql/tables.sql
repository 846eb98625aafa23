-- Raw tables of a flowtrace database.
--
-- The public API is views.sql; these tables may change with the version. Rules that hold
-- throughout: times are integer nanoseconds since the start of the run on the host's
-- monotonic clock, sizes are bytes, an open end is NULL, never -1. A text that was not
-- valid UTF-8 is stored with U+FFFD in the text column and its exact bytes in the *_raw
-- column beside it; *_raw is NULL when the text is exact.

-- One recording: a `flowtrace run`, a mount session, a capture.
CREATE TABLE run (
  run_id INTEGER PRIMARY KEY,       -- 1 in a file of one run
  host_id INTEGER NOT NULL,         -- host that recorded
  command TEXT,                     -- command of the run, quoted for a shell; NULL for a mount session
  command_raw BLOB,                 -- exact bytes of command where it is not UTF-8
  cwd TEXT NOT NULL,                -- working directory in which the recording was started
  cwd_raw BLOB,                     -- exact bytes of cwd where it is not UTF-8
  version TEXT NOT NULL,            -- version of flowtrace that recorded
  file_layer TEXT NOT NULL,         -- layer of file calls: kernel, direct-passthrough, direct-mmap, direct, cached, none
  process_layer TEXT NOT NULL,      -- layer of processes: ptrace, ebpf, tracepoints, connector, scan, requests, none
  end_ns INTEGER CHECK (end_ns >= 0), -- end of the recording; NULL: cut short, or still going on
  exit_code INTEGER,                -- exit code of the command
  exit_signal INTEGER,              -- signal that ended the command
  start_ns INTEGER NOT NULL DEFAULT 0, -- begin of the recording: 0, but where several files were merged
  first_upid INTEGER NOT NULL DEFAULT 1, -- process images from this upid on are of this run, up to the next run's
  launcher TEXT,                    -- launcher that started it as one of many: openmpi, mpich, slurm, parallel, ...; NULL: nothing known
  job TEXT,                         -- job of the launcher or batch system
  rank INTEGER,                     -- its number in that job
  recorded_unix_ns INTEGER,         -- wall clock of its machine when it began; NULL: epoch_unix_ns of the host
  source TEXT                       -- file that it was merged from; NULL: this one
) STRICT;

-- A directory whose file calls were recorded.
CREATE TABLE traced_directory (
  run_id INTEGER NOT NULL,          -- run that it belongs to
  path TEXT NOT NULL,               -- absolute path under which the workflow saw it
  path_raw BLOB,                    -- exact bytes of path where it is not UTF-8
  source TEXT,                      -- real directory behind it, when it lies elsewhere (mount sessions)
  source_raw BLOB,                  -- exact bytes of source where it is not UTF-8
  file_layer TEXT NOT NULL,         -- layer of this mount, as in run
  fuse_flags INTEGER,               -- FUSE INIT flags granted by the kernel
  attribute_ttl_ns INTEGER NOT NULL, -- time for which the kernel may answer stat and lookup from its cache; 0: never
  filesystem TEXT                   -- type of the filesystem that the real directory is on, as mount(8) names it; NULL: not known
) STRICT;

-- A machine.
CREATE TABLE host (
  host_id INTEGER PRIMARY KEY,      -- counted from 1
  name TEXT NOT NULL,               -- node name (uname)
  boot_id TEXT,                     -- /proc/sys/kernel/random/boot_id
  system TEXT NOT NULL,             -- kernel name, release and machine (uname)
  cpus INTEGER,                     -- CPUs that are online
  memory_bytes INTEGER,             -- physical memory
  epoch_unix_ns INTEGER NOT NULL,   -- wall clock at time 0, ns since 1970
  clock_offset_ns INTEGER NOT NULL DEFAULT 0, -- to add to this host's times to reach the common scale
  clock_drift_ppb INTEGER NOT NULL DEFAULT 0, -- drift against the common scale, parts per billion; positive: the clock runs fast, and time * drift is to be subtracted
  clock_error_ns INTEGER,           -- bound of the error of both; NULL: not estimated
  clock_method TEXT,                -- method that put its times on the scale of a merged file: same boot, wall clock, packets, exchange
  monotonic_ns INTEGER,             -- monotonic clock of this boot at time 0, without the offsets of time namespaces
  wall_error_ns INTEGER             -- bound of the error of its wall clock as the kernel reported it; NULL: the clock was not synchronised
) STRICT;

-- A process image: one program that a pid ran between two execs. A fork starts a row, an exec ends it and starts the next.
CREATE TABLE process (
  upid INTEGER PRIMARY KEY,         -- own id, never reused in this file; pids are recycled
  host_id INTEGER NOT NULL,         -- host on which it ran
  pid INTEGER NOT NULL,             -- process id in the recorder's pid namespace
  parent_upid INTEGER,              -- image that forked this process; NULL: started by the recorder, or unknown
  prev_upid INTEGER,                -- image before the exec in the same pid
  origin TEXT NOT NULL CHECK (origin IN ('exec', 'fork', 'seen')), -- event that began the image; seen: found running
  exe TEXT,                         -- executable file
  exe_raw BLOB,                     -- exact bytes of exe where it is not UTF-8
  command TEXT,                     -- arguments, quoted for a shell; only the program name where the kernel reported it at the exit and no more is known; NULL: not known, or see command_upid
  argv_raw BLOB,                    -- exact arguments, each ended by a NUL, where command is not UTF-8
  command_upid INTEGER,             -- earlier image whose command and argv_raw are those of this one, too; NULL: this row has them
  cwd TEXT,                         -- working directory when the image began
  cwd_raw BLOB,                     -- exact bytes of cwd where it is not UTF-8
  rule TEXT,                        -- name of the workflow step, inferred by the profiler when the run ends
  start_ns INTEGER NOT NULL,        -- begin of the image
  end_ns INTEGER CHECK (end_ns >= start_ns), -- end of the image (exec or exit); NULL: not seen
  exit_code INTEGER,                -- exit code; NULL when the image ended by exec or signal
  exit_signal INTEGER,              -- signal that ended it
  user_ns INTEGER,                  -- CPU time in user mode, all threads, children not included
  sys_ns INTEGER,                   -- CPU time in the kernel, all threads, children not included
  on_cpu_ns INTEGER,                -- time on a CPU, all threads (schedstat)
  run_queue_ns INTEGER,             -- time runnable but waiting for a CPU, all threads (schedstat)
  tracer_ns INTEGER,                -- time in stops by the tracer, all threads
  max_rss_bytes INTEGER,            -- peak resident memory of the image
  minor_faults INTEGER,             -- page faults without I/O
  major_faults INTEGER,             -- page faults with I/O
  voluntary_switches INTEGER,       -- context switches by waiting
  involuntary_switches INTEGER,     -- context switches by preemption
  read_calls INTEGER,               -- read-like system calls, all files, pipes and sockets
  write_calls INTEGER,              -- write-like system calls, likewise
  read_bytes INTEGER,               -- bytes returned by them, children not included
  write_bytes INTEGER,              -- bytes written by them, likewise
  threads INTEGER,                  -- threads that lived in the image, the first included
  thread_ns INTEGER,                -- sum of the lifetimes of its threads
  block_io_ns INTEGER,              -- time its threads waited for block devices (delay accounting, ticks); NULL: the kernel does not count it
  file_call_ns INTEGER,             -- time of its calls on traced directories, without those for locks; stored when the run ends
  samples INTEGER,                  -- samples of its threads; NULL: none
  sampled_ns INTEGER,               -- thread time that the samples stand for
  sampled_waiting_ns INTEGER,       -- the part of sampled_ns blocked or stopped
  sampled_storage_ns INTEGER,       -- the part of sampled_waiting_ns blocked on storage
  sampled_queue_ns INTEGER,         -- the part of sampled_storage_ns while requests of the thread itself were in a queue of the kernel; NULL: not reported
  sampled_device_ns INTEGER,        -- the part of sampled_storage_ns while a device had requests of the thread itself
  sampled_tracer_ns INTEGER,        -- the part of sampled_ns in stops by the tracer
  waits_exact INTEGER NOT NULL DEFAULT 0 CHECK (waits_exact IN (0, 1)), -- 1: sampled_waiting_ns to sampled_tracer_ns are sums of intervals that the scheduler reported, not of samples
  inner_pid INTEGER,                -- process id in the innermost pid namespace it lived in (a container's); NULL: pid, or not seen
  environment_upid INTEGER          -- image whose rows of environment_variable are those of this one; NULL: it has none
) STRICT;

-- A thread beside a process's first one.
CREATE TABLE thread (
  upid INTEGER NOT NULL,            -- process image it was created in
  tid INTEGER NOT NULL,             -- thread id
  start_ns INTEGER NOT NULL,        -- creation
  end_ns INTEGER CHECK (end_ns >= start_ns) -- end; NULL: not seen
) STRICT;

-- An environment variable that was recorded by name, stored for the first of the images that inherit it unchanged.
CREATE TABLE environment_variable (
  upid INTEGER NOT NULL,            -- process image that had it at its exec, while the image before had others
  name TEXT NOT NULL,               -- variable
  value TEXT NOT NULL,              -- value
  value_raw BLOB                    -- exact bytes of value where it is not UTF-8
) STRICT;

-- A descriptor 0 to 9 that a program began with, where the first program of the run had something else there.
CREATE TABLE descriptor (
  upid INTEGER NOT NULL,            -- process image that began by an exec
  fd INTEGER NOT NULL,              -- descriptor
  target TEXT NOT NULL,             -- path at that time, or the kernel's text, such as pipe:[7]
  target_raw BLOB,                  -- exact bytes of target where it is not UTF-8
  flags INTEGER NOT NULL,           -- open flags that are still in force (O_RDONLY, O_WRONLY, O_RDWR, O_APPEND)
  position INTEGER NOT NULL,        -- position in the file, bytes
  PRIMARY KEY (upid, fd)
) STRICT, WITHOUT ROWID;

-- A here-document: a program began with a pipe that had unread data, which a shell had written before it started the program.
CREATE TABLE here_document (
  upid INTEGER NOT NULL,            -- process image that began by an exec
  fd INTEGER NOT NULL,              -- its descriptor
  channel_id INTEGER NOT NULL,      -- the pipe
  bytes INTEGER NOT NULL,           -- bytes that were unread by then
  content BLOB,                     -- these bytes, in UTF-8, in the first row of each pipe; NULL: they are the end of that content
  PRIMARY KEY (upid, fd)
) STRICT, WITHOUT ROWID;

-- Other properties that a program began with, for the first program of the run and for each program that began with others.
CREATE TABLE setting (
  upid INTEGER PRIMARY KEY,         -- process image that began by an exec
  umask INTEGER,                    -- file mode creation mask
  environment INTEGER,              -- equal for equal environments within the run, without variables recorded by name and without PWD, OLDPWD, SHLVL, _, LINES, COLUMNS and make's own; a keyed hash whose key is not stored
  cpus TEXT,                        -- CPUs that its affinity mask allowed when it began, as 0-3,8; NULL: all that are online
  cpu_quota_ns INTEGER              -- CPU time that the quotas of its control groups (cpu.max) allowed then in each second; NULL: no quota
) STRICT;

-- A file: an inode, not a path. A name that was looked up and not found is a row of kind absent.
CREATE TABLE file (
  file_id INTEGER PRIMARY KEY,      -- own id, never reused in this file
  host_id INTEGER NOT NULL,         -- host on which it was seen
  dev INTEGER,                      -- st_dev; NULL: absent
  ino INTEGER,                      -- st_ino; NULL: absent. Recycled by filesystems, so not unique here
  kind INTEGER NOT NULL,            -- type of the inode, see table file_kind
  size_bytes INTEGER,               -- size when last seen: first sight, or last close after a write
  first_ns INTEGER NOT NULL,        -- first sight
  last_ns INTEGER NOT NULL,         -- end of the last call on it; first_ns until the run has ended
  coverage INTEGER NOT NULL         -- least exact way in which it was seen, see table fidelity
) STRICT;

-- The types a file can have; filled from operations.sql.
CREATE TABLE file_kind (
  kind INTEGER PRIMARY KEY,         -- number used in file
  name TEXT NOT NULL UNIQUE         -- name shown in views
) STRICT;

-- A path of a directory over time; the renaming of a directory closes a row and opens another for it and for each known one below.
CREATE TABLE directory_path (
  directory_id INTEGER NOT NULL,    -- file_id of the directory
  path TEXT NOT NULL,               -- absolute path
  path_raw BLOB,                    -- exact bytes of path where it is not UTF-8
  from_ns INTEGER NOT NULL,         -- first seen under this path
  to_ns INTEGER                     -- renamed away or removed; NULL: to the end
) STRICT;
CREATE INDEX directory_path_id ON directory_path (directory_id);

-- A name of a file in a directory over time (hard links have several at once).
CREATE TABLE file_name (
  file_id INTEGER NOT NULL,         -- the file
  directory_id INTEGER NOT NULL,    -- file_id of the directory that has the name; 0: name is a full path
  name TEXT NOT NULL,               -- last component
  name_raw BLOB,                    -- exact bytes of name where it is not UTF-8
  from_ns INTEGER NOT NULL,         -- first seen under this name
  to_ns INTEGER,                    -- renamed away or removed; NULL: to the end
  PRIMARY KEY (file_id, from_ns, directory_id, name)
) STRICT, WITHOUT ROWID;

-- One file call of one process, kept in the order of time. Of the flags there are open flags (open, create),
-- rename flags and modes (chmod, mkdir, mknod).
CREATE TABLE call (
  start_ns INTEGER PRIMARY KEY,     -- arrival of the request; of several in one ns the later ones get the next ns
  duration_ns INTEGER NOT NULL,     -- time until the reply
  upid INTEGER,                     -- process image; NULL: the kernel itself, or not known
  tid INTEGER,                      -- thread; NULL: the first thread of the process
  what INTEGER NOT NULL,            -- operation + 64 * fidelity + 256 * (1 + flags), without the last term for a call without flags; + 2^48 with fidelity 0: fidelity 4
  file_id INTEGER,                  -- file
  offset INTEGER,                   -- position of data calls
  length INTEGER,                   -- bytes asked for, or the value set, of calls that have one
  result INTEGER                    -- bytes or value, negative errno; NULL: the whole length
) STRICT;

-- The operations a call can be; filled from operations.sql.
CREATE TABLE operation (
  op INTEGER PRIMARY KEY,           -- number used in call
  name TEXT NOT NULL UNIQUE,        -- name shown in views
  class TEXT NOT NULL CHECK (class IN
    ('open', 'close', 'read', 'write', 'namespace', 'attribute', 'directory', 'sync', 'lock', 'control')), -- effect of the operation
  meaning TEXT NOT NULL             -- the system calls that cause it
) STRICT;

-- How exactly a row stands for a call of the application; filled from operations.sql.
CREATE TABLE fidelity (
  fidelity INTEGER PRIMARY KEY,     -- number used in call and file
  name TEXT NOT NULL UNIQUE,        -- name shown in views
  meaning TEXT NOT NULL             -- meaning of the label
) STRICT;

-- A pipe, FIFO or socket that carried data between processes.
CREATE TABLE channel (
  channel_id INTEGER PRIMARY KEY,   -- own id
  host_id INTEGER NOT NULL,         -- host on which it was seen
  kind TEXT NOT NULL,               -- pipe, fifo, socketpair, unix, tcp, udp
  inode INTEGER,                    -- inode of the pipe, or of the socket that was seen first
  name TEXT,                        -- path or address, where it has one
  name_raw BLOB,                    -- exact bytes of name where it is not UTF-8
  capacity_bytes INTEGER            -- buffer size
) STRICT;
CREATE INDEX channel_inode ON channel (inode);

-- One holder of one end of a channel over time. An end that a fork copied and its exec or exit closed unused is not a row.
CREATE TABLE channel_end (
  end_id INTEGER PRIMARY KEY,       -- own id
  channel_id INTEGER NOT NULL,      -- the channel
  upid INTEGER NOT NULL,            -- process image that had it open
  fd INTEGER,                       -- descriptor, the lowest of several
  direction TEXT NOT NULL CHECK (direction IN ('read', 'write', 'both')), -- direction that the descriptor allowed
  from_ns INTEGER NOT NULL,         -- first seen
  to_ns INTEGER,                    -- found closed, at most that late; NULL: to the end of the image
  bytes INTEGER,                    -- bytes moved through this end; NULL: not known
  used INTEGER CHECK (used IN (0, 1)), -- 0: no data moved, or the image had both ends of the pipe open and nothing says which it used; 1: data moved; NULL: it may have
  at_most_bytes INTEGER             -- no more bytes than these; NULL: not known
) STRICT;

CREATE INDEX channel_end_image ON channel_end (channel_id, upid);

-- Traffic of a process image through one side of a channel, counted call by call. Only with --layer kernel.
CREATE TABLE channel_sum (
  channel_id INTEGER NOT NULL,      -- the channel
  upid INTEGER NOT NULL,            -- process image
  side TEXT NOT NULL CHECK (side IN ('read', 'write')), -- side of the channel; of a socket received and sent data
  calls INTEGER NOT NULL,           -- calls that returned, those at the end of the data and failed ones included
  bytes INTEGER,                    -- bytes that they moved; NULL: not known (tee, vmsplice; recvmmsg and sendmmsg, where eBPF programs could not read it)
  duration_ns INTEGER NOT NULL,     -- sum of their durations
  first_ns INTEGER NOT NULL,        -- begin of the first one
  last_ns INTEGER NOT NULL,         -- end of the last one
  exact INTEGER NOT NULL CHECK (exact IN (0, 1)), -- 0: records were dropped while the image lived, so that some calls may be missing
  PRIMARY KEY (channel_id, upid, side)
) STRICT, WITHOUT ROWID;

-- Process images whose traffic through channels is all in channel_sum. Only with --layer kernel.
CREATE TABLE channels_counted (
  upid INTEGER PRIMARY KEY          -- process image
) STRICT;

-- One call that moved data through a pipe or socket, or tried to, about in the order of time. Only with --layer kernel --calls channels.
CREATE TABLE channel_call (
  start_ns INTEGER NOT NULL,        -- entry of the call
  duration_ns INTEGER NOT NULL,     -- time until it returned
  upid INTEGER NOT NULL,            -- process image
  tid INTEGER,                      -- thread; NULL: the first thread of the process
  channel_id INTEGER,               -- channel; NULL: a socket that is none
  inode INTEGER,                    -- inode of the socket that is no channel; NULL: it is one
  what INTEGER NOT NULL,            -- 1: it writes, otherwise it reads; + 2: it moved nothing, whatever its result; + 4: the bytes moved do not follow from the result; + 6: length has the bytes moved; + 8: lossy
  length INTEGER,                   -- bytes asked for; NULL: it is in the memory of the program
  result INTEGER                    -- bytes, or messages of recvmmsg and sendmmsg, or negative errno; NULL: the whole length
) STRICT;

-- The addresses of an end of a channel that is a socket of TCP or UDP.
CREATE TABLE socket_end (
  end_id INTEGER NOT NULL,          -- row of channel_end
  proto TEXT NOT NULL CHECK (proto IN ('tcp', 'udp')), -- protocol, as in flow
  address TEXT NOT NULL,            -- its own address
  port INTEGER NOT NULL,            -- its own port
  peer TEXT,                        -- address of the other end; NULL: any
  peer_port INTEGER                 -- its port
) STRICT;

-- The activity of a thread over an interval of samples; consecutive equal samples are one row, and a wait of 0.1 s and more is
-- one row until the thread ran.
CREATE TABLE sample (
  sample_id INTEGER PRIMARY KEY,    -- own id
  t_ns INTEGER NOT NULL,            -- begin: halfway between the first sample and the one before
  end_ns INTEGER NOT NULL,          -- end, likewise; grows while the thread goes on
  upid INTEGER NOT NULL,            -- process image
  tid INTEGER NOT NULL,             -- thread
  activity INTEGER NOT NULL,        -- activity, see table activity
  op TEXT,                          -- system call it was blocked in
  side TEXT CHECK (side IN ('read', 'write')), -- side of the channel at which it waited
  object INTEGER,                   -- inode of the pipe, FIFO or socket; pid of the child waited for; address of the futex; NULL: several (table polled), any, or not known
  channel_id INTEGER,               -- channel, when it was known at that time
  file_id INTEGER,                  -- file it was blocked on, where the recorder knew it; otherwise the view finds it by the calls
  samples INTEGER NOT NULL,         -- number of samples; exact: its length in steps of 0.1 ms
  exact INTEGER NOT NULL DEFAULT 0 CHECK (exact IN (0, 1)), -- 1: reported by the scheduler, several short intervals of one kind as their sum
  waker_upid INTEGER,               -- process image of the thread that ended the wait; NULL: not known, nobody of the run, or several
  waker_tid INTEGER                 -- that thread
) STRICT;

-- One of several channels that a thread waited for at once (poll, select, epoll).
CREATE TABLE polled (
  sample_id INTEGER NOT NULL,       -- row of sample
  object INTEGER NOT NULL,          -- inode of the pipe, FIFO or socket
  side TEXT NOT NULL CHECK (side IN ('read', 'write')), -- side at which it waited
  channel_id INTEGER,               -- channel, when it was known at that time
  PRIMARY KEY (sample_id, object, side)
) STRICT, WITHOUT ROWID;

-- The activities of a thread; filled from activities.sql.
CREATE TABLE activity (
  activity INTEGER PRIMARY KEY,     -- number used in sample
  state TEXT NOT NULL CHECK (state IN ('running', 'runnable', 'blocked', 'stopped', 'tracer')), -- shown in views
  reason TEXT UNIQUE,               -- object of the wait of a blocked thread
  storage INTEGER NOT NULL,         -- 1: counts as time blocked on storage
  meaning TEXT NOT NULL             -- condition under which a thread has this activity
) STRICT;

-- A counter of the machine, of one device where there are several; all kinds are listed under Counters.
CREATE TABLE counter (
  counter_id INTEGER PRIMARY KEY,   -- number used in host_sample
  name TEXT NOT NULL UNIQUE,        -- name, such as cpu.user or disk.sda.read_bytes
  unit TEXT NOT NULL,               -- ns, bytes, count: a total since boot; present bytes, present count: at the time of the sample
  meaning TEXT NOT NULL             -- meaning of the value
) STRICT;

-- A counter of a machine at one instant, as an absolute total; a value that has not changed is not repeated.
CREATE TABLE host_sample (
  t_ns INTEGER NOT NULL,            -- time of the sample
  host_id INTEGER NOT NULL,         -- machine
  counter_id INTEGER NOT NULL,      -- the counter
  value INTEGER NOT NULL,           -- total since boot, or the present value, in the counter's unit
  interpolated INTEGER NOT NULL DEFAULT 0 CHECK (interpolated IN (0, 1)) -- 1: not measured, between its neighbours by proportion
) STRICT;

-- A machine that an agent watched for a collector.
CREATE TABLE node (
  host_id INTEGER PRIMARY KEY,      -- the machine
  received INTEGER NOT NULL,        -- samples that came in time
  expected INTEGER NOT NULL,        -- samples that were sent, as far as is known
  ignored INTEGER NOT NULL,         -- samples that came twice or too late
  sessions INTEGER NOT NULL,        -- 1, and one more for each restart of the agent or loss of contact
  period_ms INTEGER NOT NULL,       -- time between samples at the end
  drift_ppb INTEGER NOT NULL,       -- drift of its clock against the collector's, parts per billion; 0: not known yet
  final INTEGER NOT NULL CHECK (final IN (0, 1)) -- 1: its last totals came over the reliable channel and are exact
) STRICT;

-- A place where packets were captured.
CREATE TABLE capture (
  capture_id INTEGER PRIMARY KEY,   -- own id, counted from 1
  host_id INTEGER NOT NULL,         -- machine whose clock gives the times
  interface TEXT NOT NULL,          -- interface; of a file that does not name it, the name of the file
  source TEXT NOT NULL CHECK (source IN ('ring', 'file')), -- captured by flowtrace itself, or imported
  file TEXT,                        -- path of the imported file
  file_raw BLOB,                    -- exact bytes of file where it is not UTF-8
  link_type INTEGER,                -- kind of header that its frames begin with (LINKTYPE_ number of tcpdump.org)
  namespace INTEGER,                -- inode of the network namespace; NULL: not known
  snap_length INTEGER,              -- bytes kept of each packet; NULL: not known
  from_ns INTEGER,                  -- begin of the covered time
  to_ns INTEGER,                    -- end of the covered time; NULL: the recording was cut short
  received INTEGER,                 -- packets of the wanted kind that the kernel saw, dropped ones included; NULL: not known
  dropped INTEGER,                  -- packets of these that the kernel dropped; NULL: not known
  unstored INTEGER,                 -- packets taken from the kernel, and lost because the trace could not be written as fast
  ignored INTEGER                   -- frames read that are no packets of IP, or whose headers are cut or broken
) STRICT;

-- Packets of one address and port pair in both directions. A new connection over the same pair is another flow.
CREATE TABLE flow (
  flow_id INTEGER PRIMARY KEY,      -- own id, counted from 1
  capture_id INTEGER NOT NULL,      -- capture that saw it first
  src TEXT NOT NULL,                -- address of the side that spoke first, or that asked for the connection
  sport INTEGER,                    -- its port; NULL: the protocol has none, or it was in a fragment that was not seen before the others
  dst TEXT NOT NULL,                -- address of the other side
  dport INTEGER,                    -- its port
  proto TEXT NOT NULL,              -- tcp, udp, icmp, icmpv6, sctp; ip-N for protocol number N
  first_ns INTEGER NOT NULL,        -- first packet at capture_id, by its host's clock
  src_wscale INTEGER,               -- shift of src's window, from its SYN; NULL: no SYN seen, or no such option
  dst_wscale INTEGER,               -- shift of dst's window
  src_mss INTEGER,                  -- largest segment that src announced
  dst_mss INTEGER,                  -- largest segment that dst announced
  src_sack INTEGER,                 -- 1: src allows selective acknowledgements; NULL: no SYN seen
  dst_sack INTEGER                  -- 1: dst does
) STRICT;

-- The packets of one flow that one capture saw, stored when the flow or the recording ends.
CREATE TABLE flow_capture (
  flow_id INTEGER NOT NULL,         -- the flow
  capture_id INTEGER NOT NULL,      -- the capture
  first_ns INTEGER NOT NULL,        -- first packet, by the clock of the capture's host
  last_ns INTEGER NOT NULL,         -- last packet
  out_packets INTEGER NOT NULL,     -- packets from src to dst
  out_bytes INTEGER NOT NULL,       -- their payload
  back_packets INTEGER NOT NULL,    -- packets from dst to src
  back_bytes INTEGER NOT NULL,      -- their payload
  src_local INTEGER CHECK (src_local = 1), -- 1: packets show that src is on the capture's host; NULL: not known
  dst_local INTEGER CHECK (dst_local = 1), -- 1: packets show that dst is
  PRIMARY KEY (flow_id, capture_id)
) STRICT, WITHOUT ROWID;

-- A process image at one end of a flow.
CREATE TABLE flow_owner (
  flow_id INTEGER NOT NULL,         -- the flow
  side TEXT NOT NULL CHECK (side IN ('src', 'dst')), -- the end
  upid INTEGER NOT NULL,            -- process image
  from_ns INTEGER,                  -- begin, at the latest; NULL: not known
  to_ns INTEGER,                    -- end, at the earliest; NULL: the end of the flow or image
  evidence TEXT NOT NULL CHECK (evidence IN ('calls', 'descriptors')) -- calls: its system calls; descriptors: its open descriptors
) STRICT;

-- State of a TCP connection at one end, as the kernel reports it about once a second (tcp_info).
CREATE TABLE flow_sample (
  t_ns INTEGER NOT NULL,            -- time of the sample
  flow_id INTEGER NOT NULL,         -- the flow
  side TEXT NOT NULL CHECK (side IN ('src', 'dst')), -- the end whose kernel was asked
  rtt_ns INTEGER,                   -- smoothed round trip time
  min_rtt_ns INTEGER,               -- smallest recent round trip time
  retransmits INTEGER,              -- segments sent again, in all
  rwnd_limited_ns INTEGER,          -- time limited by the receiver's window
  sndbuf_limited_ns INTEGER,        -- time limited by the send buffer
  busy_ns INTEGER,                  -- time with data in flight
  delivery_rate INTEGER,            -- recent rate of arrival, bytes a second
  bytes_acked INTEGER,              -- payload sent and acknowledged
  bytes_received INTEGER,           -- payload received
  congestion TEXT                   -- congestion control
) STRICT;

-- One captured packet, kept in the order of time. seq, ack, tsval and tsecr are stored as signed numbers of 32 bits.
CREATE TABLE packet (
  at INTEGER PRIMARY KEY,           -- time by the clock of the capture's host * 64 + number among the packets of the same ns; the 65th and later ones get the next ns
  what INTEGER NOT NULL,            -- capture_id * 8 + way * 2 + dir; way: 0 not known, 1 sent by the host, 2 received, 3 forwarded or overheard
  flow_id INTEGER NOT NULL,         -- flow it belongs to
  flags INTEGER,                    -- TCP flags + 256 * marks; marks: 1 several segments in one, 2 fragment, 4 VLAN tag, 8 headers cut, 16 fragment other than the first; NULL: neither
  payload_bytes INTEGER NOT NULL,   -- bytes of payload
  header_bytes INTEGER NOT NULL,    -- bytes on the wire without those
  seq INTEGER,                      -- TCP sequence number
  ack INTEGER,                      -- TCP acknowledgement number
  window INTEGER,                   -- TCP window, scaled where the scale is known
  tsval INTEGER,                    -- TCP timestamp value
  tsecr INTEGER                     -- TCP timestamp echo
) STRICT;

-- Sampling of call stacks in one recording.
CREATE TABLE stack_sampling (
  run_id INTEGER PRIMARY KEY,       -- the recording
  period_ns INTEGER NOT NULL CHECK (period_ns > 0), -- CPU time for which a sample stands
  waits INTEGER NOT NULL,           -- 1: threads that waited were sampled, too (stack_wait)
  scope TEXT NOT NULL CHECK (scope IN ('all', 'user')), -- all: CPU time in the kernel, too; user: outside of it alone
  program TEXT                      -- pattern of the names of programs that were sampled; NULL: all
) STRICT;

-- A file or another place that has code in which a sampled thread was. Ids count from 1.
CREATE TABLE stack_module (
  module_id INTEGER PRIMARY KEY,    -- own id
  path TEXT NOT NULL,               -- path as the process saw it; [kernel], [vdso] or [memory of PID]
  path_raw BLOB,                    -- exact bytes of path where it is not UTF-8
  build_id TEXT,                    -- build id of the ELF file, hexadecimal; NULL: not known
  symbols TEXT                      -- source of the names: dwarf (with lines), symtab, dynsym (exported functions alone), kallsyms, map; none: it has no symbols; unreadable: it could not be opened again; NULL: the recording was cut short
) STRICT;

-- A place in code. Of a caller it is the last byte of the call, so that it lies within the caller's line.
CREATE TABLE stack_frame (
  frame_id INTEGER PRIMARY KEY,     -- own id
  module_id INTEGER,                -- the module; NULL: frames further out than this are not known
  address INTEGER NOT NULL          -- address in the terms of the file (as objdump prints it); elsewhere in memory, as a signed number
) STRICT;

-- A function.
CREATE TABLE stack_function (
  function_id INTEGER PRIMARY KEY,  -- own id
  module_id INTEGER NOT NULL,       -- the module that has it
  name TEXT NOT NULL,               -- its name, demangled; of a file without symbols the module and the address at which the function begins
  file TEXT                         -- source file; NULL: not known
) STRICT;

-- The functions at a place in code: one, or several where the compiler put functions into their callers.
CREATE TABLE stack_location (
  frame_id INTEGER NOT NULL,        -- the place
  depth INTEGER NOT NULL,           -- 0: innermost function
  function_id INTEGER NOT NULL,     -- the function
  line INTEGER,                     -- line of its source file; NULL: not known
  PRIMARY KEY (frame_id, depth)
) STRICT, WITHOUT ROWID;

-- A call stack: a place, and the stack of its caller. Equal stacks are one row.
CREATE TABLE stack (
  stack_id INTEGER PRIMARY KEY,     -- own id
  caller_id INTEGER,                -- stack of the caller; NULL: this is the outermost frame
  frame_id INTEGER NOT NULL         -- innermost frame
) STRICT;

-- A thread of a process image that was sampled.
CREATE TABLE stack_thread (
  thread_id INTEGER PRIMARY KEY,    -- own id
  pid INTEGER NOT NULL,             -- process
  tid INTEGER NOT NULL,             -- thread
  start_ns INTEGER NOT NULL,        -- begin of the image, as the sampler saw it
  execs INTEGER NOT NULL,           -- execs of the process up to then; 0: the image began by its fork
  upid INTEGER                      -- the process image, found when the recording ends; NULL: none, or the recording was cut short
) STRICT;

-- A sample of a call stack: a thread was on a CPU.
CREATE TABLE stack_sample (
  at INTEGER PRIMARY KEY,           -- time in steps of 10 µs; of several in one step the later ones get the next steps
  thread_id INTEGER NOT NULL,       -- the thread
  stack_id INTEGER NOT NULL         -- its stack
) STRICT;

-- A sample of a call stack: a thread returned from a call after it had waited. The times of the samples of a thread add
-- up to the time that it was blocked in calls, but for less than a period.
CREATE TABLE stack_wait (
  at INTEGER PRIMARY KEY,           -- time of the return in steps of 10 µs, as in stack_sample
  thread_id INTEGER NOT NULL,       -- the thread
  stack_id INTEGER NOT NULL,        -- its stack
  blocked_us INTEGER NOT NULL       -- time of waiting for which the sample stands, µs: periods of stack_sampling
) STRICT;

-- The known losses of this file; a counter that is 0 has no row.
CREATE TABLE loss (
  source TEXT NOT NULL,             -- part that lost it: store, files, processes, packets, samples, analysis
  counter TEXT NOT NULL,            -- name of the counter
  severity TEXT NOT NULL CHECK (severity IN ('info', 'notice', 'data_loss', 'error')), -- importance
  value INTEGER NOT NULL,           -- number of losses
  meaning TEXT NOT NULL,            -- meaning of the loss for the reader
  PRIMARY KEY (source, counter)
) STRICT;
