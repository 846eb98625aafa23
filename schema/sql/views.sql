-- The public API: stable names and columns, built-in SQL only, so that any SQLite client
-- can use them. Columns are added over time, never removed and never given a new meaning.
-- Times are ns since the start of the run, sizes bytes; NULL is unknown or not yet.

-- The recordings in this file.
CREATE VIEW runs (
  run_id,         -- 1 in a file of one run
  host,           -- name of the machine that recorded
  command,        -- command of the run, quoted for a shell; NULL for a mount session
  cwd,            -- working directory in which it was started
  version,        -- version of flowtrace that recorded
  file_layer,     -- layer of file calls: kernel, direct-passthrough, direct-mmap, direct, cached, none
  process_layer,  -- layer of processes: ptrace, ebpf, tracepoints, connector, scan, requests, none
  started_unix_ns, -- wall clock at time 0, ns since 1970
  end_ns,         -- end of the recording; NULL: it was cut short, or is still going on
  exit_code,      -- exit code of the command
  exit_signal,    -- signal that ended the command
  start_ns,       -- begin of the recording: 0, except where several files were merged
  launcher,       -- launcher that started it as one of many: openmpi, mpich, slurm, parallel, ...
  job,            -- job of the launcher or batch system
  rank,           -- its number in that job
  source          -- file that it was merged from; NULL: this one
) AS
SELECT run_id, host.name, command, cwd, version, file_layer, process_layer, epoch_unix_ns,
  end_ns, exit_code, exit_signal, start_ns, launcher, job, rank, source
FROM run LEFT JOIN host USING (host_id);

-- The machines in this file and the relations of their clocks.
CREATE VIEW hosts (
  host,            -- name of the machine
  host_id,         -- its number in this file
  boot_id,         -- id of its boot
  system,          -- kernel and machine
  cpus,            -- CPUs that are online
  memory_bytes,    -- physical memory
  epoch_unix_ns,   -- wall clock at time 0, ns since 1970
  clock_offset_ns, -- to add to this host's times to reach the common scale
  clock_drift_ppb, -- drift against the common scale, parts per billion; positive: the clock runs fast, and time * drift is to be subtracted
  clock_error_ns,  -- bound of the error of both; NULL: not estimated
  clock_method,    -- method that put its times on the scale of a merged file: same boot, wall clock, packets, exchange
  wall_error_ns    -- bound of the error of its wall clock as the kernel reported it; NULL: the clock was not synchronised
) AS
SELECT name, host_id, boot_id, system, cpus, memory_bytes, epoch_unix_ns, clock_offset_ns,
  clock_drift_ppb, clock_error_ns, clock_method, wall_error_ns
FROM host;

-- The directories whose file calls were recorded.
CREATE VIEW traced_directories (
  run_id,           -- run that it belongs to
  path,             -- absolute path under which the workflow saw it
  source,           -- real directory behind it, when it lies elsewhere
  file_layer,       -- layer of file calls here
  fuse_flags,       -- FUSE INIT flags granted by the kernel
  attribute_ttl_ns, -- time for which the kernel answered stat and lookup from its cache; 0: never
  filesystem        -- type of the filesystem that the real directory is on: ext4, tmpfs, nfs4 …; NULL: not known
) AS
SELECT run_id, path, source, file_layer, fuse_flags, attribute_ttl_ns, filesystem FROM traced_directory;

