/*
 * The records that the programs write, and the maps that both sides have in memory. The same is in Rust, beside what
 * reads it; a test compares names, sizes and offsets with those in the objects.
 */
#pragma once
#include "kernel.h"

enum {
	SYSCALLS = 512,		/* numbers of system calls are below; those of 32-bit programs are this much higher */
	MAX_CPUS = 1024,
};

/* State of a process in traced_pids. After EXITED, who acts under this id is another process. */
enum pid_state { ALIVE, EXITED };

/* --- Processes (processes.bpf.c): a ring of records of any length ------------------------------------------------ */

enum process_event {
	FORKED = 1, EXECUTED, ENDED,
	/* Parts of an exec, before it. Each may come in several records. */
	EXECUTABLE, DIRECTORY, ARGUMENTS, ENVIRONMENT,
	STOPPED, EXITING,
	/* The path of descriptor 0, and so on. */
	TARGETS,
	NUMBERED = 10,		/* descriptors that a shell can redirect by one digit */
	/* Parts of a fork, an exec and the begin of an exit: all that is open, and what the parent has open. */
	OPEN_FILES = TARGETS + NUMBERED, OPEN_FILES_OF_PARENT,
	/* Parts of a call, before it: the other one of two descriptors, the path it opened, the address of a socket, two
	 * names, and the directories they are relative to. */
	SECOND, OPENED, ADDRESS, NAMES, BASES = NAMES + 2,
	CALLED = BASES + 2,
	/* A thread that executed a program while the clock of its CPU stood still leaves the CPU. */
	LEFT,
	/* Bytes that were written into a pipe whose reading end the writer has, as shells do with here-documents. */
	PIPED,
};

/* In event_head.number of a path: the file has no name any more; it never had one. Of open files: there may be more. */
enum { UNNAMED = 1, DETACHED = 2, CUT = 4 };
/* In event_head.number of an address: it is the socket's own. */
enum { OWN_ADDRESS = 1 };
/* In event_head.number of an exec: a bit for each part that could not be reported. */

struct event_head {
	u64 at;			/* CLOCK_MONOTONIC, ns; of a part 0, or its length */
	u32 tid, pid, what, number;
};

/* An open file, as one descriptor of a process. */
struct open_file {
	u32 descriptor, generation, mode, flags, kind, device;
	u64 inode, position, size;
	u32 writers, capacity;	/* of a pipe; capacity in pages */
	u64 unread;		/* bytes in a pipe without writers; ~0: not known */
};

/* Calls and bytes of read, calls and bytes of write: read calls, write calls, bytes read, bytes written. */
struct io_counts { u64 read_calls, write_calls, read_bytes, write_bytes; };

struct open_files { struct io_counts io; u64 process; struct open_file files[]; };

struct fork_event { u32 tid, pid; u64 level, inner_pid; };

/* Use of resources by a thread. */
struct usage {
	u64 on_cpu, counted_at, user, system, run_delay, minor_faults, major_faults, voluntary_switches,
		involuntary_switches;
	struct io_counts io;
	u64 peak_pages;		/* of its process */
	u64 cpu, clock, task_clock, clock_flags;
};

struct exec_event { struct usage usage; u32 former_tid, umask; };
struct exit_event { struct usage usage; u64 start; u32 leader_code, group_code; u64 group_flags; };

/* A system call that has returned. */
struct call_event {
	struct open_file file;
	u64 result, began, argument[6];	/* began: 0: not known */
	struct io_counts io;
	u16 family, type;
	u32 state;
	u16 local_port, peer_port;
	u32 unused;
	u8 local[16], peer[16];
	u64 peer_inode;
};

/*
 * The report of a call: its shape; the arguments with the names of files and the directories that they are relative
 * to (of a call that returns a descriptor, for its failure); the one that attributes were written to, and the one with
 * flags that may have AT_EMPTY_PATH.
 */
