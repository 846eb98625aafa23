/* Descriptors in messages (SCM_RIGHTS of unix(7)), as the sender or the receiver has them in its memory. */
#pragma once
#include "common.bpf.h"

#define SOL_SOCKET 1
#define SCM_RIGHTS 1
#define CONTROL_MAX (1 << 20)	/* optmem_max of socket(7) is far below */

/*
 * State of a walk over messages, in the memory of a map: the verifier assumes nothing about it, and so soon finds
 * one step of the loop to be like another.
 */
struct walk {
	u64 message, messages;	/* the next message, and how many are left */
	u64 at, end;		/* control messages of the message */
	u64 next, limit;	/* descriptors of the control message */
	union {			/* what was read last */
		struct { u64 control, control_length; };
		struct { u64 length; s32 level, type; };
		s32 fd;
	};
};

/* Calls `each` for every descriptor in `count` messages at an address of the user's memory. */
static __always_inline void each_descriptor(volatile struct walk *w, u64 message, u64 count,
					    void (*each)(s32 fd, void *with), void *with)
{
	enum { HEAD = 16 };

	w->message = message, w->messages = count;
	w->at = w->end = w->next = w->limit = 0;
	while (can_loop) {
		if ((s64)(w->limit - w->next) >= (s64)sizeof w->fd) {
			if (bpf_probe_read_user((void *)&w->fd, sizeof w->fd, (void *)w->next))
				return;
			w->next += sizeof w->fd;
			each(w->fd, with);
		} else if ((s64)(w->end - w->at) >= HEAD + (s64)sizeof w->fd) {
			u64 at = w->at;
			if (bpf_probe_read_user((void *)&w->length, HEAD, (void *)at))
				return;
			if (w->length < HEAD || w->length > CONTROL_MAX)
				return;
			w->at = at + ((w->length + 7) & ~7ull);
			if (w->level == SOL_SOCKET && w->type == SCM_RIGHTS)
				w->next = at + HEAD, w->limit = at + w->length;
		} else {
			if (!w->messages)
				return;
			if (bpf_probe_read_user((void *)&w->control, HEAD,
						(void *)w->message + __builtin_offsetof(struct user_msghdr, msg_control)))
				return;
			w->messages--;
			w->message += sizeof(struct user_mmsghdr);
			w->at = w->control;
			w->end = w->control + (w->control_length < CONTROL_MAX ? w->control_length : 0);
		}
	}
}
