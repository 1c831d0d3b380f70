/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The state of a socket from its begin to its end. Programs access it by track_find and track_make
 * only, so that another kind of map can stand behind them.
 */
#pragma once
#include "maps.h"
#include "task.h"

struct socket_track {
	/*
	 * Address of the socket that this is of: an accepted socket gets a copy of what is
	 * remembered of its listener, and this shows that it is one.
	 */
	__u64 self;
	__u64 start_ns;
	__u64 established_ns;
	struct socket_task task;
	__u32 pass;	   /* of the file tables in which `task` was seen */
	__u32 data_in;	   /* data segments received when the process closed */
	__u16 incarnation; /* connections before on the same socket */
	__u8 rule;
	__u8 opener;
	__u8 flags;
	__u8 state;	   /* last one that was noted; TCP_CLOSE: nothing began yet */
	__u16 remote_port; /* first destination of an unconnected UDP socket */
	__u8 remote[16];
#ifdef SKUA_HASH
	__u64 id;
#else
	__u32 accepted; /* not 0 when a process has accepted it */
#endif
};

#define TRACK_ENDED	 (1 << 0) /* the record of its end was made */
#define TRACK_RESET_SENT (1 << 1)
#define TRACK_CLOSED	 (1 << 2) /* the process closed both directions: data_in holds */
#define TRACK_CONNECTING (1 << 3) /* connect was called, its SYN is not sent yet */

#ifdef SKUA_HASH
#include "track_hash.h"
#else
#include "track_storage.h"
#endif

/* Whether it is of this socket, and not new or copied from its listener. */
static __always_inline bool track_is_of(struct socket_track *track, const void *sk)
{
	return track->self == (__u64)(unsigned long)sk;
}

/* A new connection begins on the socket. */
static __always_inline void track_begin(struct socket_track *track, const void *sk, __u8 opener)
{
	if (track_is_of(track, sk) && track->flags & TRACK_ENDED)
		track->incarnation++;
	track->self = (__u64)(unsigned long)sk;
	track->start_ns = bpf_ktime_get_ns();
	track->established_ns = 0;
	track->opener = opener;
	track->flags = 0;
}

/*
 * A track that is new or a copy becomes the socket's own. Its owner is then the listener's, if that
 * is known.
 */
static __always_inline void track_adopt(struct socket_track *track, const void *sk)
{
	track->rule = track->task.pid ? RULE_LISTENER : RULE_UNKNOWN;
#ifndef SKUA_HASH
	/*
	 * A process may have accepted it already (accept.bpf.c). That is said before the owner is
	 * named: either it is seen here, or the owner is named after this. The exchange keeps the
	 * read from going before the write; kernels with socket storage have it (5.12).
	 */
	if (__sync_fetch_and_or(&track->accepted, 0))
		track->rule = RULE_ACCEPT;
#endif
	track->incarnation = 0;
	track->pass = 0;
	track->self = 0;
}

static __always_inline void track_accepted(struct socket_track *track, const void *sk)
{
	track_adopt(track, sk);
	track_begin(track, sk, OPENER_REMOTE);
	track->state = TCP_SYN_RECV;
}

/* Makes the running task the socket's owner. */
static __always_inline void track_take(struct socket_track *track, __u8 rule)
{
	struct task_struct *task = CURRENT_TASK();

	/* Work that a process left to the kernel: the last file may be put later. */
	if (READ_TASK(task, flags) & PF_KTHREAD)
		return;
	/* Accepted and closed by the listener's owner, mostly. */
	if (!is_task(&track->task, task))
		read_task(&track->task, task);
	track->rule = rule;
}

/* The running task owns the socket, if no better rule has said who does. */
static __always_inline void track_owner(struct socket_track *track, __u8 rule)
{
	if (track->rule > rule)
		track_take(track, rule);
}