-- One row per process image: a fork starts one, an exec ends it and starts the next in the same pid.
CREATE VIEW processes (
  upid,                 -- own id, never reused in this file; pids are recycled
  host,                 -- machine
  pid,                  -- process id as the recorder saw it
  parent_upid,          -- image that forked this process; NULL: started by the recorder, or unknown
  prev_upid,            -- image before the exec in the same pid
  exe,                  -- executable file
  command,              -- arguments, quoted for a shell; the first 128 KiB and … where there are more
  cwd,                  -- working directory when the image began
  rule,                 -- name of the workflow step, inferred when the run ended
  start_ns,             -- begin
  end_ns,               -- end, by exec or exit; NULL: not seen
  duration_ns,          -- end_ns - start_ns
  exit_code,            -- exit code; NULL when the image ended by exec or signal
  exit_signal,          -- signal that ended it
  user_ns,              -- CPU time in user mode, own threads only
  sys_ns,               -- CPU time in the kernel, own threads only
  on_cpu_ns,            -- time on a CPU, own threads only
  run_queue_ns,         -- time runnable but waiting for a CPU; where the scheduler reported it, from the time of the wakeup on
  storage_ns,           -- time blocked on storage, all threads; docs/waiting.md says how well it is known
  wait_ns,              -- time blocked on anything else: the rest of thread_ns
  max_rss_bytes,        -- peak resident memory
  read_bytes,           -- bytes returned by read-like calls on files, pipes and sockets, own only
  write_bytes,          -- bytes written by write-like calls, own only
  origin,               -- event that began the image: exec, fork, or seen (found running)
  read_calls,           -- number of read-like calls
  write_calls,          -- number of write-like calls
  minor_faults,         -- page faults without I/O
  major_faults,         -- page faults with I/O
  voluntary_switches,   -- context switches by waiting
  involuntary_switches, -- context switches by preemption
  threads,              -- threads that lived in the image, the first included
  tracer_ns,            -- time in stops by the tracer, all threads
  thread_ns,            -- sum of the lifetimes of its threads = on_cpu + run_queue + storage + wait + tracer
  samples,              -- samples of its threads; NULL: none, it was too short or sampling was off
  inner_pid,            -- process id in the innermost pid namespace it lived in (a container's); NULL: pid
  run_id,               -- run that it belongs to
  storage_queue_ns,     -- the part of storage_ns while requests of its own were in a queue of the kernel and none was at a device; NULL: not reported
  storage_device_ns     -- the part of storage_ns while a device had requests of its own; the rest is neither: see docs/kernel-layer.md
) AS
SELECT upid, host.name, pid, parent_upid, prev_upid, exe,
  CAST(COALESCE(command,
    (SELECT first.command FROM process AS first WHERE first.upid = image.command_upid)) AS TEXT),
  cwd, rule, start_ns, end_ns,
  end_ns - start_ns, exit_code, exit_signal, user_ns, sys_ns, on_cpu_ns,
  CASE waits_exact WHEN 1 THEN MAX(0, thread_ns - on_cpu_ns - held_ns - blocked_ns)
    ELSE run_queue_ns END,
  storage_ns, blocked_ns - storage_ns, max_rss_bytes, read_bytes, write_bytes, origin, read_calls,
  write_calls, minor_faults, major_faults, voluntary_switches, involuntary_switches, threads,
  held_ns, thread_ns, samples, inner_pid,
  (SELECT run_id FROM run WHERE first_upid <= upid ORDER BY first_upid DESC LIMIT 1),
  CASE waits_exact WHEN 1 THEN MIN(storage_ns, sampled_queue_ns) END,
  CASE waits_exact WHEN 1 THEN MIN(storage_ns, sampled_device_ns) END
FROM (
  SELECT *, MIN(blocked_ns, CASE waits_exact WHEN 1 THEN sampled_storage_ns
      ELSE MAX(COALESCE(file_call_ns, 0), COALESCE(block_io_ns, 0),
        COALESCE(CAST(1.0 * blocked_ns * sampled_storage_ns / sampled_waiting_ns AS INTEGER), 0))
      END) AS storage_ns
  FROM (SELECT *, CASE waits_exact
            WHEN 1 THEN MIN(sampled_waiting_ns, MAX(0, thread_ns - on_cpu_ns - held_ns))
            ELSE MAX(0, thread_ns - on_cpu_ns - run_queue_ns - held_ns) END AS blocked_ns
        FROM (SELECT *, CASE waits_exact WHEN 1
                THEN MIN(sampled_tracer_ns, MAX(0, thread_ns - on_cpu_ns))
                ELSE tracer_ns END AS held_ns
              FROM process))) AS image
LEFT JOIN host USING (host_id);

-- The threads beside each process's first one.
CREATE VIEW threads (
  upid,     -- process image it was created in
  tid,      -- thread id
  start_ns, -- creation
  end_ns    -- end; NULL: not seen
) AS
SELECT upid, tid, start_ns, end_ns FROM thread;

-- The environment variables that were recorded by name or that name the job of a workflow manager, for each image.
CREATE VIEW environment (
  upid,  -- process image that had it at its exec, or that was forked from it
  name,  -- variable
  value  -- value
) AS
SELECT process.upid, name, value
FROM process JOIN environment_variable AS v ON v.upid = process.environment_upid;

-- The descriptors 0 to 9 that a program began with: redirections and pipes, where the first program of the run had something
-- else.
CREATE VIEW descriptors (
  upid,     -- process image that began by an exec
  fd,       -- descriptor
  target,   -- path at that time, then " (deleted)" if the file had no name left, or the kernel's text, such as pipe:[7]
  flags,    -- open flags that are still in force
  position  -- position in the file, bytes
) AS
SELECT upid, fd, target, flags, position FROM descriptor;

-- Programs that began with a here-document of a shell. It is stored if the shell wrote it into a pipe, and no other process wrote
-- there.
CREATE VIEW here_documents (
  upid,    -- process image that began by an exec
  fd,      -- its descriptor, mostly 0
  content  -- text of the here-document that was still unread
) AS
SELECT h.upid, h.fd, CAST(substr(kept.content, -h.bytes) AS TEXT)
FROM here_document AS h JOIN here_document AS kept ON kept.channel_id = h.channel_id AND kept.content IS NOT NULL;

-- Other properties that a program began with, for the first program of the run and for each program that began with others.
CREATE VIEW settings (
  upid,        -- process image that began by an exec
  umask,       -- file mode creation mask
  environment, -- equal for equal environments within the run, without variables recorded by name and those in which shells and make count
  cpus,        -- CPUs that its affinity mask allowed when it began, as 0-3,8; NULL: all that are online
  cpu_quota_ns -- CPU time that the quotas of its control groups (cpu.max) allowed then in each second; NULL: no quota
) AS
SELECT upid, umask, environment, cpus, cpu_quota_ns FROM setting;

-- Every name of every file over time; a rename ends one row and begins another.
CREATE VIEW file_names (
  file_id,  -- the file
  path,     -- absolute path
  from_ns,  -- first seen under this path
  to_ns,    -- renamed away or removed; NULL: to the end
  path_raw  -- exact bytes of path where it is not UTF-8
) AS
SELECT directory_id, path, from_ns, to_ns, path_raw FROM directory_path
UNION ALL
SELECT n.file_id,
  CASE d.path WHEN '/' THEN '' ELSE d.path END || '/' || n.name,
  MAX(n.from_ns, d.from_ns),
  CASE WHEN n.to_ns IS NULL THEN d.to_ns
       WHEN d.to_ns IS NULL THEN n.to_ns
       ELSE MIN(n.to_ns, d.to_ns) END,
  CASE WHEN n.name_raw IS NULL AND d.path_raw IS NULL THEN NULL
       ELSE CAST(COALESCE(CAST(d.path_raw AS TEXT), d.path) || '/'
              || COALESCE(CAST(n.name_raw AS TEXT), n.name) AS BLOB) END
FROM file_name AS n JOIN directory_path AS d ON d.directory_id = n.directory_id
WHERE (d.to_ns IS NULL OR n.from_ns < d.to_ns)
  AND (n.to_ns IS NULL OR d.from_ns < n.to_ns OR d.from_ns <= n.from_ns)
UNION ALL
SELECT file_id, name, from_ns, to_ns, name_raw FROM file_name WHERE directory_id = 0;

-- Every file seen: an inode, shown under its name at the end; of several (hard links) the first.
CREATE VIEW files (
  file_id,    -- own id, never reused in this file
  path,       -- name at the end, the first of several; the last one for a file that has none any more; all are in file_names
  kind,       -- file, directory, symlink, fifo, socket, char, block; absent: looked up and not found
  size_bytes, -- size when last seen
  first_ns,   -- first sight
  last_ns,    -- end of the last call on it; NULL until the run has ended
  coverage    -- least exact way in which it was seen: exact, cached, open
) AS
SELECT file_id,
  (SELECT path FROM file_names AS n WHERE n.file_id = file.file_id
   ORDER BY n.to_ns IS NULL DESC, IIF(n.to_ns IS NULL, n.from_ns, -n.from_ns) LIMIT 1),
  k.name, size_bytes, first_ns, NULLIF(last_ns, first_ns), f.name
FROM file JOIN file_kind AS k ON k.kind = file.kind
JOIN fidelity AS f ON f.fidelity = file.coverage;

-- Every file call, one row each. A search by start_ns is fast; any other search reads all rows.
CREATE VIEW calls (
  call_id,     -- own id, in the order of time
  start_ns,    -- arrival of the request
  duration_ns, -- time until the reply
  upid,        -- process image; NULL: the kernel itself, or not known
  tid,         -- thread
  op,          -- operation, see operations
  file_id,     -- file
  path,        -- name of the file, as in files; its name at the time of the call is in file_names
  offset,      -- position of data calls
  length,      -- bytes asked for, or the value set
  result,      -- bytes or value; negative errno on failure
  fidelity,    -- exact, cached, writeback, open, lossy: see fidelities
  flags        -- open flags, rename flags or mode
) AS
SELECT c.start_ns, c.start_ns, c.duration_ns, c.upid, COALESCE(c.tid, p.pid), o.name, c.file_id,
  (SELECT path FROM file_names AS n WHERE n.file_id = c.file_id
   ORDER BY n.to_ns IS NULL DESC, IIF(n.to_ns IS NULL, n.from_ns, -n.from_ns) LIMIT 1),
  c.offset, c.length, COALESCE(c.result, c.length, 0), f.name, NULLIF(c.what >> 8 & 8589934591, 0) - 1
FROM call AS c
JOIN operation AS o ON o.op = c.what & 63
JOIN fidelity AS f ON f.fidelity = ((c.what >> 6 & 3) | (c.what >> 46 & 4))
LEFT JOIN process AS p ON p.upid = c.upid;

-- The operations that calls can have.
CREATE VIEW operations (
  op,     -- name, as in calls
  class,  -- open, close, read, write, namespace, attribute, directory, sync, lock, control
  meaning -- the system calls that cause it
) AS
SELECT name, class, meaning FROM operation;

-- The meaning of each label of fidelity.
CREATE VIEW fidelities (
  fidelity, -- label, as in calls
  meaning   -- meaning of the label
) AS
SELECT name, meaning FROM fidelity;

-- The accesses of each process image to each file, summed over its successful calls.
CREATE VIEW file_access (
  upid,        -- process image
  file_id,     -- file
  relation,    -- the strongest of create > write > read > none (attributes only)
  opens,       -- times it was opened
  creates,     -- times it was created
  reads,       -- read calls
  read_bytes,  -- bytes read
  read_ns,     -- time in read calls
  writes,      -- write calls
  write_bytes, -- bytes written
  write_ns,    -- time in write calls
  first_ns,    -- begin of the first call
  last_ns,     -- end of the last call
  read_opens,  -- opens that allowed reading; reads through a mapping are not seen
  write_opens, -- opens that allowed writing
  calls        -- calls of any kind
) AS
SELECT upid, file_id,
  CASE WHEN creates > 0 THEN 'create'
       WHEN changes > 0 OR write_opens > 0 THEN 'write'
       WHEN reads > 0 OR read_opens > 0 THEN 'read'
       ELSE 'none' END,
  opens, creates, reads, read_bytes, read_ns, writes, write_bytes, write_ns, first_ns, last_ns,
  read_opens, write_opens, calls
FROM (
  SELECT c.upid AS upid, c.file_id AS file_id,
    SUM(o.class = 'open') AS opens,
    SUM(o.name IN ('create', 'mknod', 'mkdir', 'symlink')) AS creates,
    SUM(o.class = 'write') AS changes,
    SUM(o.class = 'read') AS reads,
    SUM(CASE WHEN o.class = 'read' THEN COALESCE(c.result, c.length, 0) ELSE 0 END) AS read_bytes,
    SUM(CASE WHEN o.class = 'read' THEN c.duration_ns ELSE 0 END) AS read_ns,
    SUM(o.name IN ('write', 'copy_to')) AS writes,
    SUM(CASE WHEN o.name IN ('write', 'copy_to') THEN COALESCE(c.result, c.length, 0) ELSE 0 END)
      AS write_bytes,
    SUM(CASE WHEN o.class = 'write' THEN c.duration_ns ELSE 0 END) AS write_ns,
    MIN(c.start_ns) AS first_ns,
    MAX(c.start_ns + c.duration_ns) AS last_ns,
    SUM(o.class = 'open' AND (c.what >> 8 & 8589934591) - 1 & 3 IN (0, 2)) AS read_opens,
    SUM(o.class = 'open' AND (c.what >> 8 & 8589934591) - 1 & 3 IN (1, 2)) AS write_opens,
    COUNT(*) AS calls
  FROM call AS c JOIN operation AS o ON o.op = c.what & 63
  WHERE c.upid IS NOT NULL AND c.file_id IS NOT NULL AND COALESCE(c.result, 0) >= 0
  GROUP BY c.upid, c.file_id);

-- Pipes, FIFOs and sockets between processes.
CREATE VIEW channels (
  channel_id,     -- own id
  kind,           -- pipe, fifo, socketpair, unix, tcp, udp
  name,           -- path or address, where it has one
  capacity_bytes, -- buffer size
  inode           -- inode of the pipe, or of the socket that was seen first
) AS
SELECT channel_id, kind, name, capacity_bytes, inode FROM channel;

-- Holders of the ends of channels over time.
CREATE VIEW channel_ends (
  channel_id, -- the channel
  upid,       -- process image
  fd,         -- descriptor, the lowest of several
  direction,  -- read, write, both
  from_ns,    -- first seen
  to_ns,      -- found closed, at most that late; NULL: to the end of the image
  bytes,      -- bytes moved through this end; NULL: not known
  used,       -- 0: no data moved, or the image had both ends of the pipe open and nothing says which it used; 1: data moved; NULL: it may have
  at_most_bytes -- no more bytes than these; NULL: not known
) AS
SELECT channel_id, upid, fd, direction, from_ns, to_ns, bytes, used, at_most_bytes
FROM channel_end;

-- Traffic of a process image through one side of a channel, counted call by call; only with --layer kernel.
CREATE VIEW channel_traffic (
  channel_id,  -- the channel
  upid,        -- process image
  side,        -- read, write; of a socket received and sent
  calls,       -- calls that returned, those at the end of the data and failed ones included
  bytes,       -- bytes that they moved; NULL: not known (tee, vmsplice; recvmmsg and sendmmsg, where eBPF programs could not read it)
  duration_ns, -- sum of their durations
  first_ns,    -- begin of the first one
  last_ns,     -- end of the last one
  exact        -- 1: no call is missing; 0: records were dropped while the image lived
) AS
SELECT channel_id, upid, side, calls, bytes, duration_ns, first_ns, last_ns, exact FROM channel_sum;

-- Every call that moved data through a pipe or socket, or tried to, one row each; only with --layer kernel --calls channels.
CREATE VIEW channel_calls (
  start_ns,    -- entry of the call
  duration_ns, -- time until it returned
  upid,        -- process image
  tid,         -- thread
  channel_id,  -- channel; NULL: a socket that is none
  inode,       -- inode of a socket that is no channel; NULL: it is one
  side,        -- read, write; of a socket received and sent
  length,      -- bytes asked for; NULL: only the memory of the program has the number (recvmmsg and sendmmsg; see docs/kernel-layer.md)
  result,      -- result: bytes, or messages of recvmmsg and sendmmsg; negative errno on failure, EINTR if a signal interrupted the call, after which it may have been made again
  bytes,       -- bytes that it moved, 0 if it only peeked (MSG_PEEK); NULL: not known (tee, vmsplice; recvmmsg and sendmmsg, where eBPF programs could not read it)
  fidelity     -- exact; lossy: records were dropped while the image lived, the call may belong to another channel
) AS
SELECT c.start_ns, c.duration_ns, c.upid, COALESCE(c.tid, p.pid), c.channel_id, c.inode,
  CASE c.what & 1 WHEN 1 THEN 'write' ELSE 'read' END, CASE c.what & 6 WHEN 6 THEN NULL ELSE c.length END, COALESCE(c.result, c.length, 0),
  CASE c.what & 6 WHEN 0 THEN MAX(COALESCE(c.result, c.length, 0), 0) WHEN 2 THEN 0 WHEN 6 THEN c.length END,
  CASE c.what & 8 WHEN 8 THEN 'lossy' ELSE 'exact' END
FROM channel_call AS c LEFT JOIN process AS p ON p.upid = c.upid;

-- The activities of threads: sampled, with consecutive equal samples in one row (and a wait of 0.1 s and more in one row until
-- the thread ran), or as the scheduler reported them.
CREATE VIEW samples (
  t_ns,        -- begin of the interval
  upid,        -- process image
  tid,         -- thread
  state,       -- running, runnable, blocked, stopped; tracer: stopped by its tracer, flowtrace or a debugger of the run
  op,          -- system call it was blocked in
  channel_id,  -- channel it was blocked on
  file_id,     -- file it was blocked on, if that is on the traced mount: the file of its longest call in the interval
  end_ns,      -- end of the interval
  duration_ns, -- end_ns - t_ns
  samples,     -- number of samples, from which the error of the duration follows; exact: duration in steps of 0.1 ms
  reason,      -- object of the wait, see activities
  side,        -- side of the channel: read, write
  object,      -- inode of the pipe, FIFO or socket; pid of the child waited for; address of the futex
  sample_id,   -- own id
  exact,       -- 1: reported by the scheduler, several short intervals of one kind as their sum; 0: seen by samples
  waker_upid,  -- exact: process image of the thread that ended the wait; NULL: not known, nobody of the run, or several
  waker_tid    -- that thread
) AS
SELECT t_ns, upid, tid, a.state, op,
  COALESCE(s.channel_id, CASE s.activity WHEN 2 THEN
    (SELECT c.channel_id FROM channel AS c JOIN process AS p ON p.upid = s.upid
     WHERE c.inode = s.object AND c.host_id = p.host_id LIMIT 1) END),
  COALESCE(s.file_id, CASE s.activity WHEN 4 THEN
    (SELECT c.file_id FROM call AS c
     WHERE c.start_ns BETWEEN s.t_ns - 50000000 AND s.end_ns
       AND c.start_ns + c.duration_ns >= s.t_ns AND c.upid = s.upid
       AND COALESCE(c.tid, (SELECT pid FROM process AS p WHERE p.upid = s.upid)) = s.tid
     ORDER BY c.duration_ns DESC LIMIT 1) END),
  end_ns, end_ns - t_ns, samples, a.reason, side, object, sample_id, exact, waker_upid, waker_tid
FROM sample AS s JOIN activity AS a USING (activity);

-- Every wait of a thread with each process that it may have waited for: every process that had the other end of the channel open
-- at that time, or the children that lived. A wait without such a process has one row.
CREATE VIEW waits (
  wait_id,          -- sample_id; the same for all counterparts of a wait
  from_ns,          -- begin
  to_ns,            -- end
  duration_ns,      -- to_ns - from_ns
  upid,             -- process image that waited
  tid,              -- thread
  reason,           -- object of the wait, see activities; stopped: by job control
  op,               -- system call
  side,             -- read: for a writer, write: for a reader
  channel_id,       -- channel
  file_id,          -- file
  object,           -- inode of the pipe, FIFO or socket; pid of the child waited for; address of the futex
  counterpart_upid, -- process image at the other end, the child, or else the waker; NULL: not known
  overlap_ns,       -- part of the wait during which the counterpart lived and had that end open
  used,             -- 0: the counterpart only had that end open and moved no data through it; 1: it moved data; NULL: it may have, or there is no channel
  waker_upid,       -- process image of the thread that ended the wait; NULL: not known (samples do not show it), nobody of the run, or several
  waker_tid         -- that thread
) AS
SELECT DISTINCT s.sample_id, s.t_ns, s.end_ns, s.end_ns - s.t_ns, s.upid, s.tid, 'channel', s.op,
  s.side, s.channel_id, NULL, s.object, COALESCE(e.upid, s.waker_upid),
  COALESCE(MIN(s.end_ns, e.to_ns) - MAX(s.t_ns, e.from_ns),
    CASE WHEN s.waker_upid IS NOT NULL THEN s.end_ns - s.t_ns END),
  e.used, s.waker_upid, s.waker_tid
FROM (
  SELECT o.sample_id, o.t_ns, o.end_ns, o.upid, o.tid, o.op, o.side, o.object, o.waker_upid, o.waker_tid,
    COALESCE(o.channel_id, (SELECT c.channel_id FROM channel AS c JOIN process AS p
        ON p.upid = o.upid WHERE c.inode = o.object AND c.host_id = p.host_id LIMIT 1))
      AS channel_id
  FROM (
    SELECT sample_id, t_ns, end_ns, upid, tid, op, side, object, channel_id, waker_upid, waker_tid
    FROM sample WHERE activity = 2 AND sample_id NOT IN (SELECT sample_id FROM polled)
    UNION ALL
    SELECT s.sample_id, t_ns, end_ns, upid, tid, op, p.side, p.object, p.channel_id, waker_upid, waker_tid
    FROM polled AS p JOIN sample AS s USING (sample_id)) AS o) AS s
LEFT JOIN (
  SELECT e.channel_id AS channel_id, e.upid AS upid, e.direction AS direction,
    MIN(e.from_ns) AS from_ns, MAX(COALESCE(e.to_ns, p.end_ns, 9223372036854775807)) AS to_ns,
    CASE MAX(COALESCE(2 * e.used, 1)) WHEN 0 THEN 0 WHEN 2 THEN 1 END AS used
  FROM channel_end AS e LEFT JOIN process AS p USING (upid)
  GROUP BY e.channel_id, e.upid, e.direction) AS e
  ON e.channel_id = s.channel_id AND e.upid <> s.upid AND e.direction <> s.side
    AND e.from_ns < s.end_ns AND e.to_ns > s.t_ns
UNION ALL
SELECT s.sample_id, s.t_ns, s.end_ns, s.end_ns - s.t_ns, s.upid, s.tid, 'child', s.op, NULL, NULL,
  NULL, s.object, c.upid,
  MIN(s.end_ns, COALESCE(c.end_ns, s.end_ns)) - MAX(s.t_ns, c.start_ns), NULL,
  s.waker_upid, s.waker_tid
FROM sample AS s LEFT JOIN process AS c
  ON c.parent_upid = s.upid AND c.start_ns < s.end_ns
    AND (c.end_ns IS NULL OR c.end_ns > s.t_ns) AND (s.object IS NULL OR c.pid = s.object)
WHERE s.activity = 6
UNION ALL
SELECT sample_id, t_ns, end_ns, duration_ns, upid, tid, COALESCE(reason, state), op, side, NULL,
  file_id, object, waker_upid, CASE WHEN waker_upid IS NOT NULL THEN duration_ns END, NULL,
  waker_upid, waker_tid
FROM samples
WHERE state = 'stopped' OR state = 'blocked' AND reason NOT IN ('channel', 'child');

-- The time accounting of each process image, five rows each, which sum to its thread_ns. Beside it the shares by samples, which
-- are independent except for the division between storage and wait.
CREATE VIEW time_shares (
  upid,       -- process image
  part,       -- on_cpu, run_queue, storage, wait, tracer
  ns,         -- thread time, from the kernel's totals at the end
  sampled_ns, -- the same from the share of its samples, or of the intervals that the scheduler reported; NULL: none
  samples     -- its samples in this part; of n in all, the share p is off by about sqrt(p*(1-p)/n)
) AS
SELECT x.upid, x.part, x.ns,
  CASE WHEN p.sampled_ns > 0
    THEN CAST(1.0 * COALESCE(y.ns, 0) * p.thread_ns / p.sampled_ns AS INTEGER) END,
  CASE WHEN p.sampled_ns > 0 THEN COALESCE(y.samples, 0) END
FROM (
  SELECT upid, 'on_cpu' AS part, on_cpu_ns AS ns FROM processes
  UNION ALL SELECT upid, 'run_queue', run_queue_ns FROM processes
  UNION ALL SELECT upid, 'storage', storage_ns FROM processes
  UNION ALL SELECT upid, 'wait', wait_ns FROM processes
  UNION ALL SELECT upid, 'tracer', tracer_ns FROM processes) AS x
JOIN process AS p USING (upid)
LEFT JOIN (
  SELECT s.upid AS upid, SUM(s.end_ns - s.t_ns) AS ns, SUM(s.samples) AS samples,
    CASE a.state WHEN 'running' THEN 'on_cpu' WHEN 'runnable' THEN 'run_queue'
      WHEN 'tracer' THEN 'tracer' ELSE CASE a.storage WHEN 1 THEN 'storage' ELSE 'wait' END END
      AS part
  FROM sample AS s JOIN activity AS a USING (activity)
  GROUP BY 1, 4) AS y ON y.upid = x.upid AND y.part = x.part;

-- The activities of a thread.
CREATE VIEW activities (
  state,   -- as in samples
  reason,  -- as in samples and waits
  storage, -- 1: counts as time blocked on storage
  meaning  -- condition under which a thread has this activity
) AS
SELECT state, reason, storage, meaning FROM activity;

-- The counters of the machines.
CREATE VIEW counters (
  counter, -- name, as in host_samples
  unit,    -- ns, bytes, count: a total since boot; present bytes, present count: at the time of the sample
  meaning  -- meaning of the value
) AS
SELECT name, unit, meaning FROM counter;

-- Counters of the machines, as absolute totals; a value that has not changed is not repeated.
CREATE VIEW host_samples (
  t_ns,    -- time of the sample
  host,    -- machine
  counter, -- name of the counter, see counters
  value,   -- total since boot, or the present value, in the counter's unit
  interpolated -- 1: not measured, between its neighbours by proportion
) AS
SELECT t_ns, host.name, counter.name, value, interpolated
FROM host_sample JOIN counter USING (counter_id) LEFT JOIN host USING (host_id);

-- The machines that agents watched for a collector.
CREATE VIEW nodes (
  host,       -- machine
  confidence, -- share of its samples that came, 0 to 1
  received,   -- samples that came in time
  expected,   -- samples that were sent, as far as is known
  ignored,    -- samples that came twice or too late
  sessions,   -- 1, and one more for each restart of the agent or loss of contact
  period_ms,  -- time between samples at the end
  drift_ppb,  -- drift of its clock against the collector's, parts per billion; 0: not known yet
  final       -- 1: its last totals came over the reliable channel and are exact
) AS
SELECT host.name, 1.0 * received / NULLIF(expected, 0), received, expected, ignored, sessions,
  period_ms, drift_ppb, final
FROM node LEFT JOIN host USING (host_id);

-- The places where packets were captured.
CREATE VIEW captures (
  capture_id,  -- own id
  host,        -- machine
  interface,   -- interface; of a file that does not name it, the name of the file
  snap_length, -- bytes kept of each packet
  from_ns,     -- begin of the covered time
  to_ns,       -- end of the covered time; NULL: the recording was cut short
  received,    -- packets seen by the kernel's filter, dropped ones included; NULL: not known
  dropped,     -- packets lost by the kernel; NULL: not known
  host_id,     -- machine, as in hosts
  source,      -- ring: captured by flowtrace itself; file: imported
  file,        -- path of the imported file
  link_type,   -- kind of header that its frames begin with (LINKTYPE_ number of tcpdump.org)
  namespace,   -- inode of the network namespace; NULL: not known
  unstored,    -- packets taken from the kernel, and lost because the trace could not be written as fast
  ignored      -- frames that are no packets of IP, or whose headers are cut or broken
) AS
SELECT capture_id, h.name, interface, snap_length,
  from_ns + clock_offset_ns - CAST(from_ns * (clock_drift_ppb / 1e9) AS INTEGER),
  to_ns + clock_offset_ns - CAST(to_ns * (clock_drift_ppb / 1e9) AS INTEGER),
  received, dropped, host_id, source, file, link_type, namespace, unstored, ignored
FROM capture LEFT JOIN host AS h USING (host_id);

-- The packets of each flow by the capture that saw them. The two captures at the ends of a flow should agree.
CREATE VIEW flow_captures (
  flow_id,      -- the flow
  capture_id,   -- the capture
  first_ns,     -- first packet
  last_ns,      -- last packet
  out_packets,  -- packets from src to dst
  out_bytes,    -- their payload
  back_packets, -- packets from dst to src
  back_bytes    -- their payload
) AS
SELECT f.flow_id, f.capture_id,
  first_ns + clock_offset_ns - CAST(first_ns * (clock_drift_ppb / 1e9) AS INTEGER),
  last_ns + clock_offset_ns - CAST(last_ns * (clock_drift_ppb / 1e9) AS INTEGER),
  out_packets, out_bytes, back_packets, back_bytes
FROM (
  SELECT flow_id, capture_id, first_ns, last_ns, out_packets, out_bytes, back_packets, back_bytes
  FROM flow_capture
  UNION ALL
  -- A recording that was cut short has no sums: they are computed from its packets.
  SELECT p.flow_id, p.what >> 3, MIN(p.at >> 6), MAX(p.at >> 6),
    SUM(p.what & 1 = 0), SUM(CASE p.what & 1 WHEN 0 THEN p.payload_bytes ELSE 0 END),
    SUM(p.what & 1), SUM(CASE p.what & 1 WHEN 1 THEN p.payload_bytes ELSE 0 END)
  FROM (SELECT 1 FROM flow WHERE flow_id NOT IN (SELECT flow_id FROM flow_capture) LIMIT 1)
  CROSS JOIN packet AS p
  WHERE p.flow_id NOT IN (SELECT flow_id FROM flow_capture)
  GROUP BY p.flow_id, p.what >> 3) AS f
JOIN capture AS c USING (capture_id) JOIN host AS h USING (host_id);

-- The network flows, one row per address and port pair, and per connection if there are several over the same pair.
CREATE VIEW flows (
  flow_id,    -- own id
  src,        -- address of the side that spoke first
  sport,      -- its port
  dst,        -- address of the other side
  dport,      -- its port
  proto,      -- tcp, udp, icmp, icmpv6, sctp; ip-N for protocol number N
  src_upid,   -- process at src, when local; the one of flow_main_owners if there are several
  dst_upid,   -- process at dst, when local
  first_ns,   -- first packet
  last_ns,    -- last packet
  packets,    -- packets, both directions, each as counted by the capture that saw most of them
  bytes,      -- payload bytes, both directions
  out_packets,  -- the part of packets from src to dst
  out_bytes,    -- the part of bytes from src to dst
  back_packets, -- packets from dst to src
  back_bytes,   -- their bytes
  captures,   -- number of captures that saw it
  src_wscale, -- shift of src's window, from its SYN; NULL: no SYN seen, or no such option
  dst_wscale, -- shift of dst's window
  src_mss,    -- largest segment that src announced
  dst_mss,    -- largest segment that dst announced
  src_sack,   -- 1: src allows selective acknowledgements; NULL: no SYN seen
  dst_sack    -- 1: dst allows selective acknowledgements
) AS
SELECT f.flow_id, src, sport, dst, dport, proto,
  o.src_upid, o.dst_upid,
  COALESCE(s.first_ns, f.first_ns), s.last_ns,
  out_packets + back_packets, out_bytes + back_bytes, out_packets, out_bytes, back_packets,
  back_bytes, s.captures, src_wscale, dst_wscale, src_mss, dst_mss, src_sack, dst_sack
FROM flow AS f LEFT JOIN (
  SELECT flow_id, MIN(first_ns) AS first_ns, MAX(last_ns) AS last_ns,
    MAX(out_packets) AS out_packets, MAX(out_bytes) AS out_bytes,
    MAX(back_packets) AS back_packets, MAX(back_bytes) AS back_bytes, COUNT(*) AS captures
  FROM flow_captures GROUP BY flow_id) AS s ON s.flow_id = f.flow_id
LEFT JOIN flow_main_owners AS o ON o.flow_id = f.flow_id;

-- The process at each end of a flow. If several had the socket open, one after another or side by side, it is a program that has
-- the socket as a standard descriptor, as servers pass it on; else none that is alone at the other end; else, of TCP, the only one
-- that a server forked while it had the connection open, and that executed nothing; else the one that had it open longest. A fork
-- of the process that connected by TCP comes last: it inherited the socket, and rarely uses it.
CREATE VIEW flow_main_owners (
  flow_id,   -- the flow
  src_upid,  -- process image at src; NULL: not known
  dst_upid   -- process image at dst
) AS
WITH owners AS (SELECT * FROM flow_owners),
alone AS (SELECT flow_id, side, MIN(upid) AS upid FROM owners GROUP BY flow_id, side HAVING MIN(upid) = MAX(upid)),
held AS (
  SELECT o.*, COALESCE(p.origin = 'exec' AND o.fd <= 2, 0) AS is_standard, COALESCE(a.upid = o.upid, 0) AS is_other_end,
    COALESCE(o.to_ns, p.end_ns, 9223372036854775807) - MAX(COALESCE(o.from_ns, 0), f.first_ns, 0) AS held_ns,
    COALESCE(f.proto = 'tcp' AND p.origin = 'fork' AND o.from_ns > MIN(o.from_ns) OVER (PARTITION BY o.flow_id, o.side)
      AND o.upid NOT IN (SELECT prev_upid FROM process WHERE prev_upid IS NOT NULL), 0) AS is_forked
  FROM owners AS o JOIN flow AS f USING (flow_id) LEFT JOIN process AS p USING (upid)
  LEFT JOIN alone AS a ON a.flow_id = o.flow_id AND a.side <> o.side
), ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY flow_id, side ORDER BY is_standard DESC, is_other_end, CASE
    WHEN is_forked = 0 THEN 1 WHEN side = 'src' THEN 2 ELSE forked <> 1 END, held_ns DESC, upid) AS place
  FROM (SELECT *, SUM(is_forked) OVER (PARTITION BY flow_id, side) AS forked FROM held)
)
SELECT flow_id, MAX(CASE side WHEN 'src' THEN upid END), MAX(CASE side WHEN 'dst' THEN upid END)
FROM ranked WHERE place = 1 GROUP BY flow_id;

