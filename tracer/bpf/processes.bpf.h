/* Records about processes and their parts, and the memory in which they are made. */
#pragma once
#include "common.bpf.h"
#include "messages.bpf.h"

enum { PATH_MAX = 4096, NAME_MAX = 256, PART_MAX = 1 << 16, RECORDS_MAX = 48, ADDRESS_MAX = 110 };

const volatile struct {
	u32 ring_bytes;
	bool all;		/* report all processes of the machine */
	bool with_files;	/* report open files, and calls that open them */
	bool with_directories;	/* report opens of directories and links, too */
	u32 arguments_max;	/* bytes of arguments that are reported of an exec */
	u32 change_flags;	/* flags with which an open changes something */
} config = { 4096 };

struct record {
	struct event_head head;
	union { struct fork_event fork; struct exec_event exec; struct exit_event exit; struct call_event call; };
};

/* The memory of one CPU for the program that runs on it. */
struct scratch {
	struct record record;
	u64 arguments[8];	/* of a call; in the memory of a map nothing is known of them, so that one check holds for all */
	u64 missing;		/* a bit for each part that could not be reported */
	u64 halted_thread;	/* executed a program while the clock of the CPU stood still; survives the program */
	struct open_file file;
	u32 zero;		/* 0, which the verifier does not know: it would follow each step of a loop that begins there */
	struct walk walk;
	u32 used;		/* bytes of the part */
	struct event_head part;
	u8 bytes[PART_MAX + PATH_MAX];
};

#define MAP(kind, entries, of_value, name) struct { __uint(type, BPF_MAP_TYPE_##kind); __uint(max_entries, entries); \
	__type(key, u32); __type(value, of_value); } name SEC(".maps")
#define RING(bytes, name) struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, bytes); } name SEC(".maps")

MAP(ARRAY, 1, struct scratch, scratch);
RING(8 << 20, ring);
RING(4096, wakeup);
u64 lost SEC(".bss.lost"), lost_calls SEC(".bss.lost_calls");

/* Adds a record to the ring. The reader is woken when a quarter of the ring is full. */
static __always_inline bool output(void *from, u64 bytes)
{
	u64 any = 0;
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >= config.ring_bytes / 4)
		bpf_ringbuf_output(&wakeup, &any, sizeof any, BPF_RB_FORCE_WAKEUP);
	if (!bpf_ringbuf_output(&ring, from, bytes, BPF_RB_NO_WAKEUP))
		return true;
	__sync_fetch_and_add(&lost, 1);
	return false;
}

/* True if enough of the ring is free for processes, even after a report that they can do without. */
static __always_inline bool has_space_for_more(void)
{
	return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) < config.ring_bytes / 4 * 3;
}

#define emit_at(s, time, kind, rest) ({ (s)->record.head.at = time; (s)->record.head.what = kind; \
	output(&(s)->record, sizeof(struct event_head) + (rest)); })
#define emit(s, kind, rest) emit_at(s, bpf_ktime_get_ns(), kind, rest)

static __always_inline void begin_part(struct scratch *s, u32 what)
{
	s->part = (struct event_head){ .tid = s->record.head.tid, .pid = s->record.head.pid, .what = what };
	s->used = 0;
}

static __always_inline void mark_missing(struct scratch *s)
{
	s->missing |= 1ull << (s->part.what & 63);
}

/* The scratch memory of this CPU if the current process is traced; else NULL. */
static __always_inline struct scratch *begin(bool only_alive)
{
	u64 ids = bpf_get_current_pid_tgid();
	u32 pid = ids >> 32, cpu = bpf_get_smp_processor_id();
	if (!config.all) {
		u64 *state = bpf_map_lookup_elem(&traced_pids, &pid);
		if (!state || (only_alive && *state == EXITED))
			return NULL;
	}
	struct scratch *s = bpf_map_lookup_elem(&scratch, &cpu);
	if (s) {
		s->record.head = (struct event_head){ .tid = ids, .pid = pid };
		s->missing = 0;
	}
	return s;
}

static __always_inline void set_state(u32 pid, u64 state)
{
	if (config.all)
		return;
	bpf_map_update_elem(&traced_pids, &pid, &state, BPF_ANY);
	if (state == EXITED)
		__sync_fetch_and_add(&pid_changes, 1);
}
