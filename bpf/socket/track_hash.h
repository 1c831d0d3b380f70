/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Tracks in a hash table by the socket's address, for kernels where tracing programs have no
 * socket storage (before 5.11). A track is made when the connection begins and deleted when it
 * ends, so none outlives its socket. The table is preallocated, since programs cannot allocate
 * here.
 */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct socket_track);
} tracks SEC(".maps");

/* In its own section, because the settings must be the first in the common one. */
static const struct socket_track no_track SEC(".rodata.zero");

/*
 * A number as unique as a socket cookie. The kernel gives a socket a cookie only on request, which
 * a tracing program cannot make, and counts cookies up from 1: far below ours. Two at the same time
 * differ by the CPU; 56 bits of ns are two years of uptime.
 */
static __always_inline __u64 new_id(void)
{
	return 1ULL << 63 | bpf_ktime_get_ns() << 7 | (bpf_get_smp_processor_id() & 127);
}

static __always_inline struct socket_track *track_find(const void *sk)
{
	__u64 key = (__u64)(unsigned long)sk;

	return bpf_map_lookup_elem(&tracks, &key);
}

static __always_inline struct socket_track *track_make(const void *sk)
{
	__u64 key = (__u64)(unsigned long)sk;
	struct socket_track *track = bpf_map_lookup_elem(&tracks, &key);

	if (track)
		return track;
	bpf_map_update_elem(&tracks, &key, &no_track, BPF_NOEXIST);
	track = bpf_map_lookup_elem(&tracks, &key);
	if (track)
		track->id = new_id();
	return track;
}

static __always_inline void track_drop(const void *sk)
{
	__u64 key = (__u64)(unsigned long)sk;

	bpf_map_delete_elem(&tracks, &key);
}

static __always_inline __u64 track_id(struct socket_track *track, struct sock *sk)
{
	__u64 cookie;

	if (track)
		return track->id;
	cookie = READ(sk, __sk_common.skc_cookie.counter);
	return cookie ? cookie : new_id();
}

/* Whether the table of tracks was ever full. */
static volatile bool table_was_full;

/* It is counted when the socket ends, so that it is counted once. */
static __always_inline void track_refused(void)
{
	table_was_full = true;
}

/* All that were open at the start got tracks, so a socket without one did not fit. */
static __always_inline bool track_was_refused(void)
{
	return table_was_full;
}