-- The processes at the ends of flows over time.
CREATE VIEW flow_owners (
  flow_id, -- the flow
  side,    -- src or dst
  upid,    -- process image
  from_ns, -- begin, at the latest; NULL: not known
  to_ns,   -- end, at the earliest; NULL: the end of the flow or image
  fd,      -- its descriptor, the lowest of several; NULL: not known
  evidence -- calls: its system calls; descriptors: its open descriptors
) AS
WITH same AS (
  SELECT *, LAG(first_ns) OVER ports AS previous_ns, LEAD(first_ns) OVER ports AS next_ns FROM flow
  WHERE EXISTS (SELECT 1 FROM socket_end) -- else there is no row, and sorting a million flows takes seconds
  WINDOW ports AS (PARTITION BY capture_id, proto, src, sport, dst, dport ORDER BY first_ns, flow_id)
), ends AS (
  SELECT flow_id, 'src' AS side, proto, src AS address, sport AS port, dst AS peer,
    dport AS peer_port, capture_id, first_ns, previous_ns, next_ns FROM same
  UNION ALL
  SELECT flow_id, 'dst', proto, dst, dport, src, sport, capture_id, first_ns, previous_ns, next_ns
  FROM same
), sockets AS (
  SELECT s.*, e.upid, e.from_ns, e.to_ns, e.fd, p.end_ns, p.host_id
  FROM socket_end AS s JOIN channel_end AS e USING (end_id) JOIN process AS p USING (upid)
), met AS (
  SELECT f.*, s.address AS own, s.upid, s.from_ns, s.to_ns, s.fd, s.end_ns, s.host_id
  FROM sockets AS s JOIN ends AS f ON f.proto = s.proto AND f.port = s.port
    AND f.peer = s.peer AND f.peer_port = s.peer_port
  UNION ALL
  SELECT f.*, s.address, s.upid, s.from_ns, s.to_ns, s.fd, s.end_ns, s.host_id
  FROM sockets AS s JOIN ends AS f ON f.proto = s.proto AND f.port = s.port WHERE s.peer IS NULL
)
SELECT flow_id, side, upid, from_ns, to_ns, NULL, evidence FROM flow_owner
UNION ALL
-- A socket may be bound to no address of its own and to no peer; a loopback address is that of its host.
SELECT m.flow_id, m.side, m.upid, m.from_ns, m.to_ns, m.fd, 'calls'
FROM met AS m JOIN capture AS c ON c.capture_id = m.capture_id AND (c.host_id = m.host_id
  OR m.address NOT LIKE '127.%' AND m.peer NOT LIKE '127.%' AND m.address <> '::1' AND m.peer <> '::1')
