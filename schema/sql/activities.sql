-- The activities of a thread. The enum Activity of the crate mirrors the list; a test compares both.
INSERT INTO activity (activity, state, reason, storage, meaning) VALUES
  (0, 'running', NULL, 0, 'on a CPU for most of the time since the sample before'),
  (1, 'runnable', NULL, 0, 'wants to run, and waited for a CPU for most of that time'),
  (2, 'blocked', 'channel', 0, 'waits for a pipe, FIFO or socket, alone or among others'),
  (3, 'blocked', 'terminal', 0, 'waits for a terminal or another character device'),
  (4, 'blocked', 'file', 1, 'in a file call: for the disk, or for the traced mount'),
  (5, 'blocked', 'fault', 1, 'waits for a page of memory that is read from storage'),
  (6, 'blocked', 'child', 0, 'waits for a child to end; of vfork, to exec or end'),
  (7, 'blocked', 'lock', 0, 'waits for a futex, file lock, record lock or semaphore'),
  (8, 'blocked', 'sleep', 0, 'waits for time to pass'),
  (9, 'blocked', 'signal', 0, 'waits for a signal'),
  (10, 'blocked', 'event', 0, 'waits for an eventfd, timer, io_uring or another thing of the kernel'),
  (11, 'blocked', 'other', 0, 'in any other call'),
  (12, 'stopped', NULL, 0, 'stopped by job control'),
  (13, 'tracer', NULL, 0, 'stopped by its tracer: flowtrace, where it follows by ptrace, or strace and debuggers of the run');
