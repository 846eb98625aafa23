/*
 * The structures of the kernel that the programs read, with those of their members alone that are read. The loader
 * adjusts each access to the running kernel (CO-RE, Documentation/bpf/libbpf/libbpf_overview.rst): names must be the
 * kernel's, order and size of members need not be.
 */
#pragma once

typedef unsigned char u8, __u8;
typedef signed char s8, __s8;
typedef unsigned short u16, __u16, __be16;
typedef short s16, __s16;
typedef unsigned int u32, __u32, __be32, __wsum;
typedef int s32, __s32;
typedef unsigned long long u64, __u64, __be64;
typedef long long s64, __s64;
typedef _Bool bool;
enum { false, true };
#define NULL ((void *)0)

/* Of enum bpf_map_type, and of the flags of maps and rings (include/uapi/linux/bpf.h). */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1 << 10 };
enum { BPF_F_CURRENT_CPU = 0xffffffff };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2, BPF_RB_AVAIL_DATA = 0 };

/* States of a task (include/linux/sched.h). */
enum { TASK_INTERRUPTIBLE = 1, TASK_UNINTERRUPTIBLE = 2, TASK_STOPPED = 4, TASK_DEAD = 0x80 };

/* Of include/uapi/linux/stat.h and uio.h. */
enum { S_IFMT = 0170000, S_IFIFO = 0010000, S_IFDIR = 0040000, S_IFREG = 0100000, S_IFLNK = 0120000, S_IFSOCK = 0140000, UIO_MAXIOV = 1024 };

/* What calls have in user memory: the same everywhere, so without relocation. */
struct user_msghdr {
	void *msg_name;
	int msg_namelen;
	struct iovec *msg_iov;
	u64 msg_iovlen;
	void *msg_control;
	u64 msg_controllen;
	u32 msg_flags;
};
struct user_stat { u64 device, inode, links; u32 mode, owners[3]; u64 special, size; };
struct user_statx {
	u32 unused[7];
	u16 mode;
	u64 inode, size, unused_too[10];
	u32 special[2], device_major, device_minor;
};
struct user_mmsghdr { struct user_msghdr msg_hdr; u32 msg_len; };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

/* Files */

struct super_block { u32 s_dev; unsigned long s_magic; };
struct pipe_buffer { u32 len; };
struct pipe_inode_info { u32 head, tail, max_usage, ring_size, writers; struct pipe_buffer *bufs; };
struct inode {
	u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	u32 i_nlink, i_generation;
	s64 i_size;
	struct pipe_inode_info *i_pipe;
};
struct hlist_bl_node { void *pprev; };
struct qstr { const u8 *name; };
struct dentry {
	u32 d_flags;
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
};
struct vfsmount { struct dentry *mnt_root; };
struct mount { struct mount *mnt_parent; struct dentry *mnt_mountpoint; struct vfsmount mnt; };
struct path { struct vfsmount *mnt; struct dentry *dentry; };
struct file {
	u32 f_mode, f_flags;
	s64 f_pos;
	struct inode *f_inode;
	struct path f_path;
	void *private_data;
};
struct fdtable { u32 max_fds; struct file **fd; unsigned long *open_fds; };
struct files_struct { struct fdtable *fdt; };
struct fs_struct { int umask; struct path pwd; };

/* Sockets */

struct in6_addr { u8 bytes[16]; };
struct sock_common {
	__be32 skc_daddr, skc_rcv_saddr;
	__be16 skc_dport;
	u16 skc_num, skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
};
struct sock { struct sock_common __sk_common; struct socket *sk_socket; };
struct socket { s16 type; struct sock *sk; };
struct socket_alloc { struct socket socket; struct inode vfs_inode; };
struct unix_address { int len; u8 name[0]; };
struct unix_sock { struct sock sk; struct unix_address *addr; struct sock *peer; };

/* Tasks */

struct timespec64 { s64 tv_sec; };	/* a word, of which the kernel has a type by name */
struct rq { u32 clock_update_flags; u64 clock, clock_task; };
struct cfs_rq { struct rq *rq; };
struct sched_entity { u64 exec_start, sum_exec_runtime; struct cfs_rq *cfs_rq; };
struct sched_info { unsigned long long run_delay; };
struct task_io_accounting { u64 rchar, wchar, syscr, syscw; };
struct upid { int nr; };
struct pid { u32 level; struct upid numbers[0]; };
struct mm_struct {
	unsigned long arg_start, arg_end, env_start, env_end;
	struct file *exe_file;
};
struct signal_struct {
	struct { int counter; } live;
	int group_exit_code;
	u32 flags;
	unsigned long maxrss;
};
struct thread_info { u32 status; };
struct task_struct {
	struct thread_info thread_info;
	u32 flags;
	struct sched_entity se;
	struct sched_info sched_info;
	struct mm_struct *mm;
	int exit_state, exit_code;
	int pid, tgid;
	struct task_struct *real_parent, *group_leader;
	struct pid *thread_pid;
	u64 utime, stime, start_time;
	unsigned long nvcsw, nivcsw, min_flt, maj_flt;
	struct fs_struct *fs;
	struct files_struct *files;
	struct signal_struct *signal;
	struct task_io_accounting ioac;
};

/* Devices */

struct gendisk { int major, first_minor; };
struct request_queue { struct gendisk *disk; };
struct request { struct request_queue *q; u64 __sector; };

#pragma clang attribute pop
