/* Programs of the tests of what the others share. */
#include "common.bpf.h"

u64 counts[2] SEC(".bss.counts");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} tail_call SEC(".maps");

/* The compiler describes only types that are used. */
struct {
	struct event_head head;
	struct fork_event fork;
	struct exec_event exec;
	struct exit_event exit;
	struct call_event call;
	struct slot slot;
	struct call_arguments call_arguments;
	struct call_report call_report;
	struct ring_state ring;
	struct waiting_event waiting;
	struct open_files files;
} layouts SEC(".bss.layouts");

SEC("raw_tp")
int first(void *context)
{
	__sync_fetch_and_add(&counts[0], 1);
	bpf_tail_call(context, &tail_call, 0);
	return 0;
}

SEC("raw_tp")
int second(void *context)
{
	__sync_fetch_and_add(&counts[1], 1);
	return 0;
}
