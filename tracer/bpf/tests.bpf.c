/* Programs of the tests of what the others share. */
#include "common.bpf.h"

enum { SPARE_SLOTS = 64 };
u64 counts[2] SEC(".bss.counts");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} tail_call SEC(".maps");

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
