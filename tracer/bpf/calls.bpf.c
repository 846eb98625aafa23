/*
 * Calls of traced processes on open files: at the entry the file behind the descriptor, the place in it and the
 * amount; at the return the result. One slot each, in the ring of the CPU.
 */
#include "common.bpf.h"

enum { SPARE_SLOTS = 64, O_APPEND = 02000 };
enum { LOST_ENTRIES, LOST_RETURNS };
#define UNKNOWN (~0ull)
#define RECORDED (1u << 31)	/* beside the flags of an open file */

const volatile struct {
	u32 ring_bits;		/* slots of a ring, as a power of two */
} config = { 10 };

/* Of each system call; those of 32-bit programs behind the others. */
struct call_arguments calls[2 * SYSCALLS] SEC(".bss.calls");
u64 lost[2] SEC(".bss.lost");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

struct ring_state rings[MAX_CPUS] SEC(".bss.rings");

/* The last call of a CPU: its process, which is traced, its thread, and what record_use returned for it. */
struct last { u32 process, thread, call, flags; u64 pid_changes, unused[5]; };
struct last lasts[MAX_CPUS] SEC(".bss.lasts");

/* The program that goes on when a call has returned, if there is one. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4);
} tail_call SEC(".maps");

struct caller { u32 tid, pid, cpu, number; };

/* Arguments of a call. The last one is never an argument: see NO_ARGUMENT. */
struct arguments { u64 of[8]; bool are_compat; };

/* A call that begins. */
struct beginning { struct caller caller; struct arguments arguments; u64 length; };

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

static __always_inline bool uses_files(u64 number)
{
	return number < SYSCALLS && calls[number].how | calls[SYSCALLS + number].how;
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
	last->process = c->pid;
	last->pid_changes = now;
	return true;
}

static __always_inline struct last *last_of(struct caller *c)
{
	u64 ids = bpf_get_current_pid_tgid();
	c->tid = ids, c->pid = ids >> 32, c->cpu = bpf_get_smp_processor_id();
	return &lasts[c->cpu & (MAX_CPUS - 1)];
}

/* How the call uses files; NULL: it uses none. */
static __always_inline struct call_arguments *arguments_of(struct caller *c, struct task_struct *task)
{
	if (task->thread_info.status & TS_COMPAT)
		c->number += SYSCALLS;
	u32 number = c->number;
	if (number >= 2 * SYSCALLS || !calls[number].how)
		return NULL;
	return &calls[number];
}

static __always_inline void set_arguments(struct arguments *a, struct pt_regs *regs)
{
	get_arguments(a->of, regs, a->are_compat);
	a->of[6] = a->of[NO_ARGUMENT] = 0;
}

/* True if a call only says which file it uses by a name. */
static __always_inline bool is_named(struct call_arguments *call, struct arguments *a)
{
	return call->how & NAMES_FILE && !(call->how & ACTS && is_unnamed(a->of[call->flags & 7], a->of[1]));
}

/* Another program reports it when it returns. */
static __always_inline void begin_named(struct caller *c)
{
	struct begun_call begun = { bpf_ktime_get_ns(), c->number }, *known = bpf_map_lookup_elem(&begun_calls, &c->tid);
	if (known)
		*known = begun;
	else
		bpf_map_update_elem(&begun_calls, &c->tid, &begun, BPF_ANY);
}

/* The sum of the lengths of pieces (struct iovec). */
__noinline u64 sum_of_pieces(u64 pieces, u64 count)
{
	enum { AT_ONCE = 16 };
	struct { u64 base, length; } some[AT_ONCE];
	u64 sum = 0, all = 0;

	if (count > UIO_MAXIOV)
		return UNKNOWN;
	for (; count >= AT_ONCE && can_loop; count -= AT_ONCE, pieces += sizeof some) {
		if (bpf_probe_read_user(some, sizeof some, (void *)pieces))
			return UNKNOWN;
		for (int n = 0; n < AT_ONCE; n++)
			sum += some[n].length, all |= some[n].length;
	}
	__builtin_memset(some, 0, sizeof some);
	if (bpf_probe_read_user(some, (count & (AT_ONCE - 1)) * sizeof *some, (void *)pieces))
		return UNKNOWN;
	for (int n = 0; n < AT_ONCE - 1; n++)
		sum += some[n].length, all |= some[n].length;
	return all >> 48 ? UNKNOWN : sum;
}

