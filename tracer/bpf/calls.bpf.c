/* Entries and returns of calls that traced processes make: one slot each, in the ring of the CPU. */
#include "messages.bpf.h"

enum { SPARE_SLOTS = 64, UIO_MAXIOV = 1024, SIGSTOP = 19 };
enum { NR_sendmsg = 46, NR_recvmsg = 47, NR_recvmmsg = 299, NR_sendmmsg = 307 };
enum { LOST_DATA, LOST_RETURNS, LOST_OTHERS };

const volatile struct {
	u32 ring_bits;		/* slots of a ring, as a power of two */
	u32 stop_above;		/* slots in use above which a thread that makes a call is stopped; 0: none is */
} config = { 10, 0 };

/* Flags of each system call; those of 32-bit programs behind the others. */
u8 wanted[2 * SYSCALLS] SEC(".bss.wanted");
u64 lost[3] SEC(".bss.lost");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct ring_state rings[MAX_CPUS] SEC(".bss.rings");

/* The last call of a CPU: its process, which is traced, and the thread whose entry was recorded. */
struct last { u32 process, unused, thread, call; u64 pid_changes, unused_too[5]; };
struct last lasts[MAX_CPUS] SEC(".bss.lasts");

/* The program that goes on when a call has returned, if there is one. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} tail_call SEC(".maps");

/* For each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} walks SEC(".maps");

struct caller { u32 tid, pid, cpu, number; u8 wanted; bool is_compat; };

static __always_inline u64 in_use(struct ring_state *ring)
{
	return READ_ONCE(ring->taken) - READ_ONCE(ring->read);
}

/*
 * Takes the next slot of the ring of this CPU; NULL: it is full. Neither a lock nor a helper: interrupts take slots of
 * their own, and the reader knows by the round in the mark that a slot is complete. The kernel's ring buffer takes a
 * lock and two helpers for a record, which would be most of what recording a call costs.
 */
static __always_inline struct slot *take_slot(struct caller *c, u32 *round)
{
	u32 bits = config.ring_bits, mask = (1u << bits) - 1;
	struct ring_state *ring = &rings[c->cpu & (MAX_CPUS - 1)];
	/* Interrupts may take slots between this test and the next line. */
	if (in_use(ring) > mask + 1 - SPARE_SLOTS)
		return NULL;
	u64 at = __sync_fetch_and_add(&ring->taken, 1);
	u32 index = c->cpu << bits | (at & mask);
	struct slot *slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return NULL;
	*round = ((u32)(at >> bits) + 1) << ROUND_SHIFT;
	slot->at = bpf_ktime_get_ns();
	slot->tid = c->tid;
	return slot;
}

static __always_inline void complete(struct slot *slot, struct caller *c, enum slot_kind kind, u32 round)
{
	barrier();
	WRITE_ONCE(slot->mark, round | kind << KIND_SHIFT | c->number);
}

static __always_inline bool is_wanted(u64 number)
{
	return number < SYSCALLS && (wanted[number] | wanted[SYSCALLS + number]) & ENTERS;
}

/* Mostly the process is the one that made the last call on this CPU, which takes no look-up. */
static __always_inline bool is_traced(struct caller *c, struct last *last)
{
	u64 now = READ_ONCE(pid_changes);
	if (last->pid_changes == now && last->process == c->pid)
		return true;
	u64 *state = bpf_map_lookup_elem(&traced_pids, &c->pid);
	if (!state || *state == EXITED)
		return false;
	c->is_compat = *state == COMPAT;
	if (!c->is_compat) {
		last->process = c->pid;
		last->pid_changes = now;
	}
	return true;
}

static __always_inline struct last *last_of(struct caller *c)
{
	u64 ids = bpf_get_current_pid_tgid();
	c->tid = ids, c->pid = ids >> 32, c->cpu = bpf_get_smp_processor_id();
	return &lasts[c->cpu & (MAX_CPUS - 1)];
}

static __always_inline bool is_wanted_of(struct caller *c)
{
	u32 place = c->number + (c->is_compat ? SYSCALLS : 0);
	if (place >= 2 * SYSCALLS)
		return false;
	c->number = place;
	c->wanted = wanted[place];
	return c->wanted & ENTERS;
}