WHERE (m.own = m.address OR m.own IN ('0.0.0.0', '::') AND (
  -- A socket bound to no address is at an end that is on its own host; if the packets do not show which end that is, at any.
  SELECT COALESCE(MAX(x.is_here), MAX(x.is_other) IS NULL) FROM (
    SELECT CASE WHEN CASE m.side WHEN 'src' THEN src_local ELSE dst_local END THEN h.host_id = m.host_id END AS is_here,
      CASE WHEN h.host_id = m.host_id THEN COALESCE(src_local, dst_local) END AS is_other
    FROM flow_capture AS s JOIN capture AS h USING (capture_id) WHERE s.flow_id = m.flow_id) AS x))
  AND m.first_ns <= COALESCE(m.to_ns, m.end_ns, m.first_ns)
  AND m.from_ns <= COALESCE((SELECT MAX(last_ns) FROM flow_capture AS x
    WHERE x.flow_id = m.flow_id) + 1000000000, m.from_ns)
  -- Of connections over the same ports, the one that had begun last when the end was met.
  AND (m.proto <> 'tcp' OR (m.previous_ns IS NULL OR m.from_ns >= m.first_ns)
    AND (m.next_ns IS NULL OR m.from_ns < m.next_ns));

-- State of the TCP connections of this machine, as the kernel reports it about once a second.
CREATE VIEW flow_samples (
  t_ns,              -- time of the sample
  flow_id,           -- the flow
  side,              -- the end whose kernel was asked: src or dst
  rtt_ns,            -- smoothed round trip time
  min_rtt_ns,        -- smallest recent round trip time
  retransmits,       -- segments sent again, in all
  rwnd_limited_ns,   -- time limited by the receiver's window
  sndbuf_limited_ns, -- time limited by the send buffer
  busy_ns,           -- time with data in flight
  delivery_rate,     -- recent rate of arrival, bytes a second
  bytes_acked,       -- payload sent and acknowledged
  bytes_received,    -- payload received
  congestion         -- congestion control
) AS
SELECT t_ns, flow_id, side, rtt_ns, min_rtt_ns, retransmits, rwnd_limited_ns, sndbuf_limited_ns,
  busy_ns, delivery_rate, bytes_acked, bytes_received, congestion