static __always_inline u64 length_of(struct call_arguments *call, struct arguments *a)
{
	struct { u64 pieces, count; } message;
	u64 length = a->of[call->length & 7];

	if (!(call->how & (VECTOR | MESSAGE | MESSAGES)))
		return length;
	/* The pieces of 32-bit programs are others. */
	if (call->how & MESSAGES || a->are_compat)
		return UNKNOWN;
	if (call->how & VECTOR)
		return sum_of_pieces(length, a->of[(call->length + 1) & 7]);
	if (bpf_probe_read_user(&message, 16, (void *)length + __builtin_offsetof(struct user_msghdr, msg_iov)))
		return UNKNOWN;
	return sum_of_pieces(message.pieces, message.count);
}

/* Sets the offset in `use`, or that it is the position of the file. */
static __always_inline void get_place(struct file_use *use, struct file *file, u16 how, u8 argument, struct arguments *a)
{
	u64 place = a->of[argument & 7], offset;

	if (how & PLACE_IS_OFFSET && a->are_compat)
		/* In two registers. */
		place |= a->of[(argument + 1) & 7] << 32;
	/* One negative offset is as good as another. */
	use->offset = place == UNKNOWN && !(how & ACTS) ? UNKNOWN - 1 : place;
	if (argument == NO_ARGUMENT && how & ACTS)
		use->offset = UNKNOWN;
	else if (argument == NO_ARGUMENT || (how & MINUS_ONE_IS_POSITION ? place == UNKNOWN : !(how & PLACE_IS_OFFSET) && !place)) {
		use->offset = file->f_pos;
		use->uses |= AT_POSITION;
	} else if (!(how & PLACE_IS_OFFSET)) {
		use->offset = bpf_probe_read_user(&offset, 8, (void *)place) ? UNKNOWN : offset;
	}
}

/*
 * Records the file of the call's first or second descriptor. Returns its flags and RECORDED; 0: it is not open, or there
 * is no slot.
 */
__noinline u32 record_use(struct beginning *b __arg_nonnull, bool is_second)
{
	struct caller *c = &b->caller;
	struct arguments *a = &b->arguments;
	struct call_arguments *call = &calls[c->number & (2 * SYSCALLS - 1)];
	s32 fd = a->of[(is_second ? call->second : call->first) & 7];
	struct fdtable *table = table_of(current_task());
	u64 address = table ? file_in(table, fd) : 0;
	u32 round;

	if (!address)
		return 0;
	struct file *file = as(struct file, address);
	struct inode *inode = file->f_inode;
	u16 mode = inode->i_mode;
	u32 type = mode & S_IFMT;
	if (call->how & ACTS && type != S_IFREG && type != S_IFDIR && type != S_IFLNK)
		return 0;
	struct slot *slot = take_slot(c, &round);
	if (!slot) {
		__sync_fetch_and_add(&lost[LOST_ENTRIES], 1);
		return 0;
	}
	struct file_use *use = &slot->use;
	u32 flags = file->f_flags;

	use->file = address;
	use->inode = inode->i_ino;
	use->device = inode->i_sb->s_dev;
	use->mode = mode;
	use->uses = flags & O_APPEND ? APPENDS : 0;
	get_place(use, file, call->how, is_second ? call->second_place : call->place, a);
	use->length = b->length;
	use->flags = a->of[call->flags & 7] | a->of[call->more_flags & 7] << 16;
	use->descriptor = fd;
	complete(slot, c, is_second ? OTHER_ENTRY : ENTRY, round);
	return flags | RECORDED;
}

/* Takes the range and the kind of a lock from the structure that argument 2 points to; whole file: offset 0. */
static __always_inline void get_lock(struct arguments *a)
{
	struct { s16 type, whence; u32 unused; u64 start, length; } lock = {};
	bool is_known = !a->are_compat && !bpf_probe_read_user(&lock, sizeof lock, (void *)a->of[2]);
	a->of[3] = is_known && !lock.whence ? lock.start : UNKNOWN;
	a->of[4] = is_known && lock.length ? lock.length : UNKNOWN;
	a->of[2] = is_known ? lock.type : 0xffff;
}

