/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Settings and maps of the flow programs. The loader sets sizes and read-only data before loading.
 */
#pragma once
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "flow.h"

/* Read-only data, set by the loader: the verifier removes the code of disabled features. */
const volatile struct flow_settings settings = {
	.slot_count = 64,
	.most_entries = 32,
	.sampling = 1,
};

/*
 * The flow table is an array used as an open hash: looking up an array element is inlined to a
 * bounds check and an addition, user space maps it, and nothing is ever allocated on a packet.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct flow_slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct flow_cold);
} cold_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_control);
} control SEC(".maps");

/* Filled by user space when it attaches to an interface. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct point_key);
	__type(value, struct point_counters);
} points SEC(".maps");

/* Packets that could not be attributed to a capture point. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct point_counters);
} no_point SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct fragment_key);
	__type(value, struct fragment_note);
} fragments SEC(".maps");

/* Two generations of the address set, of which one is in force; see crates/capture/kernel. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct address_key);
	__type(value, __u32);
} addresses SEC(".maps");

/* Carries one message: "the table fills up, drain now". */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} wakeups SEC(".maps");

/* Connections whose ports were used again, each a struct flow_ended, in their order. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} ended_flows SEC(".maps");

#ifdef SKUA_PACKETS
/* Packets for user space, each a struct packet_head and bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} packets SEC(".maps");
#endif

#if !defined(SKUA_XDP) && defined(SKUA_LINEAR)
#define SKUA_KNOWS_SOCKETS

/* Sockets whose traffic is left out; those that they accept inherit the mark. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, __u32);
} own_sockets SEC(".maps");

/* Conversations of own_sockets, for packets whose socket is no longer a full one (time-wait). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct own_key);
	__type(value, __u32);
} own_conversations SEC(".maps");
#endif