FROM flow_sample;

-- Every captured packet, once per capture that saw it. Reading in the order of time is fast; any other search reads all rows.
CREATE VIEW packets (
  t_ns,          -- timestamp of the kernel that captured, on the common scale of all hosts
  capture_id,    -- capture that saw it
  flow_id,       -- flow it belongs to
  dir,           -- 0: src to dst, 1: back
  seq,           -- TCP sequence number
  ack,           -- TCP acknowledgement number
  flags,         -- TCP flags: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK, 32 URG, 64 ECE, 128 CWR
  payload_bytes, -- bytes of payload
  wire_bytes,    -- bytes on the wire
  window,        -- TCP window, scaled where the flow's SYNs were seen
  tsval,         -- TCP timestamp value
  tsecr,         -- TCP timestamp echo
  way,           -- 0: not known, 1: sent by the host of the capture, 2: received by it, 3: forwarded or overheard
  marks,         -- 1: several segments in one (segmentation offload), 2: fragment, 4: VLAN tag, 8: headers cut, 16: fragment other than the first
  packet_id      -- own id, in the order of time of each host
) AS
SELECT (p.at >> 6) + h.clock_offset_ns
    - CAST((p.at >> 6) * (h.clock_drift_ppb / 1e9) AS INTEGER),
  c.capture_id, p.flow_id, p.what & 1, p.seq & 4294967295, p.ack & 4294967295,
  CASE WHEN p.seq IS NOT NULL THEN p.flags & 255 END,
  p.payload_bytes, p.payload_bytes + p.header_bytes, p.window, p.tsval & 4294967295,
  p.tsecr & 4294967295, p.what >> 1 & 3, COALESCE(p.flags >> 8, 0), p.at