/* The sum of the lengths of pieces (struct iovec), plus 1; ~0: they could not be read. */
__noinline u64 sum_of_pieces(u64 pieces, u64 count)
{
	enum { AT_ONCE = 16 };
	struct { u64 base, length; } some[AT_ONCE];
	u64 sum = 0, all = 0;

	if (count > UIO_MAXIOV)
		return ~0ull;
	for (; count >= AT_ONCE && can_loop; count -= AT_ONCE, pieces += sizeof some) {
		if (bpf_probe_read_user(some, sizeof some, (void *)pieces))
			return ~0ull;
		for (int n = 0; n < AT_ONCE; n++)
			sum += some[n].length, all |= some[n].length;
	}
	__builtin_memset(some, 0, sizeof some);
	if (bpf_probe_read_user(some, (count & (AT_ONCE - 1)) * sizeof *some, (void *)pieces))
		return ~0ull;
	for (int n = 0; n < AT_ONCE - 1; n++)
		sum += some[n].length, all |= some[n].length;
	return all >> 48 ? ~0ull : sum + 1;
}

/* The offset at an address, plus 1; 0: there is no address; ~0: it could not be read. */
static __always_inline u64 offset_at(u64 address)
{
	u64 offset;
	if (!address)
		return 0;
	return bpf_probe_read_user(&offset, 8, (void *)address) ? ~0ull : offset + 1;
}

/* Replaces arguments that are addresses by what is there. */
static __always_inline void read_arguments(u8 wanted, u64 *argument)
{
	struct { u64 pieces, count; } message;
	if (wanted & MESSAGE) {
		if (bpf_probe_read_user(&message, 16, (void *)argument[1] + __builtin_offsetof(struct user_msghdr, msg_iov)))
			argument[1] = ~0ull;
		else
			argument[1] = sum_of_pieces(message.pieces, message.count);
	} else if (wanted & VECTOR) {
		argument[1] = sum_of_pieces(argument[1], argument[2]);
	} else if (wanted & OFFSETS) {
		argument[1] = offset_at(argument[1]);
		argument[3] = offset_at(argument[3]);
	} else {
		argument[2] = offset_at(argument[2]);
	}
}

/* Records which open file a message carries: sender and receiver see the same address of the kernel. */
static __always_inline void record_carried(s32 fd, void *with)
{
	struct caller *c = with;
	struct file *address = file_of(current_task()->files->fdt, fd);
	u32 round;

	if (!address)
		return;
	struct inode *inode = as(struct file, address)->f_inode;
	struct slot *slot = take_slot(c, &round);
	if (!slot) {
		__sync_fetch_and_add(&lost[LOST_RETURNS], 1);
		return;
	}
	slot->words[0] = (u32)fd;
	slot->words[1] = (u64)address;
	slot->words[2] = inode->i_ino;
	slot->words[3] = inode->i_mode;
	complete(slot, c, CARRIED, round);
}

