/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Records of sockets: sent to the ring at their end, or summed up by pairs. */
#pragma once
#include "metrics.h"

/* Fields that do not depend on the protocol. */
static __always_inline void fill_common(struct socket_record *to, struct sock *sk,
					struct socket_track *track)
{
	to->now_ns = bpf_ktime_get_ns();
	to->remote_port = read_endpoints(sk, to->local, to->remote);
	to->netns = read_netns(sk);
	to->pad = 0;
	if (track) {
		to->start_ns = track->start_ns;
		to->established_ns = track->established_ns;
		to->rule = track->rule;
		to->opener = track->opener;
		__builtin_memcpy(&to->task, &track->task, sizeof(to->task));
	} else {
		to->start_ns = 0;
		to->established_ns = 0;
		to->rule = RULE_UNKNOWN;
		to->opener = OPENER_UNKNOWN;
		__builtin_memset(&to->task, 0, sizeof(to->task));
	}
}

static __always_inline void fill_tcp(struct socket_record *to, struct sock *sk, struct tcp_sock *tp,
				     struct socket_track *track, __u32 state)
{
	fill_common(to, sk, track);
	to->protocol = TCP_PROTOCOL;
	to->state = state;
	to->local_port = bpf_ntohs(READ(tp, inet_conn.icsk_inet.inet_sport));
	to->backlog = READ(sk, sk_ack_backlog);
	to->backlog_max = READ(sk, sk_max_ack_backlog);
	read_tcp(&to->tcp, sk, tp, state, to->opener);
}

static __always_inline void fill_udp(struct socket_record *to, struct sock *sk,
				     struct socket_track *track)
{
	fill_common(to, sk, track);
	to->protocol = UDP_PROTOCOL;
	to->local_port = READ(sk, __sk_common.skc_num);
	to->state = STATE_UDP_CONNECTED;
	if (READ(sk, __sk_common.skc_state) != TCP_ESTABLISHED) {
		to->state = STATE_UDP_UNCONNECTED;
		to->remote_port = track ? track->remote_port : 0;
		if (track)
			__builtin_memcpy(to->remote, track->remote, 16);
	}
	to->end = END_NONE;
	to->error = 0;
	to->backlog = 0;
	to->backlog_max = 0;
	__builtin_memset(&to->tcp, 0, sizeof(to->tcp));
}

#ifdef SKUA_PERF
#include "output_perf.h"
#else
#include "output_ring.h"
#endif
