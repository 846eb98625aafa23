/* Calls by which a process gets descriptors, names and channels: reported when they have returned, with their result. */

enum { PAGE_MASK = 0xfff, EINPROGRESS = 115, NO_DIRECTORY = -1, SYSTEM_NAMES = 32 };
enum { NR_write = 1, NR_sendto = 44, NR_recvmsg = 47, NR_openat = 257 };
enum { AF_UNIX = 1, AF_INET = 2, AF_INET6 = 10 };

/* How a call is reported; 0: not at all. */
enum call_shape {
	RETURNED = 1, GIVEN, PAIR, PAIR_LAST, NAMED, ALONE, SENT, SENT_MESSAGE, RECEIVED, SEVERAL_RECEIVED, WROTE,
};
/* Those of 32-bit programs are behind the others. */
struct call_report call_reports[2 * SYSCALLS] SEC(".bss.call_reports");
/* The first bytes of names of files of the machine, up to 8 with the mask of those that count. */
struct { u64 bytes, mask; } system_names[SYSTEM_NAMES] SEC(".bss.system_names");
/* For each place of the next instruction in its page: files opened there are the C library's own. */
u8 library_opens[PAGE_MASK + 1] SEC(".bss.library_opens");

/* Sockets whose destination was reported, by inode. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, u32);
	__type(value, u64);
} sent_sockets SEC(".maps");

#define argument(s, number) ((s)->arguments[(number) & 7])

static __always_inline struct call_report *report_of(struct scratch *s)
{
	return &call_reports[s->record.head.number & (2 * SYSCALLS - 1)];
}

static __always_inline void report_call(struct scratch *s)
{
	emit(s, CALLED, sizeof(struct call_event));
}

/* Reports the address of a UNIX socket, or that of its peer. */
static __always_inline void report_address(struct scratch *s, struct unix_sock *socket, struct unix_sock *peer)
{
	struct unix_address *address = socket->addr;
	begin_part(s, ADDRESS);
	if (address)
		s->part.number = OWN_ADDRESS;
	else if (!peer || !(address = peer->addr))
		return;
	s->part.at = (u32)address->len;
	bpf_probe_read_kernel(s->bytes, ADDRESS_MAX, address->name);
	output(&s->part, sizeof s->part + ADDRESS_MAX);
}

