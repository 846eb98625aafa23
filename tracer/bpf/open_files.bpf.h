/* Open files of a process, their paths, and bytes that lie in pipes. */
#pragma once
#include "processes.bpf.h"

#define DCACHE_OP_REVALIDATE 4

static __always_inline bool add_name(struct scratch *s, struct dentry *entry)
{
	u32 used = s->used & (PATH_MAX - 1);
	if (used > PATH_MAX - NAME_MAX - 1)
		return false;
	long length = bpf_probe_read_kernel_str(s->bytes + used, NAME_MAX, entry->d_name.name);
	if (length < 1)
		return false;
	s->used = used + length;
	return true;
}

/* Reports the names of a path as the part that has begun: the last name first, each with its NUL. */
__noinline int report_names(struct scratch *s __arg_nonnull, u64 mount_at, u64 entry_at)
{
	struct vfsmount *mount = as(struct vfsmount, mount_at);
	struct dentry *entry = as(struct dentry, entry_at);

	if (!entry->d_hash.pprev && entry->d_parent != entry
	    /* FUSE and others drop an entry when a lookup crosses its creation, though the file has its name. */
	    && !(entry->d_flags & DCACHE_OP_REVALIDATE && entry->d_inode->i_nlink))
		s->part.number |= UNNAMED;
	while (can_loop) {
		if (mount->mnt_root == entry) {
			struct mount *at = as(struct mount, (void *)mount - bpf_core_field_offset(struct mount, mnt));
			if (at->mnt_parent == at)
				goto complete;
			entry = as(struct dentry, at->mnt_mountpoint);
			mount = as(struct vfsmount, &at->mnt_parent->mnt);
			continue;
		}
		struct dentry *parent = entry->d_parent;
		if (!add_name(s, entry))
			break;
		if (parent == entry) {
			/* In no directory, like all that has no path: memory of memfd_create(2), an eventfd. */
			s->part.number |= DETACHED;
			goto complete;
		}
		entry = as(struct dentry, parent);
	}
	mark_missing(s);
	return 0;
complete:
	if (!output(&s->part, sizeof s->part + (s->used & (PATH_MAX - 1))))
		mark_missing(s);
	return 0;
}

static __always_inline void report_path(struct scratch *s, u32 part, const struct path *path)
{
	begin_part(s, part);
	report_names(s, number(path->mnt), number(path->dentry));
}

/* Bytes in a pipe. */
static __always_inline u64 unread_of(struct pipe_inode_info *pipe)
{
	u32 tail = pipe->tail, head = pipe->head, mask = pipe->ring_size - 1;
	u64 bytes = 0;
	for (; can_loop; tail++) {
		if (tail == head)
			return bytes;
		bytes += as(struct pipe_buffer, (u64)pipe->bufs + (tail & mask) * bpf_core_type_size(struct pipe_buffer))->len;
	}
	return ~0ull;
}

/* Fills in s->file from an open file; with_pipe: also how much a pipe holds. */
__noinline int describe(struct scratch *s __arg_nonnull, u64 file_at, u32 descriptor, bool with_pipe)
{
	struct file *file = as(struct file, file_at);
	struct inode *inode = file->f_inode;
	struct open_file *f = &s->file;

	*f = (struct open_file){
		.descriptor = descriptor, .mode = file->f_mode, .flags = file->f_flags, .position = file->f_pos,
		.kind = inode->i_mode, .inode = inode->i_ino, .generation = inode->i_generation, .size = inode->i_size,
		.device = inode->i_sb->s_dev, .unread = ~0ull,
	};
	if (with_pipe && (f->kind & S_IFMT) == S_IFIFO) {
		struct pipe_inode_info *pipe = as(struct pipe_inode_info, inode->i_pipe);
		f->writers = pipe->writers;
		f->capacity = pipe->max_usage;
		if (descriptor < NUMBERED && !f->writers)
			f->unread = unread_of(pipe);
	}
	return 0;
}

static __always_inline struct io_counts io_of(struct task_struct *task)
{
	struct io_counts io = { task->ioac.syscr, task->ioac.syscw, task->ioac.rchar, task->ioac.wchar };
	return io;
}

/* Reports all that a task has open, as this part. */
__noinline int report_open_files(struct scratch *s __arg_nonnull, u64 task_at, u32 part)
{
	struct task_struct *task = as(struct task_struct, task_at);
	struct open_files *all = (void *)s->bytes;
	struct fdtable *table = table_of(task);

	begin_part(s, part);
	if (!table) {
		mark_missing(s);
		return 0;
	}
	all->io = io_of(task);
	all->process = (u32)task->tgid;
	u32 most = table->max_fds, fd = READ_ONCE(s->zero);
	s->used = sizeof *all;
	u64 in_use = number(table->open_fds);
	for (s->part.number = CUT; can_loop; fd++) {
		if (fd >= most) {
			s->part.number = 0;
			break;
		}
		u64 bits = word_at(in_use + fd / 64 * 8) >> (fd & 63);
		u64 file = 0;
		if (!bits)
			fd |= 63;
		else if (bits & 1)
			file = file_in(table, fd);
		if (file) {
			describe(s, file, fd, part == OPEN_FILES);
			u32 used = READ_ONCE(s->used) & (PART_MAX - 1);
			if (used > PART_MAX - sizeof(struct open_file))
				break;
			__builtin_memcpy(s->bytes + used, &s->file, sizeof(struct open_file));
			s->used = used + sizeof(struct open_file);
		}
	}
	if (!output(&s->part, sizeof s->part + (READ_ONCE(s->used) & (PART_MAX - 1))))
		mark_missing(s);
	return 0;
}

/* The same of the parent, if that is traced. */
static __always_inline void report_open_files_of_parent(struct scratch *s, struct task_struct *task)
{
	u64 parent = number(task->real_parent);
	u32 pid = as(struct task_struct, parent)->tgid;
	if (!config.all && bpf_map_lookup_elem(&traced_pids, &pid))
		report_open_files(s, parent, OPEN_FILES_OF_PARENT);
}