struct call_report { u8 how, shape, name, directory, other_name, other_directory, attributes, flags; };
enum {
	WITH_FAILURES = 1,
	AS_STATX = 2,		/* attributes are a struct statx; else a struct stat */
	OF_THE_RUN = 4,		/* not of files of the machine, as far as the name shows */
	FINDS = 8,		/* fails or reads attributes: dropped first when the ring fills */
};

/* --- Calls on open files (calls.bpf.c): slots of one size in a ring for each CPU -------------------------------- */

enum slot_kind {
	ENTRY = 1,		/* a call begins: the file of its first descriptor */
	OTHER_ENTRY,		/* the file of its second one */
	RETURN,
	MOVED,			/* bytes in several messages, before the return */
};

/*
 * How a call uses files: the arguments that have its descriptors, the places in their files, the amount and the flags.
 * A call with a second descriptor reads the first one and writes the second.
 */
struct call_arguments {
	u16 how;
	u8 first, second, place, second_place, length, flags, more_flags, unused[7];
	u64 commands;		/* a bit for each value of more_flags with which it is recorded; 0: all */
};
enum {
	MOVES_DATA = 1,
	WRITES = 2,		/* the first descriptor */
	VECTOR = 4,		/* the length is the sum of pieces (readv(2)); their number is the argument after it */
	MESSAGE = 8,		/* the length is that of a message (sendmsg(2)) */
	MESSAGES = 16,		/* the length is not known; the result is a number of messages (sendmmsg(2)) */
	PLACE_IS_OFFSET = 32,	/* else it is the address of an offset */
	MINUS_ONE_IS_POSITION = 64,
	ACTS = 128,		/* on a file or directory, without moving data */
	NAMES_FILE = 256,	/* by its name: only when it begins; with ACTS that is so unless the name is empty */
	LOCK = 512,		/* place, length and flags are in a structure (struct flock of fcntl(2)) */
};
enum { NO_ARGUMENT = 7, KIND_SHIFT = 10, ROUND_SHIFT = 16 };

/* The file of a descriptor when the call began. */
struct file_use {
	u64 file;		/* address of the open file: while calls use it no other one has it */
	u64 inode;
	u32 device;
	u16 mode, uses;
	u64 offset, length;	/* ~0: not known */
	u32 flags;		/* of the call, and more_flags in the upper half */
	s32 descriptor;
};
/* In file_use.uses. */
enum {
	AT_POSITION = 1,	/* the offset was the position of the open file, which the call moves */
	APPENDS = 2,		/* by the flags of the open file */
};

struct slot {
	u64 at;
	u32 tid;
	u32 mark;		/* number of the call, slot_kind, and in the upper half the round of the ring; written last */
	union {
		struct file_use use;
		struct { s64 result; u64 position; };	/* position after a write that appends; ~0: not known */
	};
};

/* The last call of a thread that names a file. */
struct begun_call { u64 at, number; };

/* Slots taken and read of the ring of one CPU, each in a cache line of its own. */
struct ring_state { u64 taken, unused[7], read, unused_too[7]; };

/* --- Scheduling (switches.bpf.c): a ring for each CPU ------------------------------------------------------------ */

/*
 * In switch_event.exit_state: the record is not of a thread that leaves its CPU. A waking by thread `next`: `state` is 1
 * in an interrupt that is none of its doing, which only found that thread on the CPU, 2 if it is one of hardware, as of
 * a timer. A request to device `next`, made at sector `ran`, reaches stage `state` while thread `tid` is on the CPU.
 */
#define IS_WAKING (~0u)
#define IS_REQUEST (~0u - 1)
enum stage { QUEUED, ISSUED, COMPLETED };

struct switch_event { u64 at; u32 tid, next, state, exit_state; u64 ran; };

/* The file of a descriptor; mode 0: there is none. */
struct waited_file { u64 inode; u32 device, mode; };

/*
 * The call in which a thread leaves its CPU: registers that may hold arguments, from bp on, and the files of its
 * descriptors.
 */
struct waiting_call { u64 number, is_compat, registers[11]; struct waited_file files[2]; };
struct waiting_event { struct switch_event head; struct waiting_call call; };
