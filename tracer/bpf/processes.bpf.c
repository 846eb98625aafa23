/*
 * Processes: every fork, every exec with what it runs, every exit with its use of resources, in the order in which
 * they happened; and the calls by which a process gets files and channels.
 *
 * A record is in the ring before what it reports goes on: a fork before the child runs, an exec before the program's
 * first instruction. An exit may come late: it is reported when a thread leaves its CPU for the last time, a moment
 * after its parent may have heard of it.
 */
#include "open_files.bpf.h"

enum { RQCF_REQ_SKIP = 1, PID_LEVELS_MAX = 32 };

static __always_inline void get_usage(struct task_struct *task, struct usage *u)
{
	u->on_cpu = task->se.sum_exec_runtime;
	u->counted_at = task->se.exec_start;
	u->user = task->utime, u->system = task->stime;
	u->run_delay = bpf_core_field_exists(task->sched_info.run_delay) ? task->sched_info.run_delay : 0;
	u->minor_faults = task->min_flt, u->major_faults = task->maj_flt;
	u->voluntary_switches = task->nvcsw, u->involuntary_switches = task->nivcsw;
	u->io = bpf_core_field_exists(task->ioac.syscr) ? io_of(task) : (struct io_counts){};
	u->peak_pages = task->signal->maxrss;
	u->cpu = bpf_get_smp_processor_id();
	u->clock = u->task_clock = u->clock_flags = 0;
	if (bpf_core_field_exists(task->se.cfs_rq)) {
		struct rq *queue = task->se.cfs_rq->rq;
		u->clock = queue->clock, u->task_clock = queue->clock_task, u->clock_flags = queue->clock_update_flags;
	}
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent_at, struct task_struct *child_at)
{
	struct task_struct *child = as(struct task_struct, child_at);
	struct scratch *s = begin(true);
	if (!s)
		return 0;
	bool is_process = child->pid == child->tgid;
	if (config.with_files && is_process)
		report_open_files(s, bpf_get_current_task(), OPEN_FILES);
	struct fork_event *f = &s->record.fork;
	struct pid *ids = child->thread_pid;
	u32 level = ids->level;
	*f = (struct fork_event){ child->pid, child->tgid, level };
	if (level <= PID_LEVELS_MAX)
		f->inner_pid = (u32)as(struct upid, (u64)&ids->numbers + level * bpf_core_type_size(struct upid))->nr;
	if (is_process)
		set_state(f->tid, ALIVE);
	emit(s, FORKED, sizeof *f);
	return 0;
}

/* Reports a range of the program's memory. */
__noinline int report_memory(struct scratch *s __arg_nonnull, u32 part, u64 from, u64 to)
{
	begin_part(s, part);
	for (; READ_ONCE(s->used) < RECORDS_MAX && can_loop; s->used++) {
		s64 left = to - from;
		if (left <= 0)
			return 0;
		u32 bytes = left < PART_MAX ? left : PART_MAX;
		if (bpf_probe_read_user(s->bytes, bytes, (void *)from) || !output(&s->part, sizeof s->part + bytes))
			break;
		from += bytes;
	}
	mark_missing(s);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(executed, struct task_struct *task_at, int former_tid)
{
	struct task_struct *task = current_task();
	struct scratch *s = begin(true);
	if (!s)
		return 0;
	struct mm_struct *mm = task->mm;
	u64 arguments = mm->arg_start, end = mm->arg_end;
	if (end - arguments > config.arguments_max)
		end = arguments + config.arguments_max;
	report_memory(s, ARGUMENTS, arguments, end);
	report_memory(s, ENVIRONMENT, mm->env_start, mm->env_end);
	report_path(s, EXECUTABLE, &mm->exe_file->f_path);
	report_path(s, DIRECTORY, &task->fs->pwd);
	struct fdtable *table = table_of(task);
	if (config.with_files && table) {
		for (u32 fd = READ_ONCE(s->zero); fd < NUMBERED && can_loop; fd++) {
			u64 file = file_in(table, fd);
			if (file)
				report_path(s, TARGETS + fd, &as(struct file, file)->f_path);
		}
		report_open_files(s, bpf_get_current_task(), OPEN_FILES);
		report_open_files_of_parent(s, task);
	}
	struct exec_event *e = &s->record.exec;
	/*
	 * Before the clocks are read, while at an exit it is after that: the reader compares the clocks by exits, and
	 * computes by execs. If the host of a virtual machine takes the CPU away in between, an image is then charged
	 * too little, never all that time.
	 */
	u64 at = bpf_ktime_get_ns();
	s->record.head.number = s->missing;
	get_usage(task, &e->usage);
	if (e->usage.clock_flags & RQCF_REQ_SKIP)
		s->halted_thread = s->record.head.tid;
	e->former_tid = former_tid;
	e->umask = task->fs->umask;
	emit_at(s, at, EXECUTED, sizeof *e);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(exiting)
{
	struct task_struct *task = current_task();
	struct scratch *s;
	if (task->signal->live.counter || !(s = begin(true)))
		return 0;
	report_open_files(s, bpf_get_current_task(), OPEN_FILES);
	report_open_files_of_parent(s, task);
	set_state(s->record.head.pid, EXITED);
	emit(s, EXITING, 0);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(left, bool goes_on, struct task_struct *task_at, struct task_struct *next, unsigned int state)
{
	struct task_struct *task = as(struct task_struct, task_at);
	struct scratch *s;
	if (!state) {
		u32 cpu = bpf_get_smp_processor_id();
		s = bpf_map_lookup_elem(&scratch, &cpu);
		if (!s || !s->halted_thread || s->halted_thread != task->pid)
			return 0;
		s->halted_thread = 0;
		if (!begin(true))
			return 0;
		get_usage(task, &s->record.exec.usage);
		emit(s, LEFT, sizeof(struct usage));
		return 0;
	}
	if (!(state & (TASK_DEAD | TASK_STOPPED)) || !(s = begin(false)))
		return 0;
	if (!(state & TASK_DEAD)) {
		emit(s, STOPPED, 0);
		return 0;
	}
	bpf_map_delete_elem(&begun_calls, &s->record.head.tid);
	struct exit_event *e = &s->record.exit;
	get_usage(task, &e->usage);
	e->start = task->start_time;
	e->leader_code = task->group_leader->exit_code;
	e->group_code = task->signal->group_exit_code;
	e->group_flags = task->signal->flags;
	emit(s, ENDED, sizeof *e);
	return 0;
}

#include "called.bpf.h"
