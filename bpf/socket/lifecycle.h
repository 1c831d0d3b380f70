/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From one state to the next: the same on every rung that sees TCP's state changes. */
#pragma once
#include "pairs.h"

/* The connection ended; `state` is the last one before TCP_CLOSE. */
static __always_inline void tcp_ended(struct sock *sk, struct tcp_sock *tp,
				      struct socket_track *track, __u32 state)
{
	if (settings.aggregate && state != TCP_LISTEN) {
		struct pair_key key = {.protocol = TCP_PROTOCOL};
		struct socket_tcp tcp;
		struct pair_end what = {.tcp = &tcp, .now_ns = bpf_ktime_get_ns()};
		__u16 error;

		fill_pair_key(&key, sk, track, bpf_ntohs(READ(tp, inet_conn.icsk_inet.inet_sport)));
		read_tcp(&tcp, sk, tp, state, key.opener);
		what.end = end_of(sk, tp, track, state, &error);
		what.established = (track && track->established_ns) ||
				   (state != TCP_SYN_SENT && state != TCP_SYN_RECV);
		pair_add(&key, track, &what);
	} else {
		struct socket_record *record = record_reserve();

		if (!record)
			return;
		fill_tcp(record, sk, tp, track, state);
		record->id = track_id(track, sk);
		record->end = end_of(sk, tp, track, state, &record->error);
		record_submit(record);
	}
}

/* Whether a change to this state matters here; most do not. */
static __always_inline bool state_matters(__u32 state)
{
	return state == TCP_SYN_SENT || state == TCP_LISTEN || state == TCP_ESTABLISHED ||
	       state == TCP_FIN_WAIT1 || state == TCP_CLOSE;
}

static __always_inline void tcp_state_changes(struct sock *sk, struct tcp_sock *tp, __u32 old,
					      __u32 new)
{
	struct socket_track *track;

	switch (new) {
	/* In the system call of the process that connects or listens. */
	case TCP_SYN_SENT:
	case TCP_LISTEN:
		track = track_make(sk);
		if (!track) {
			track_refused();
			return;
		}
		/* The hook of connect, which misses nothing, did this just before. */
		if (new == TCP_SYN_SENT && track_is_of(track, sk) &&
		    track->flags &TRACK_CONNECTING) {
			track->flags &= ~TRACK_CONNECTING;
			track->state = new;
			return;
		}
		track_begin(track, sk, new == TCP_SYN_SENT ? OPENER_LOCAL : OPENER_UNKNOWN);
		track->state = new;
		/*
		 * Set again even for the same process: it may have executed another program.
		 */
		track->rule = RULE_UNKNOWN;
		track->task.pid = 0;
		track_owner(track, RULE_CONNECT);
		return;
	/* Mostly in an interrupt: the running task is unrelated. */
	case TCP_ESTABLISHED:
		track = track_make(sk);
		if (!track) {
			track_refused();
			return;
		}
		if (!track_is_of(track, sk)) {
			track_accepted(track, sk);
			if (old == TCP_SYN_SENT) { /* connect was before Skua started */
				track->opener = OPENER_LOCAL;
				track->start_ns = 0;
			}
		}
		track->state = new;
		track->established_ns = bpf_ktime_get_ns();
		return;
	case TCP_FIN_WAIT1:
		if (READ_BITS(sk, sk_shutdown) != SEND_RCV_SHUTDOWN)
			return;
		track = track_find(sk);
		if (!track)
			return;
		if (!track_is_of(track, sk))
			track_accepted(track, sk);
		track->data_in = READ(tp, data_segs_in);
		track->flags |= TRACK_CLOSED;
		return;
	case TCP_CLOSE:
		if (old == TCP_CLOSE)
			return;
		track = track_find(sk);
		if (track) {
			if (!track_is_of(track, sk)) {
				/* Never established: the listener was full, or has ended. */
				if (old == TCP_SYN_RECV && !READ(tp, bytes_received))
					return;
				track_accepted(track, sk);
			}
			if (track->flags & TRACK_ENDED)
				return;
			track->flags |= TRACK_ENDED;
		} else if (old == TCP_SYN_RECV) {
			return;
		} else if (track_was_refused()) {
			count_loss(LOSS_TABLE_FULL);
			return;
		}
		tcp_ended(sk, tp, track, old);
		track_drop(sk);
		return;
	}
}

/* The last descriptor of a UDP socket was closed. */
static __always_inline void udp_ended(struct sock *sk, struct socket_track *track, __u64 id)
{
	struct socket_record *record;

	if (settings.aggregate) {
		struct pair_key key = {.protocol = UDP_PROTOCOL};
		struct pair_end what = {
			.now_ns = bpf_ktime_get_ns(), .end = END_CLOSED, .established = true};
		const __u16 port = READ(sk, __sk_common.skc_num);

		fill_pair_key(&key, sk, track, port);
		if (READ(sk, __sk_common.skc_state) != TCP_ESTABLISHED) {
			__builtin_memcpy(key.remote, track->remote, 16);
			key.service_port = service_port(key.opener, port, track->remote_port);
		}
		pair_add(&key, track, &what);
		return;
	}
	record = record_reserve();
	if (!record)
		return;
	fill_udp(record, sk, track);
	record->id = id;
	record->end = END_CLOSED;
	record_submit(record);
}