FROM packet AS p CROSS JOIN capture AS c ON c.capture_id = p.what >> 3
CROSS JOIN host AS h ON h.host_id = c.host_id;

-- The workflow graph as rows: processes, files and channels, in the direction in which data or control flows.
CREATE VIEW edges (
  src_kind, -- process, file, channel or flow
  src_id,   -- upid, file_id, channel_id or flow_id
  dst_kind, -- process, file, channel or flow
  dst_id,   -- upid, file_id, channel_id or flow_id
  kind,     -- create, write, read; fork, exec; send, receive: of a captured flow, whose socket may be a channel, too
  bytes,    -- bytes moved; NULL: not a data edge, or not known
  first_ns, -- begin
  last_ns   -- end
) AS
SELECT 'process', upid, 'file', file_id, relation, write_bytes, first_ns, last_ns
FROM file_access WHERE relation IN ('create', 'write')
UNION ALL
SELECT 'file', file_id, 'process', upid, 'read', read_bytes, first_ns, last_ns
FROM file_access WHERE reads > 0 OR relation = 'read'
UNION ALL
SELECT 'process', parent_upid, 'process', upid, 'fork', NULL, start_ns, start_ns
FROM process WHERE parent_upid IS NOT NULL AND prev_upid IS NULL
UNION ALL
SELECT 'process', prev_upid, 'process', upid, 'exec', NULL, start_ns, start_ns
FROM process WHERE prev_upid IS NOT NULL
UNION ALL
SELECT 'process', upid, 'channel', channel_id, 'write',
  CASE WHEN direction = 'both' AND (channel_id, upid) IN (SELECT channel_id, upid FROM channel_sum WHERE exact)
    THEN (SELECT CASE WHEN COUNT(*) = COUNT(s.bytes) THEN COALESCE(SUM(s.bytes), 0) END FROM channel_sum AS s
      WHERE s.channel_id = e.channel_id AND s.upid = e.upid AND s.side = 'write')
    ELSE bytes END, from_ns, to_ns
