// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Hooks of the unified hierarchy's root. All run in the system call of the process: UDP's connect
 * and first send, the close of any socket, and accept, when it asks for the other side's address.
 * They always allow the call.
 */
#define SKUA_DIRECT_TASK
#include "lifecycle.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define GO_ON 1

/*
 * The socket, for reading: the verifier forbids arithmetic with the pointer in the context, but
 * not with the number in the track.
 */
static __always_inline struct sock *readable(struct socket_track *track)
{
	return (struct sock *)(unsigned long)*(volatile __u64 *)&track->self;
}

/* Starts the track of a UDP socket. */
static __always_inline struct socket_track *udp_begins(struct bpf_sock *sk, __u8 rule)
{
	struct socket_track *track = track_make(sk);

	if (!track) {
		count_loss(LOSS_TABLE_FULL);
		return NULL;
	}
	if (!track_is_of(track, sk))
		track_adopt(track, sk);
	if (!track->start_ns)
		track_begin(track, sk, OPENER_LOCAL);
	track_owner(track, rule);
	return track;
}

/*
 * A TCP connection begins. The change to SYN-SENT would show it, too, but tracing programs may miss
 * it, see socket_destroyed, and with it the owner.
 */
static __always_inline void tcp_begins(struct bpf_sock *sk)
{
	struct socket_track *track = track_make(sk);

	if (!track) {
		count_loss(LOSS_TABLE_FULL);
		return;
	}
	track_begin(track, sk, OPENER_LOCAL);
	track->state = TCP_CLOSE; /* not begun if connect fails before */
	track->flags = TRACK_CONNECTING;
	track->rule = RULE_UNKNOWN;
	/* Set again even for the same process: it may have executed another program. */
	track->task.pid = 0;
	track_owner(track, RULE_CONNECT);
}

static __always_inline int connects(struct bpf_sock_addr *context)
{
	struct bpf_sock *sk = context->sk;

	if (!sk)
		return GO_ON;
	if (context->protocol == UDP_PROTOCOL)
		udp_begins(sk, RULE_CONNECT);
	/* Skip connect calls on an existing connection. */
	else if (context->protocol == TCP_PROTOCOL && sk->state == TCP_CLOSE)
		tcp_begins(sk);
	return GO_ON;
}

SEC("cgroup/connect4")
int socket_connect4(struct bpf_sock_addr *context)
{
	return connects(context);
}

SEC("cgroup/connect6")
int socket_connect6(struct bpf_sock_addr *context)
{
	return connects(context);
}

/* Whether an unconnected socket sends for the first time; if so, starts its track. */
static __always_inline struct socket_track *udp_first_send(struct bpf_sock_addr *context)
{
	struct bpf_sock *sk = context->sk;
	struct socket_track *track;

	if (!sk || context->protocol != UDP_PROTOCOL)
		return NULL;
	track = track_find(sk);
	if (track && track->remote_port)
		return NULL;
	track = udp_begins(sk, RULE_SEND);
	if (!track)
		return NULL;
	/* A socket that was bound to its port explicitly may be a server that answers. */
	if (BPF_CORE_READ_BITFIELD_PROBED(readable(track), sk_userlocks) & SOCK_BINDPORT_LOCK)
		track->opener = OPENER_UNKNOWN;
	return track;
}

SEC("cgroup/sendmsg4")
int socket_sendmsg4(struct bpf_sock_addr *context)
{
	struct socket_track *track = udp_first_send(context);

	if (track) {
		put_ipv4(track->remote, context->user_ip4);
		track->remote_port = bpf_ntohs(context->user_port);
	}
	return GO_ON;
}

SEC("cgroup/sendmsg6")
int socket_sendmsg6(struct bpf_sock_addr *context)
{
	struct socket_track *track = udp_first_send(context);

	if (track) {
		__u32 *words = (__u32 *)track->remote;

		words[0] = context->user_ip6[0];
		words[1] = context->user_ip6[1];
		words[2] = context->user_ip6[2];
		words[3] = context->user_ip6[3];
		track->remote_port = bpf_ntohs(context->user_port);
	}
	return GO_ON;
}

static __always_inline void udp_ends(struct bpf_sock *context, struct socket_track *track)
{
	struct sock *sk = (struct sock *)(void *)context;

	/* Its track is of a connect that failed: nothing was ever sent. */
	if (READ(sk, __sk_common.skc_state) != TCP_ESTABLISHED && !track->remote_port &&
	    track->start_ns)
		return;
	udp_ended(sk, track, track_id(track, context));
}

/* The last descriptor is closed: also of accepted sockets, whose owner may be unknown till now. */
SEC("cgroup/sock_release")
int socket_release(struct bpf_sock *context)
{
	struct socket_track *track = track_find(context);

	if (!track || !track_is_of(track, context))
		return GO_ON;
	track_owner(track, RULE_CLOSE);
	if (context->protocol == UDP_PROTOCOL && !(track->flags & TRACK_ENDED)) {
		track->flags |= TRACK_ENDED;
		udp_ends(context, track);
	}
	return GO_ON;
}

/* accept requests the other side's name, and getpeername does, too; both show the owner. */
static __always_inline int named(struct bpf_sock_addr *context)
{
	struct bpf_sock *sk = context->sk;
	struct socket_track *track;

	if (!sk || context->protocol != TCP_PROTOCOL)
		return GO_ON;
	track = track_find(sk);
	if (!track || (track_is_of(track, sk) && track->opener != OPENER_REMOTE))
		return GO_ON;
	if (!track_is_of(track, sk)) /* TCP fast open: accepted before it is established */
		track_accepted(track, sk);
	/* An owner that was found after accept only requested the name. */
	if (track->rule > RULE_FILE)
		track_owner(track, RULE_ACCEPT);
	return GO_ON;
}

SEC("cgroup/getpeername4")
int socket_getpeername4(struct bpf_sock_addr *context)
{
	return named(context);
}

SEC("cgroup/getpeername6")
int socket_getpeername6(struct bpf_sock_addr *context)
{
	return named(context);
}
