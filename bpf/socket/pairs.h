/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Aggregate mode: sums ended connections up by process and peer. */
#pragma once
#include "emit.h"

/* In its own section, because the settings must be the first in the common one. */
static const struct pair_sums no_sums SEC(".rodata.zero");

static __always_inline void add(__u64 *to, __u64 value)
{
	if (value)
		__sync_fetch_and_add(to, value);
}

#ifdef SKUA_NO_CMPXCHG
/* Before 5.12: when two CPUs raise it at the same instant the lower value may stay. */
static __always_inline void raise_to(__u64 *to, __u64 value)
{
	if (*(volatile __u64 *)to < value)
		*(volatile __u64 *)to = value;
}
#else
static __always_inline void raise_to(__u64 *to, __u64 value)
{
	__u64 old = *(volatile __u64 *)to, seen;

	/* Others raise it at the same time, so a few rounds always do. */
	for (int i = 0; i < 8 && old < value; i++) {
		seen = __sync_val_compare_and_swap(to, old, value);
		if (seen == old)
			return;
		old = seen;
	}
}
#endif

/* Bucket n holds [2^n, 2^(n+1)) us. */
static __always_inline __u32 rtt_bucket(__u32 us)
{
	__u32 bucket = 0;

	for (int shift = 16; shift; shift >>= 1) {
		if (us >> shift) {
			us >>= shift;
			bucket += shift;
		}
	}
	return bucket < RTT_BUCKETS ? bucket : RTT_BUCKETS - 1;
}

/* The sums of a pair; makes them if they do not exist. */
static __always_inline struct pair_sums *pair_find(struct pair_key *key, struct socket_track *track)
{
	struct pair_sums *sums;
	__u32 zero = 0;
	void *inner;
	long failed;

	inner = bpf_map_lookup_elem(&pairs, &zero);
	if (!inner)
		return NULL;
	sums = bpf_map_lookup_elem(inner, key);
	if (sums)
		return sums;
	failed = bpf_map_update_elem(inner, key, &no_sums, BPF_NOEXIST);
	if (failed && failed != -EEXIST)
		return NULL;
	sums = bpf_map_lookup_elem(inner, key);
	/* Another CPU that sees it as new writes the same values. */
	if (sums && track)
		__builtin_memcpy(&sums->task, &track->task, sizeof(sums->task));
	return sums;
}

/* The ended connection, apart from its key. */
struct pair_end {
	struct socket_tcp *tcp; /* none: UDP */
	__u64 now_ns;
	__u8 end;
	bool established;
};

static __always_inline bool pair_add(struct pair_key *key, struct socket_track *track,
				     struct pair_end *what)
{
	const __u64 start = track && track->start_ns ? track->start_ns : what->now_ns;
	struct pair_sums *sums = pair_find(key, track);
	struct socket_tcp *tcp = what->tcp;
	__u32 rtt;

	if (!sums) {
		count_loss(LOSS_PAIRS_FULL);
		return false;
	}
	add(&sums->connections, 1);
	if (!what->established && what->end != END_CLOSED)
		add(&sums->failed, 1);
	if (what->established && (what->end == END_RESET_LOCAL || what->end == END_RESET_REMOTE))
		add(&sums->reset, 1);
	add(&sums->duration_ns, what->now_ns - start);
	raise_to(&sums->first_ns_complement, ~start);
	raise_to(&sums->last_ns, what->now_ns);
	if (!tcp)
		return true;
	add(&sums->bytes_sent, tcp->bytes_sent);
	add(&sums->bytes_received, tcp->bytes_received);
	add(&sums->bytes_retransmitted, tcp->bytes_retransmitted);
	add(&sums->segments_sent, tcp->segments_sent);
	add(&sums->segments_received, tcp->segments_received);
	add(&sums->retransmits, tcp->retransmits);
	rtt = tcp->srtt_eighths >> 3;
	if (!tcp->srtt_eighths)
		return true;
	add(&sums->rtt_count, 1);
	add(&sums->rtt_sum_us, rtt);
	raise_to(&sums->rtt_min_us_complement, ~(__u64)rtt);
	raise_to(&sums->rtt_max_us, rtt);
	__sync_fetch_and_add(&sums->rtt_histogram[rtt_bucket(rtt) & 31], 1);
	return true;
}

/* The port of the side that did not open the connection; the lower one if that is unknown. */
static __always_inline __u16 service_port(__u8 opener, __u16 local, __u16 remote)
{
	if (opener == OPENER_LOCAL)
		return remote;
	if (opener == OPENER_REMOTE)
		return local;
	return local < remote ? local : remote;
}

static __always_inline void fill_pair_key(struct pair_key *key, struct sock *sk,
					  struct socket_track *track, __u16 local_port)
{
	const __u16 remote_port = read_endpoints(sk, key->local, key->remote);

	key->netns = read_netns(sk);
	key->opener = track ? track->opener : OPENER_UNKNOWN;
	key->rule = track ? track->rule : RULE_UNKNOWN;
	key->pid = track ? track->task.pid : 0;
	key->task_start_ns = track ? track->task.start_ns : 0;
	key->service_port = service_port(key->opener, local_port, remote_port);
}