FROM channel_end AS e WHERE direction IN ('write', 'both') AND used IS NOT 0
UNION ALL
SELECT 'channel', channel_id, 'process', upid, 'read',
  CASE WHEN direction = 'both' AND (channel_id, upid) IN (SELECT channel_id, upid FROM channel_sum WHERE exact)
    THEN (SELECT CASE WHEN COUNT(*) = COUNT(s.bytes) THEN COALESCE(SUM(s.bytes), 0) END FROM channel_sum AS s
      WHERE s.channel_id = e.channel_id AND s.upid = e.upid AND s.side = 'read')
    ELSE bytes END, from_ns, to_ns
FROM channel_end AS e WHERE direction IN ('read', 'both') AND used IS NOT 0
UNION ALL
SELECT 'process', src_upid, 'flow', flow_id, 'send', out_bytes, first_ns, last_ns
FROM flows WHERE src_upid IS NOT NULL AND out_bytes > 0
UNION ALL
SELECT 'flow', flow_id, 'process', dst_upid, 'receive', out_bytes, first_ns, last_ns
FROM flows WHERE dst_upid IS NOT NULL AND out_bytes > 0
UNION ALL
SELECT 'process', dst_upid, 'flow', flow_id, 'send', back_bytes, first_ns, last_ns
FROM flows WHERE dst_upid IS NOT NULL AND back_bytes > 0
UNION ALL
SELECT 'flow', flow_id, 'process', src_upid, 'receive', back_bytes, first_ns, last_ns
FROM flows WHERE src_upid IS NOT NULL AND back_bytes > 0;