/* A function of its own, which the verifier checks once. */
__noinline int record_all_carried(u64 message, u32 count, u32 number)
{
	u64 ids = bpf_get_current_pid_tgid();
	struct caller c = { .tid = ids, .cpu = bpf_get_smp_processor_id(), .number = number & (2 * SYSCALLS - 1) };
	struct walk *w = bpf_map_lookup_elem(&walks, &c.cpu);
	if (w)
		each_descriptor(w, message, count, record_carried, &c);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(entries, struct pt_regs *regs, long number)
{
	struct caller c = { .number = number };
	struct slot *slot;
	struct last *last;
	u32 round;

	if (!is_wanted(number))
		return 0;
	last = last_of(&c);
	if (!is_traced(&c, last))
		return 0;
	/* By int 0x80 a 64-bit program makes calls of 32-bit programs; the instruction syscall leaves ip in cx. */
	bool is_int80 = !c.is_compat && regs->ip != regs->cx && current_task()->thread_info.status & TS_COMPAT;
	if (is_int80)
		c.number += SYSCALLS;
	else if (!is_wanted_of(&c))
		return 0;
	if (c.is_compat || is_int80) {
		if (!(slot = take_slot(&c, &round)))
			goto full;
		slot->words[0] = regs->bx, slot->words[1] = regs->cx, slot->words[2] = regs->dx;
		slot->words[3] = regs->si, slot->words[4] = regs->di, slot->words[5] = regs->bp;
		complete(slot, &c, COMPAT_ENTRY, round);
		return 0;
	}
	last->thread = c.tid;
	last->call = c.number;
	if (c.wanted & (VECTOR | MESSAGE | OFFSETS | OFFSET)) {
		u64 argument[6] = { regs->di, regs->si, regs->dx, regs->r10, regs->r8, regs->r9 };
		read_arguments(c.wanted, argument);
		if (!(slot = take_slot(&c, &round)))
			goto full;
		__builtin_memcpy(slot->words, argument, sizeof argument);
	} else {
		if (!(slot = take_slot(&c, &round)))
			goto full;
		slot->words[0] = regs->di, slot->words[1] = regs->si, slot->words[2] = regs->dx;
		if (c.wanted & SHORT) {
			complete(slot, &c, SHORT_ENTRY, round);
			return 0;
		}
		slot->words[3] = regs->r10, slot->words[4] = regs->r8, slot->words[5] = regs->r9;
	}
	complete(slot, &c, ENTRY, round);
	if (c.number == NR_sendmsg || c.number == NR_sendmmsg)
		record_all_carried(regs->si, c.number == NR_sendmsg ? 1 : (u32)regs->dx, c.number);
	return 0;
full:
	__sync_fetch_and_add(&lost[c.wanted & DATA ? LOST_DATA : LOST_OTHERS], 1);
	return 0;
}

/* Bytes of several messages: the result of the call is their number. ~0: they could not be read. */
__noinline u64 sum_of_messages(u64 message, u64 count)
{
	u64 sum = 0;
	u32 length;
	for (; can_loop; count--, message += sizeof(struct mmsg)) {
		if (!count)
			return sum;
		if (bpf_probe_read_user(&length, 4, (void *)message + __builtin_offsetof(struct mmsg, len)))
			break;
		sum += length;
	}
	return ~0ull;
}

static __always_inline void record_return(struct caller *c, enum slot_kind kind, u64 word)
{
	u32 round;
	struct slot *slot = take_slot(c, &round);
	if (!slot) {
		__sync_fetch_and_add(&lost[LOST_RETURNS], 1);
		return;
	}
	slot->words[0] = word;
	complete(slot, c, kind, round);
}

static __always_inline void returned(struct pt_regs *regs, long result)
{
	struct caller c = { .number = regs->orig_ax };
	struct last *last;
	u64 sum;

	if (!is_wanted(regs->orig_ax))
		return;
	last = last_of(&c);
	bool entered = last->thread == c.tid && last->call == c.number;
	if (entered)
		last->thread = 0;
	/* Only a thread of a traced process may be stopped, and its id may have been that of another thread before. */
	if ((!entered || config.stop_above) && !is_traced(&c, last))
		return;
	if (!is_wanted_of(&c))
		return;
	if (c.wanted & RETURNS) {
		if (c.number == NR_recvmmsg ? result > 0 : c.number == NR_recvmsg && result >= 0)
			record_all_carried(regs->si, c.number == NR_recvmmsg ? result : 1, c.number);
		if ((c.number == NR_sendmmsg || c.number == NR_recvmmsg) && result > 0
		    && (sum = sum_of_messages(regs->si, result)) != ~0ull)
			record_return(&c, MOVED, sum);
		record_return(&c, RETURN, result);
	}
	if (config.stop_above && in_use(&rings[c.cpu & (MAX_CPUS - 1)]) >= config.stop_above)
		bpf_send_signal_thread(SIGSTOP);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(returns, struct pt_regs *regs, long result)
{
	returned(regs, result);
	/* With two programs at a tracepoint the kernel takes a slow way to both, at each call of the machine. */
	bpf_tail_call(ctx, &tail_call, 0);
	return 0;
}
