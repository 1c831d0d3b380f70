/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Settings and maps of the socket programs. The loader sets sizes and read-only data before
 * loading, and gives the maps of the first object to the others.
 */
#pragma once
#include "base.h"

const volatile struct socket_settings settings = {
	.wake_at = 1 << 20,
};

/* Ended sockets. */
#ifdef SKUA_PERF
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} ended SEC(".maps");
#else
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ended SEC(".maps");
#endif

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSSES);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

struct pair_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct pair_key));
	__uint(value_size, sizeof(struct pair_sums));
};

/* The map that sums go to; user space replaces it with another map before it reads this one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct pair_map);
} pairs SEC(".maps");

static __always_inline void count_loss(__u32 cause)
{
	__u64 *count = bpf_map_lookup_elem(&losses, &cause);

	/* Atomic, although it is per CPU: an interrupt may run a program in between. */
	if (count)
		__sync_fetch_and_add(count, 1);
}
