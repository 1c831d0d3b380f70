/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The number of the network namespace of a packet, which goes into every key. Programs of one
 * namespace have it as a constant. Programs that all further namespaces share (SKUA_SHARED, 6.2)
 * read the namespace from the packet's interface and find its number in a map.
 */
#pragma once
#include "maps.h"
#ifdef SKUA_TABLES
#include "tables.h"
#endif

/* Not in `namespaces`: the interface was moved while we were attached to it. */
#define NETNS_UNKNOWN 0xffffffffu

#define NAMESPACE_PLACES 4096

#if defined(SKUA_SHARED) || defined(SKUA_TABLES)
#include <bpf/bpf_core_read.h>
#include "kernel.h"

/* The kernel's own struct behind the context of a program, 6.2. */
extern void *bpf_cast_to_kern_ctx(void *context) __ksym;

static __always_inline __u32 packet_inode(void *ctx)
{
	const struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);

	return skb->dev->nd_net.net->ns.inum;
}
#endif

#ifdef SKUA_SHARED

/* A namespace: the inode that stands for it, and its number. */
struct namespace_entry {
	__u32 inode;
	__u32 number;
};

/*
 * All namespaces, by inode. User space adds one before it attaches there, and removes it when the
 * namespace has ended. The array before it, indexed by the inode's last bits, saves most packets
 * the lookup: each element has the first namespace with these bits, or 0, and never changes while
 * packets of that namespace come.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAMESPACE_PLACES);
	__type(key, __u32);
	__type(value, struct namespace_entry);
} namespace_places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} namespaces SEC(".maps");

static __always_inline __u32 packet_netns(void *ctx)
{
	__u32 inode = packet_inode(ctx), place = inode % NAMESPACE_PLACES;
	struct namespace_entry *entry = bpf_map_lookup_elem(&namespace_places, &place);
	__u32 *number;

	if (entry && entry->inode == inode)
		return entry->number;
	number = bpf_map_lookup_elem(&namespaces, &inode);
	return number ? *number : NETNS_UNKNOWN;
}
#elif defined(SKUA_TABLES)
/* A namespace of a table, whose number is the table's own. */
struct namespace_key {
	__u32 inode;
	__u32 table;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct namespace_key);
	__type(value, __u32);
} namespaces SEC(".maps");

static __always_inline __u32 packet_netns(void *ctx)
{
	__u32 zero = 0, *table = bpf_map_lookup_elem(&current_table, &zero), *number;
	struct namespace_key key = {};

	if (!table)
		return NETNS_UNKNOWN;
	key.inode = packet_inode(ctx);
	key.table = *table;
	number = bpf_map_lookup_elem(&namespaces, &key);
	return number ? *number : NETNS_UNKNOWN;
}
#else
#define packet_netns(ctx) settings.netns
#endif