static __always_inline bool is_wanted(struct call_arguments *call, u32 command)
{
	return !call->commands || (command < 64 && call->commands >> command & 1);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(entries, struct pt_regs *regs, long number)
{
	struct beginning b = { .caller.number = number };
	struct caller *c = &b.caller;
	struct arguments *a = &b.arguments;
	struct call_arguments *call;

	if (!uses_files(number))
		return 0;
	struct last *last = last_of(c);
	if (!is_traced(c, last))
		return 0;
	if (!(call = arguments_of(c, current_task())))
		return 0;
	a->are_compat = c->number >= SYSCALLS;
	set_arguments(a, regs);
	u32 flags = 0;
	if (is_named(call, a)) {
		begin_named(c);
	} else if (is_wanted(call, a->of[call->more_flags & 7])) {
		if (call->how & LOCK)
			get_lock(a);
		b.length = length_of(call, a);
		flags = record_use(&b, false);
		if (call->second != NO_ARGUMENT)
			flags |= record_use(&b, true);
	}
	last->thread = c->tid;
	last->call = c->number;
	last->flags = flags;
	return 0;
}

/* Bytes of several messages: the result of the call is their number. */
__noinline u64 sum_of_messages(u64 message, u64 count)
{
	u64 sum = 0;
	u32 length;
	for (; can_loop; count--, message += sizeof(struct user_mmsghdr)) {
		if (!count)
			return sum;
		if (bpf_probe_read_user(&length, 4, (void *)message + __builtin_offsetof(struct user_mmsghdr, msg_len)))
			break;
		sum += length;
	}
	return UNKNOWN;
}

static __always_inline void record_return(struct caller *c, enum slot_kind kind, u64 result, u64 position)
{
	u32 round;
	struct slot *slot = take_slot(c, &round);
	if (!slot) {
		__sync_fetch_and_add(&lost[LOST_RETURNS], 1);
		return;
	}
	slot->result = result;
	slot->position = position;
	complete(slot, c, kind, round);
}

/* The position of a file to which a call has appended; UNKNOWN: it has not. */
static __always_inline u64 position_after(struct task_struct *task, struct call_arguments *call, s32 fd)
{
	struct fdtable *table = table_of(task);
	u64 address = call->how & WRITES && table ? file_in(table, fd) : 0;
	if (!address)
		return UNKNOWN;
	struct file *file = as(struct file, address);
	return file->f_flags & O_APPEND ? file->f_pos : UNKNOWN;
}

static __always_inline void returned(struct pt_regs *regs, long result)
{
	struct caller c = { .number = regs->orig_ax };
	struct call_arguments *call;
	u64 sum;

	if (!uses_files(regs->orig_ax))
		return;
	struct last *last = last_of(&c);
	struct task_struct *task = current_task();
	if (!(call = arguments_of(&c, task)))
		return;
	bool entered = last->thread == c.tid && last->call == c.number;
	if (entered)
		last->thread = 0;
	if (entered ? !last->flags : !is_traced(&c, last))
		return;
	struct arguments a = { .are_compat = c.number >= SYSCALLS };
	set_arguments(&a, regs);
	if (!entered && is_named(call, &a))
		return;
	if (call->how & MESSAGES && c.number < SYSCALLS && result > 0 && (sum = sum_of_messages(a.of[1], result)) != UNKNOWN)
		record_return(&c, MOVED, sum, UNKNOWN);
	u64 position = entered && !(last->flags & O_APPEND) ? UNKNOWN
		: position_after(task, call, a.of[0]);
	record_return(&c, RETURN, result, position);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(returns, struct pt_regs *regs, long result)
{
	returned(regs, result);
	/* With two programs at a tracepoint the kernel takes a slow way to both, at each call of the machine. */
	bpf_tail_call(ctx, &tail_call, 0);
	return 0;
}
