/*
 * Scheduling: which thread leaves a CPU to which one and in which call it then waits, which thread wakes which one, and
 * the stages of requests to devices.
 */
#include "common.bpf.h"

enum { NOT_OF_PROGRAM = 0x00204010 };	/* PF_KTHREAD, PF_USER_WORKER, PF_IO_WORKER */
enum { MINORBITS = 20, ANON_INODE_FS_MAGIC = 0x09041934 };

const volatile struct {
	s64 to_preempt_count;	/* bytes from the run queue of a CPU to its __preempt_count */
	bool named_rings;	/* each CPU has a ring of its own name */
} config = { 0, true };

/*
 * The arguments of each call that have descriptors: in four bits each the number of one, from 1 on. Those of 32-bit
 * programs are behind the others.
 */
u8 descriptors[2 * SYSCALLS] SEC(".bss.descriptors");
u64 lost SEC(".bss.lost");

/*
 * A ring for each CPU. Up to this many CPUs each is a map of its own: no look-up for a record, and making an entry of a
 * map of maps waits some 10 ms for all CPUs.
 */
#define EACH_RING(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)

struct ring { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); };
#define DECLARE(n) struct ring ring_##n SEC(".maps");
EACH_RING(DECLARE)
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct ring);
} all_rings SEC(".maps");

static __always_inline void *reserve(u32 bytes)
{
	u32 cpu = bpf_get_smp_processor_id();
	void *ring;
	if (!config.named_rings) {
		ring = bpf_map_lookup_elem(&all_rings, &cpu);
		return ring ? bpf_ringbuf_reserve(ring, bytes, 0) : NULL;
	}
	switch (cpu) {
#define CHOOSE(n) case n: ring = &ring_##n; break;
	EACH_RING(CHOOSE)
	default: return NULL;
	}
	return bpf_ringbuf_reserve(ring, bytes, 0);
}

static __always_inline void submit(struct switch_event *to, struct switch_event event)
{
	event.at = bpf_ktime_get_ns();
	*to = event;
	bpf_ringbuf_submit(to, BPF_RB_NO_WAKEUP);
}

static __always_inline int record(struct switch_event event)
{
	struct switch_event *to = reserve(sizeof *to);
	if (to)
		submit(to, event);
	else
		__sync_fetch_and_add(&lost, 1);
	return 0;
}

static __always_inline void get_file(struct waited_file *to, struct fdtable *table, struct pt_regs *regs,
				     bool is_compat, u8 argument)
{
	u32 fd;
	switch (argument) {
	case 1: fd = is_compat ? regs->bx : regs->di; break;
	case 2: fd = is_compat ? regs->cx : regs->si; break;
	case 3: fd = regs->dx; break;
	default: return;
	}
	u64 file = file_in(table, fd);
	if (!file)
		return;
	struct inode *inode = as(struct file, file)->f_inode;
	struct super_block *fs = inode->i_sb;
	/* Since Linux 6.16 objects without a name have the type of a file. */
	u32 mode = inode->i_mode & (fs->s_magic == ANON_INODE_FS_MAGIC ? 07777 : ~0);
	*to = (struct waited_file){ inode->i_ino, fs->s_dev, mode };
}

static __always_inline void get_files(struct waiting_call *call, struct pt_regs *regs)
{
	u32 number = (u32)call->number & (SYSCALLS - 1);
	u8 which = call->number < SYSCALLS ? descriptors[number + (call->is_compat ? SYSCALLS : 0)] : 0;
	struct fdtable *table = which ? table_of(current_task()) : NULL;
	if (!table)
		return;
	get_file(&call->files[0], table, regs, call->is_compat, which & 15);
	get_file(&call->files[1], table, regs, call->is_compat, which >> 4);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(leaves, bool goes_on, struct task_struct *task, struct task_struct *next, unsigned int state)
{
	struct switch_event event = { .tid = task->pid, .next = next->pid, .ran = task->se.sum_exec_runtime };
	/* The state of a thread that was preempted is one that it is about to take. */
	if (!goes_on)
		event.state = state, event.exit_state = task->exit_state;
	if (!(event.state | event.exit_state) || task->flags & NOT_OF_PROGRAM)
		return record(event);
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	u64 is_compat = task->thread_info.status & TS_COMPAT, number = regs->orig_ax;
	struct waiting_event *to = reserve(sizeof *to);
	if (!to) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	to->call = (struct waiting_call){ number, is_compat, { regs->bp, regs->bx, regs->r11, regs->r10, regs->r9, regs->r8,
		regs->ax, regs->cx, regs->dx, regs->si, regs->di } };
	get_files(&to->call, regs);
	submit(&to->head, event);
	return 0;
}

/*
 * A waking in an interrupt is not one by the task that the interrupt found on the CPU: these bits of the count of the
 * CPU show it (HARDIRQ_MASK, SOFTIRQ_OFFSET; with PREEMPT_RT soft interrupts are work of a task). Only kernels with
 * CONFIG_KALLSYMS_ALL give programs the address of a variable. But the run queue of the CPU is at a fixed distance from
 * the count, and the task has a pointer to it (with CONFIG_FAIR_GROUP_SCHED). Read as the member of a structure, the
 * count needs no call.
 */
enum { IN_HARD_INTERRUPT = 0xf0000, IN_SOFT_INTERRUPT = 0x100 };
#define int_at(address) as(struct upid, address)->nr

/*
 * Within one machine a packet arrives in a soft interrupt that the call of its sender begins: the loopback device, and
 * pairs of devices, raise it. A call on a socket therefore wakes whom it reaches, and so does one that closes the socket.
 */
static __always_inline bool is_on_socket(struct task_struct *by)
{
	enum { CLOSE = 3, SHUTDOWN = 48, EXIT = 60, EXIT_GROUP = 231 };
	struct pt_regs *regs = (void *)bpf_task_pt_regs(by);
	struct waiting_call call = { .number = regs->orig_ax, .is_compat = by->thread_info.status & TS_COMPAT };
	switch (call.is_compat ? SYSCALLS : call.number) {
	case CLOSE: case SHUTDOWN: case EXIT: case EXIT_GROUP: return true;
	}
	get_files(&call, regs);
	return ((call.files[0].mode | call.files[1].mode) & S_IFMT) == S_IFSOCK;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(woken, struct task_struct *task)
{
	struct task_struct *by = bpf_get_current_task_btf();
	u32 count = int_at((u64)by->se.cfs_rq->rq + config.to_preempt_count);
	u32 by_none = count & IN_HARD_INTERRUPT ? 2 : count & IN_SOFT_INTERRUPT && !is_on_socket(by);
	return record((struct switch_event){ .tid = task->pid, .next = by->pid, .state = by_none, .exit_state = IS_WAKING });
}

static __always_inline int reaches(struct request *address, enum stage stage)
{
	struct request *request = as(struct request, address);
	struct gendisk *disk = request->q->disk;
	if (!disk)
		return 0;
	return record((struct switch_event){ .tid = current_task()->pid, .next = disk->major << MINORBITS | disk->first_minor,
		.state = stage, .exit_state = IS_REQUEST, .ran = request->__sector });
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(queued, struct request *request)
{
	return reaches(request, QUEUED);
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(issued, struct request *request)
{
	return reaches(request, ISSUED);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(completed, struct request *request)
{
	return reaches(request, COMPLETED);
}
