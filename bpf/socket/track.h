/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The state of a socket from its start to its end. Programs access it only with track_find and
 * track_make, so that the kind of map can differ.
 */
#pragma once
#include "maps.h"
#include "task.h"

struct socket_track {
	/*
	 * Address of the socket of this track: an accepted socket gets a copy of its listener's
	 * track, and this shows that it is a copy.
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
 * Claims a new or copied track for the socket. Its owner is then that of the listener, if known.
 */
static __always_inline void track_adopt(struct socket_track *track, const void *sk)
{
	track->rule = track->task.pid ? RULE_LISTENER : RULE_UNKNOWN;
#ifndef SKUA_HASH
	/*
	 * A process may have accepted it already (accept.bpf.c), which sets `accepted` before it
	 * sets the owner: either `accepted` is seen here, or the owner is set after this. The
	 * exchange orders the read after the write; kernels with socket storage have it (5.12).
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

	/* Kernel workers close files for processes: the last reference may be dropped later. */
	if (READ_TASK(task, flags) & PF_KTHREAD)
		return;
	/* Mostly the listener's owner has accepted and closed it. */
	if (!is_task(&track->task, task))
		read_task(&track->task, task);
	track->rule = rule;
}

/* Makes the running task the owner, unless a better rule has found one. */
static __always_inline void track_owner(struct socket_track *track, __u8 rule)
{
	if (track->rule > rule)
		track_take(track, rule);
}
