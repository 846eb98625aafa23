/*
 * Call stacks of threads that waited: one for each period of time that a thread was blocked in calls, of the call in
 * which the period ended. It is taken when that call returns, because only then is it known how long the thread waited,
 * and only a thread's own stack can be read.
 */
#include "common.bpf.h"

enum { NO_CALL = -1, WINDOW = 100000000 /* ns */ };

const volatile struct {
	u64 period;	/* ns */
	u64 most;	/* stacks of a CPU in a window of time: many threads may wait */
} config = { 1 };

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} events SEC(".maps");

/* Of a thread: since when it is blocked, 0: it is not; and how long it was blocked since the end of the last period, ns. */
struct blocked { u64 since, time; };
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, u32);
	__type(value, struct blocked);
} blocked_threads SEC(".maps");

/* The window of each CPU. Its stacks may be close together: threads that wake each other return at the same time. */
struct { u64 began, stacks; } windows[MAX_CPUS] SEC(".bss.windows");

static __always_inline void begin_wait(struct task_struct *task, unsigned int state)
{
	u32 tid = task->pid, pid = task->tgid;
	if (state & TASK_DEAD) {
		bpf_map_delete_elem(&blocked_threads, &tid);
		return;
	}
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	if (!(state & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE)) || (int)regs->orig_ax == NO_CALL
	    || !bpf_map_lookup_elem(&traced_pids, &pid))
		return;
	struct blocked *known = bpf_map_lookup_elem(&blocked_threads, &tid), first = { bpf_ktime_get_ns() };
	if (known) {
		known->since = first.since;
		return;
	}
	/* The first period of a thread is shorter: otherwise threads that wait for less would never have a stack. */
	first.time = bpf_get_prandom_u32() % config.period;
	bpf_map_update_elem(&blocked_threads, &tid, &first, BPF_ANY);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool goes_on, struct task_struct *task, struct task_struct *next, unsigned int state)
{
	if (!goes_on)
		begin_wait(task, state);
	u32 tid = next->pid;
	struct blocked *b = bpf_map_lookup_elem(&blocked_threads, &tid);
	if (b && b->since) {
		b->time += bpf_ktime_get_ns() - b->since;
		b->since = 0;
	}
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(returned)
{
	u32 tid = bpf_get_current_pid_tgid(), cpu = bpf_get_smp_processor_id() & (MAX_CPUS - 1);
	struct blocked *b = bpf_map_lookup_elem(&blocked_threads, &tid);
	if (!b || b->time < config.period)
		return 0;
	u64 now = bpf_ktime_get_ns(), periods = b->time - b->time % config.period;
	if (now - windows[cpu].began > WINDOW)
		windows[cpu].began = now, windows[cpu].stacks = 0;
	if (windows[cpu].stacks >= config.most)
		return 0;
	windows[cpu].stacks++;
	b->time -= periods;
	bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, &periods, sizeof periods);
	return 0;
}
