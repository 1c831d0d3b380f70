/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The kernel's TCP counters, and why a connection ended. */
#pragma once
#include "track.h"

#define AS_SOCK(tp) ((struct sock *)(tp))

static __always_inline bool flag_of(struct sock *sk, __u32 bit)
{
	return READ(sk, __sk_common.skc_flags) >> bit & 1;
}

/* Whether our FIN was sent, in or just before this state. */
static __always_inline bool fin_sent(__u32 state)
{
	return state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 || state == TCP_CLOSING ||
	       state == TCP_LAST_ACK;
}

/*
 * Which side opened a connection that is older than Skua: bytes_acked counts the SYN of an active
 * open, while the bytes that were sent once and are not in flight do not include it.
 */
static __always_inline __u8 guess_opener(struct tcp_sock *tp, __u32 state)
{
	__u64 payload;

	if (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT)
		return OPENER_UNKNOWN;
	payload = READ(tp, bytes_sent) - READ(tp, bytes_retrans) -
		  (__u32)(READ(tp, snd_nxt) - READ(tp, snd_una));
	/* The fields are read without the socket's lock, so any other difference is possible. */
	switch (READ(tp, bytes_acked) - payload) {
	case 0:
		return OPENER_REMOTE;
	case 1:
		return OPENER_LOCAL;
	default:
		return OPENER_UNKNOWN;
	}
}

/* `state` is the last one before TCP_CLOSE. */
static __always_inline void read_tcp(struct socket_tcp *to, struct sock *sk, struct tcp_sock *tp,
				     __u32 state, __u8 opener)
{
	__u64 sent = READ(tp, bytes_acked), received = READ(tp, bytes_received);

	if (opener == OPENER_LOCAL && sent)
		sent--;
	if (fin_sent(state) && sent && READ(tp, snd_una) == READ(tp, write_seq))
		sent--;
	if (received && flag_of(sk, SOCK_DONE))
		received--;
	to->bytes_sent = sent;
	to->bytes_received = received;
	to->bytes_retransmitted = READ(tp, bytes_retrans);
	to->segments_sent = READ(tp, segs_out);
	to->segments_received = READ(tp, segs_in);
	to->retransmits = READ(tp, total_retrans);
	to->lost = READ(tp, lost_out);
	to->srtt_eighths = READ(tp, srtt_us);
	to->mdev_quarters = READ(tp, mdev_us);
	to->min_rtt_us = READ(tp, rtt_min.s[0].v);
	to->cwnd = READ(tp, snd_cwnd);
	to->mss = READ(tp, mss_cache);
	to->rate_delivered = READ(tp, rate_delivered);
	to->rate_interval_us = READ(tp, rate_interval_us);
	to->pad = 0;
}

/*
 * Why a connection ended. The RST that the kernel sends in place of a FIN (unread data, SO_LINGER
 * of 0, connect to AF_UNSPEC) comes only after the state is TCP_CLOSE. But from these states
 * nothing else leads there without an error.
 */
static __always_inline __u8 end_of(struct sock *sk, struct tcp_sock *tp, struct socket_track *track,
				   __u32 state, __u16 *error)
{
	__u8 flags = track ? track->flags : 0;
	int err = READ(sk, sk_err);

	*error = 0;
	if (state == TCP_LISTEN)
		return END_CLOSED;
	if (err == ETIMEDOUT)
		return END_TIMED_OUT;
	if (state == TCP_SYN_SENT) {
		/* No free port, the only reason for an attempt to end without one. */
		if (!err && !READ(tp, inet_conn.icsk_inet.inet_sport))
			err = EADDRNOTAVAIL;
		if (!err)
			return END_CLOSED;
	} else {
		if (flags & TRACK_RESET_SENT)
			return END_RESET_LOCAL;
		/* Data for a process that closed already: the RST comes after. */
		if ((err == 0 || err == ECONNRESET) && flags & TRACK_CLOSED &&
		    (state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2) &&
		    READ(tp, data_segs_in) != track->data_in)
			return END_RESET_LOCAL;
		if (!err) {
			if (state == TCP_ESTABLISHED || state == TCP_CLOSE_WAIT ||
			    state == TCP_SYN_RECV || state == TCP_FIN_WAIT1)
				return END_RESET_LOCAL;
			if (state == TCP_FIN_WAIT2 && !flag_of(sk, SOCK_DEAD) &&
			    !flag_of(sk, SOCK_DONE))
				return END_RESET_LOCAL;
			return END_CLOSED;
		}
	}
	switch (err) {
	case ECONNREFUSED:
		return END_REFUSED;
	case ECONNRESET:
	case EPIPE:
		return END_RESET_REMOTE;
	default:
		*error = err;
		return END_ERROR;
	}
}
