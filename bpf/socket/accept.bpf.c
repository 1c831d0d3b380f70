// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The process that accepts, where the kernel has fexit (5.15 on most distributions). */
#define SKUA_DIRECT
#include "track.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct proto_accept_arg;

static __always_inline int accepted(struct sock *sk)
{
	struct socket_track *track;

	if (!sk)
		return 0;
	track = track_find(sk);
	if (!track)
		return 0;
	/*
	 * While it is in SYN-RECV another CPU may be setting it to established and claiming the
	 * track: with TCP fast open, or when the handshake ends during accept.
	 */
	if (!track_is_of(track, sk) && sk->__sk_common.skc_state != TCP_SYN_RECV)
		track_accepted(track, sk);
	__sync_fetch_and_add(&track->accepted, 1);
	track_take(track, RULE_ACCEPT);
	return 0;
}

/* Only one of the two matches the kernel's function and loads; the loader tries both. */

/* Since 6.10. */
SEC("fexit/inet_csk_accept")
int BPF_PROG(socket_accept_2, struct sock *listener, struct proto_accept_arg *arguments,
	     struct sock *sk)
{
	return accepted(sk);
}

SEC("fexit/inet_csk_accept")
int BPF_PROG(socket_accept_4, struct sock *listener, int flags, int *error, bool kernel,
	     struct sock *sk)
{
	return accepted(sk);
}