-- Samples of call stacks: a thread was on a CPU (run --stacks).
CREATE VIEW stack_samples (
  t_ns,     -- time, to 10 µs
  upid,     -- process image; NULL: not known
  tid,      -- thread
  stack_id, -- call stack, see stacks
  cpu_ns,   -- CPU time for which the sample stands
  function, -- innermost function
  module    -- file that has it, or [kernel], [vdso], [memory of PID]
) AS
SELECT s.at * 10000, t.upid, t.tid, s.stack_id, (SELECT MIN(period_ns) FROM stack_sampling), f.function, f.module
FROM stack_sample AS s JOIN stack_thread AS t USING (thread_id) JOIN stack AS k USING (stack_id)
LEFT JOIN frames AS f ON f.frame_id = k.frame_id AND f.depth = 0;

-- Samples of call stacks: a thread returned from a call after it had waited (run --stacks as root).
CREATE VIEW stack_waits (
  t_ns,       -- time of the return, to 10 µs
  upid,       -- process image; NULL: not known
  tid,        -- thread
  stack_id,   -- call stack, see stacks
  blocked_ns, -- time of waiting for which the sample stands
  function,   -- innermost function
  module      -- file that has it, or [vdso], [memory of PID]
) AS
SELECT s.at * 10000, t.upid, t.tid, s.stack_id, s.blocked_us * 1000, f.function, f.module
FROM stack_wait AS s JOIN stack_thread AS t USING (thread_id) JOIN stack AS k USING (stack_id)
LEFT JOIN frames AS f ON f.frame_id = k.frame_id AND f.depth = 0;

-- Call stacks, each as its innermost frame and the stack of its caller.
CREATE VIEW stacks (
  stack_id,  -- own id
  caller_id, -- stack of the caller; NULL: this is the outermost frame
  frame_id,  -- innermost frame, see frames
  function,  -- its innermost function
  line,      -- line in file of that function; NULL: not known
  file,      -- source file; NULL: not known
  module     -- file that has the code, or [kernel], [vdso], [memory of PID]
) AS
SELECT k.stack_id, k.caller_id, k.frame_id, f.function, f.line, f.file, f.module
FROM stack AS k LEFT JOIN frames AS f ON f.frame_id = k.frame_id AND f.depth = 0;

-- The functions at each place in code of a call stack.
CREATE VIEW frames (
  frame_id,   -- the place
  depth,      -- 0: innermost function; further ones are those into which the compiler put it
  function,   -- name, demangled; [incomplete]: further frames are not known; module+address without symbols
  line,       -- line in file; NULL: not known
  file,       -- source file; NULL: not known
  module,     -- file that has the code, or [kernel], [vdso], [memory of PID]
  address,    -- address in the terms of the file, of other code in memory
  symbols,    -- source of the name: dwarf, symtab, dynsym, kallsyms, map, none, unreadable
  function_id -- number of the function; NULL: it has no name
) AS
SELECT a.frame_id, COALESCE(l.depth, 0),
  COALESCE(f.name, CASE WHEN a.module_id IS NULL THEN '[incomplete]' ELSE printf('%s+0x%x', m.path, a.address) END),
  l.line, f.file, m.path, a.address, m.symbols, l.function_id
FROM stack_frame AS a LEFT JOIN stack_location AS l USING (frame_id) LEFT JOIN stack_function AS f USING (function_id)
LEFT JOIN stack_module AS m ON m.module_id = a.module_id;

-- The known losses of this file; no row means no known loss. If a run was cut short (runs.end_ns is NULL), the rows of its last
-- quarter of a second are missing, too.
CREATE VIEW losses (
  source,   -- part that lost it: store, files, processes, packets, samples, analysis
  counter,  -- name of the counter
  value,    -- number of losses
  meaning,  -- meaning of the loss for the reader
  severity  -- info, notice, data_loss, error
) AS
SELECT source, counter, value, meaning, severity FROM loss;
