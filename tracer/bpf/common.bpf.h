/* Shared by all programs: which processes are traced, and how the kernel's memory is read. */
#pragma once
#include "events.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define barrier() asm volatile("" ::: "memory")
#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))
#ifndef __arg_nonnull
#define __arg_nonnull __attribute__((btf_decl_tag("arg:nonnull")))
#endif

/*
 * Ends a loop that goes on for too long (may_goto, Linux 6.9): the verifier need not follow each step. A counter of
 * such a loop is kept in the memory of a map: a register would differ in each step that the verifier looks at.
 */
#define can_loop ({ __label__ late, more; bool yes = true; \
	asm volatile goto("may_goto %l[late]" :::: late); goto more; \
	late: yes = false; more:; yes; })

extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym;

/*
 * An address of the kernel as a pointer that is only read. A pointer that the verifier trusts costs it a millisecond
 * at each member (up to Linux 6.18 at least), because it looks up by name whether it may trust the next one, too.
 */
#define as(type, address) ((type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(type)))
#define current_task() as(struct task_struct, bpf_get_current_task())

#define AT_EMPTY_PATH 0x1000
#define TS_COMPAT 2	/* in thread_info.status: in a call of a 32-bit program */

/* Arguments of a call. */
static __always_inline void get_arguments(u64 *a, struct pt_regs *regs, bool is_compat)
{
	if (is_compat) {
		a[0] = (u32)regs->bx, a[1] = (u32)regs->cx, a[2] = (u32)regs->dx;
		a[3] = (u32)regs->si, a[4] = (u32)regs->di, a[5] = (u32)regs->bp;
	} else {
		a[0] = regs->di, a[1] = regs->si, a[2] = regs->dx, a[3] = regs->r10, a[4] = regs->r8, a[5] = regs->r9;
	}
}

/* True if a call uses the file of its descriptor instead of a name, which is empty. */
static __always_inline bool is_unnamed(u64 flags, u64 name)
{
	u8 first = 0;
	return flags & AT_EMPTY_PATH && (!name || (!bpf_probe_read_user(&first, 1, (void *)name) && !first));
}

/* Processes that are traced, by pid, with their pid_state. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, u32);
	__type(value, u64);
} traced_pids SEC(".maps");

/* The calls that name files, by thread: when each began. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, u32);
	__type(value, struct begun_call);
} begun_calls SEC(".maps");

/* How often one stopped to be traced. */
u64 pid_changes SEC(".bss.pid_changes");

/* A word at an address of the kernel. */
static __always_inline u64 word_at(u64 address)
{
	return as(struct timespec64, address)->tv_sec;
}

/* A pointer as a number: the verifier checks a function once for all numbers, but again for each kind of pointer. */
#define number(pointer) word_at((u64)&(pointer))

static __always_inline struct fdtable *table_of(struct task_struct *task)
{
	struct files_struct *files = task->files;
	return files ? files->fdt : NULL;
}

/* The address of the open file of a descriptor; 0: there is none. */
static __always_inline u64 file_in(struct fdtable *table, u32 fd)
{
	return fd < table->max_fds ? word_at(number(table->fd) + 8 * (u64)fd) : 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