__noinline int get_socket(struct scratch *s __arg_nonnull, u64 file_at)
{
	struct socket *socket = as(struct socket, as(struct file, file_at)->private_data);
	struct sock *sock = socket->sk;
	struct sock_common *common = as(struct sock_common, sock);
	struct call_event *c = &s->record.call;

	c->type = socket->type;
	c->family = common->skc_family;
	c->state = common->skc_state;
	c->local_port = common->skc_num;
	c->peer_port = common->skc_dport;
	if (c->family == AF_INET) {
		*(u32 *)c->local = common->skc_rcv_saddr;
		*(u32 *)c->peer = common->skc_daddr;
	} else if (c->family == AF_INET6) {
		bpf_probe_read_kernel(c->local, 16, &common->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(c->peer, 16, &common->skc_v6_daddr);
	} else if (c->family == AF_UNIX) {
		struct unix_sock *own = as(struct unix_sock, sock), *peer = as(struct unix_sock, own->peer);
		if (own->peer && peer->sk.sk_socket)
			c->peer_inode = as(struct socket_alloc, peer->sk.sk_socket)->vfs_inode.i_ino;
		report_address(s, own, own->peer ? peer : NULL);
	}
	return 0;
}

static __always_inline void clear_socket(struct call_event *c)
{
	__builtin_memset(&c->family, 0, sizeof *c - __builtin_offsetof(struct call_event, family));
}

static __always_inline u64 own_file(s32 fd)
{
	struct fdtable *table = table_of(current_task());
	return table ? file_in(table, fd) : 0;
}

/* Fills in the descriptor of a call. Returns the type of its file; 0: there is none. */
static __always_inline u32 get_file(struct scratch *s, s32 fd, u64 file)
{
	if (!file)
		return 0;
	describe(s, file, fd, true);
	s->record.call.file = s->file;
	return s->file.kind & S_IFMT;
}

/* The same, with the path of a file and the addresses of a socket. Returns true if the call is to be reported. */
__noinline int get_descriptor(struct scratch *s __arg_nonnull, s32 fd)
{
	u64 file = own_file(fd);
	u32 type = get_file(s, fd, file);
	bool has_path = type == S_IFREG || type == S_IFIFO
		|| (config.with_directories && (type == S_IFDIR || type == S_IFLNK));
	if (has_path)
		report_path(s, OPENED, &as(struct file, file)->f_path);
	else if (type == S_IFSOCK)
		get_socket(s, file);
	return !file || has_path || type == S_IFSOCK;
}

/* The same of a further descriptor, without its path. Returns the type of its file. */
__noinline u32 get_end(struct scratch *s __arg_nonnull, s32 fd)
{
	u64 file = own_file(fd);
	u32 type = get_file(s, fd, file);
	clear_socket(&s->record.call);
	if (type == S_IFSOCK)
		get_socket(s, file);
	return type;
}

/* Reports a name that the call was given, and the directory that it is relative to. */
__noinline int report_name(struct scratch *s __arg_nonnull, u64 address, s32 directory, u32 place)
{
	begin_part(s, NAMES + place);
	long length = bpf_probe_read_user_str(s->bytes, PATH_MAX, (void *)address);
	if (length < 1)
		return 0;
	output(&s->part, sizeof s->part + (length & (2 * PATH_MAX - 1)));
	if (s->bytes[0] == '/')
		return 0;
	if (directory < 0) {
		report_path(s, BASES + place, &current_task()->fs->pwd);
	} else {
		u64 file = own_file(directory);
		if (file)
			report_path(s, BASES + place, &as(struct file, file)->f_path);
	}
	return 0;
}

/* Reports the destination of a message. Returns true if it is the first one of its socket. */
__noinline int report_destination(struct scratch *s __arg_nonnull, u64 address, u64 length)
{
	u64 file = own_file(s->arguments[0]), any = 0;
	if (!address)
		return false;
	if (!file)
		return true;
	u32 inode = as(struct file, file)->f_inode->i_ino;
	if (bpf_map_lookup_elem(&sent_sockets, &inode))
		return false;
	bpf_map_update_elem(&sent_sockets, &inode, &any, BPF_ANY);
	begin_part(s, NAMES);
	u64 bytes = (u32)length < ADDRESS_MAX ? length & 127 : ADDRESS_MAX;
	if (!bpf_probe_read_user(s->bytes, bytes, (void *)address))
		output(&s->part, sizeof s->part + bytes);
	return true;
}

/* Reports a pipe or socket that came in a message as if it had come by a call of its own. */
__noinline int report_received(struct scratch *s __arg_nonnull, s32 fd)
{
	u32 type = get_end(s, fd);
	u64 file = own_file(fd);
	if (!file || (type != S_IFIFO && type != S_IFSOCK))
		return 0;
	if (type == S_IFIFO)
		report_path(s, OPENED, &as(struct file, file)->f_path);
	report_call(s);
	return 0;
}

static __always_inline void receive(s32 fd, void *with)
{
	report_received(with, fd);
}

/* The same of all that came in some messages. */
__noinline int report_all_received(struct scratch *s __arg_nonnull, u64 messages, u64 count)
{
	if (count <= UIO_MAXIOV)
		each_descriptor(&s->walk, messages, count, receive, s);
	return 0;
}

/* Returns true if a descriptor before this one is open on the same inode. */
static __always_inline bool has_other_end(struct scratch *s, s32 fd, struct inode *inode)
{
	enum { NEAR = 16 };
	u64 other;

	for (s->used = 1; READ_ONCE(s->used) <= NEAR && can_loop; s->used++)
		if ((other = own_file(fd - READ_ONCE(s->used))) && as(struct file, other)->f_inode == inode)
			return true;
	return false;
}

/*
 * Reports bytes that were written into a pipe of which the writer also has the reading end: a shell makes a pipe,
 * writes a here-document into it, and then starts the program that reads it.
 */
__noinline int report_piped(struct scratch *s __arg_nonnull)
{
	s32 fd = s->arguments[0];
	u64 file = own_file(fd), bytes = s->record.call.result;
	if (!file || bytes > PART_MAX)
		return 0;
	struct inode *inode = as(struct file, file)->f_inode;
	if ((inode->i_mode & S_IFMT) != S_IFIFO || !has_other_end(s, fd, inode))
		return 0;
	begin_part(s, PIPED);
	s->part.at = inode->i_ino;
	u32 length = bytes & (2 * PART_MAX - 1);
	if (length <= PART_MAX && !bpf_probe_read_user(s->bytes, length, (void *)s->arguments[1]))
		output(&s->part, sizeof s->part + length);
	return 0;
}

/* Runs for every call of the machine: what is not reported must cost next to nothing. */
static __always_inline bool is_reported(struct pt_regs *regs, u64 number, long result)
{
	u64 length = 0;
	if (number >= SYSCALLS || !(call_reports[number].shape | call_reports[SYSCALLS + number].shape)
	    || (result < 0 && result != -EINPROGRESS
		&& !((call_reports[number].how | call_reports[SYSCALLS + number].how) & WITH_FAILURES)))
		return false;
	if (number == NR_openat)
		/* The C library opens a file for itself, for reading: libraries, locales. */
		return regs->dx & config.change_flags || !library_opens[regs->ip & PAGE_MASK];
	if (number == NR_sendto)
		return regs->r8;	/* without an address it goes to the peer, which is known */
	if (number != NR_recvmsg)
		return true;
	bpf_probe_read_user(&length, 8, (void *)regs->si + __builtin_offsetof(struct user_msghdr, msg_controllen));
	return length >= 20;
}

/* True if a name is that of a file of the machine; the reader of the reports knows more of them. */
__noinline int is_of_machine(struct scratch *s __arg_nonnull, u64 name)
{
	u64 first = 0;
	if (bpf_probe_read_user(&first, sizeof first, (void *)name) || (u8)first != '/')
		return false;
	for (s->used = 0; READ_ONCE(s->used) < SYSTEM_NAMES && can_loop; s->used++) {
		u32 n = READ_ONCE(s->used) & (SYSTEM_NAMES - 1);
		if (!system_names[n].mask)
			return false;
		if ((first & system_names[n].mask) == system_names[n].bytes)
			return true;
	}
	return false;
}

/* Takes the identity of a file from the attributes that a call has written for the program. */
__noinline int get_attributes(struct scratch *s __arg_nonnull, u64 address, bool is_statx)
{
	struct open_file *f = &s->record.call.file;

	if (is_statx) {
		struct user_statx x;
		if (bpf_probe_read_user(&x, sizeof x, (void *)address))
			return 0;
		f->kind = x.mode, f->inode = x.inode, f->size = x.size;
		f->device = x.device_major << 20 | x.device_minor;
	} else {
		struct user_stat x;
		if (bpf_probe_read_user(&x, sizeof x, (void *)address))
			return 0;
		f->kind = x.mode, f->inode = x.inode, f->size = x.size;
		f->device = (x.device >> 8 & 0xfff) << 20 | (x.device & 0xff) | (x.device >> 12 & 0xfff00);
	}
	return 0;
}

/* Reports the names of files that a call was given, and takes what it says about them. */
__noinline int get_names(struct scratch *s __arg_nonnull, bool with_attributes)
{
	struct call_report *report = report_of(s);
	u64 name = argument(s, report->name);
	s32 directory = report->directory == NO_ARGUMENT ? NO_DIRECTORY : argument(s, report->directory);

	if (report->name != NO_ARGUMENT)
		report_name(s, name, directory, 0);
	if (report->other_name != NO_ARGUMENT)
		report_name(s, argument(s, report->other_name),
			    report->other_directory == NO_ARGUMENT ? NO_DIRECTORY : argument(s, report->other_directory), 1);
	if (report->attributes != NO_ARGUMENT && with_attributes)
		get_attributes(s, argument(s, report->attributes), report->how & AS_STATX);
	else if (report->directory != NO_ARGUMENT && is_unnamed(AT_EMPTY_PATH, name))
		/* futimens(3) and others have no name, but the descriptor of the file. */
		get_file(s, directory, own_file(directory));
	return 0;
}

/* How a call is reported. */
__noinline int shape_of(struct scratch *s __arg_nonnull)
{
	struct call_report *report = report_of(s);
	long result = s->record.call.result;
	bool fails = result < 0 && result != -EINPROGRESS;

	if (report->how & OF_THE_RUN || fails) {
		u64 name = argument(s, report->name);
		if ((fails && !(report->how & WITH_FAILURES)) || is_unnamed(argument(s, report->flags), name)
		    || is_of_machine(s, name))
			return 0;
	}
	if ((report->how & FINDS || fails) && !has_space_for_more()) {
		__sync_fetch_and_add(&lost_calls, 1);
		return 0;
	}
	return fails && report->shape == RETURNED ? NAMED : report->shape;
}

static __always_inline void begin_report(struct scratch *s)
{
	struct call_event *c = &s->record.call;
	struct begun_call *begun = bpf_map_lookup_elem(&begun_calls, &s->record.head.tid);

	__builtin_memcpy(c->argument, s->arguments, sizeof c->argument);
	c->began = begun && begun->number == s->record.head.number ? begun->at : 0;
	c->io = io_of(current_task());
	c->file = (struct open_file){ .descriptor = -1 };
	clear_socket(c);
}

__noinline int report_return(struct scratch *s __arg_nonnull)
{
	int shape = shape_of(s);
	long result = s->record.call.result;
	struct { u64 name, length; } to = { s->arguments[4], s->arguments[5] };

	if (shape == WROTE)
		report_piped(s);
	if (shape == WROTE || !shape)
		return 0;
	begin_report(s);
	switch (shape) {
	case RECEIVED:
	case SEVERAL_RECEIVED:
		return report_all_received(s, s->arguments[1], shape == RECEIVED ? 1 : result);
	case SENT_MESSAGE:
		bpf_probe_read_user(&to, sizeof to, (void *)s->arguments[1]);
		/* fallthrough */
	case SENT:
		if (!report_destination(s, to.name, to.length))
			return 0;
		/* fallthrough */
	case GIVEN:
	case RETURNED:
		if (!get_descriptor(s, shape == RETURNED ? result : s->arguments[0]))
			return 0;
		/* The links that led to the file follow from it. */
		if (report_of(s)->name != NO_ARGUMENT)
			get_names(s, false);
		break;
	case PAIR:
	case PAIR_LAST: {
		s32 both[2] = {};
		bpf_probe_read_user(both, sizeof both, (void *)s->arguments[shape == PAIR ? 0 : 3]);
		if (get_end(s, both[0]))
			emit(s, SECOND, sizeof(struct call_event));
		get_end(s, both[1]);
		break;
	}
	case NAMED:
		get_names(s, !result && s->record.head.number < SYSCALLS);
		break;
	}
	report_call(s);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(called, struct pt_regs *regs, long result)
{
	u64 number = regs->orig_ax;
	struct scratch *s;

	if (!is_reported(regs, number, result) || !(s = begin(true)))
		return 0;
	bool is_compat = current_task()->thread_info.status & TS_COMPAT;
	get_arguments(s->arguments, regs, is_compat);
	s->arguments[6] = s->arguments[NO_ARGUMENT] = 0;
	s->record.call.result = result;
	s->record.head.number = is_compat ? number + SYSCALLS : number;
	report_return(s);
	return 0;
}
