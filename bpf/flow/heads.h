/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Heads: the few packets from which user space reads what is said in conversations. Only in the
 * objects with SKUA_PACKETS, through whose ring they go, and only with settings.head_rate: else
 * the verifier removes all of it.
 *
 * Wanted are datagrams of DNS and its dialects, and segments of TCP on their ports; and of all
 * other conversations the first datagram or the first segments of each side. Inside tunnels nothing
 * is wanted: what they carry is seen at the interfaces where it comes from or goes to.
 */
#pragma once
#include "decode.h"

#define PORT_DNS   53
#define PORT_MDNS  5353
#define PORT_LLMNR 5355

#define HEAD_MOST 4096

#define NSEC_PER_SEC 1000000000u

#ifdef SKUA_PACKETS
/* What a CPU has sent of this second. */
struct head_budget {
	__u64 second;
	__u64 sent;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct head_budget);
} head_budgets SEC(".maps");

#ifndef SKUA_TABLES
/* As many as slots, or one when there are no heads. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_heads);
} head_slots SEC(".maps");
#endif

static __always_inline bool is_dns(__be16 port)
{
	return port == bpf_htons(PORT_DNS) || port == bpf_htons(PORT_MDNS) ||
	       port == bpf_htons(PORT_LLMNR);
}

static __always_inline bool is_dns_packet(const struct packet *p)
{
	return is_dns(p->key.lo_port) || is_dns(p->key.hi_port);
}

/* What is wanted of the packet's conversation; NULL when that is not known. */
static __always_inline struct flow_heads *heads_of(const struct packet *p)
{
#ifdef SKUA_TABLES
	return NULL;
#else
	const __u32 index = p->place;
	struct flow_heads *heads;

	if (!settings.head_segments)
		return NULL;
	heads = bpf_map_lookup_elem(&head_slots, &index);
	/* An entry that is used again begins anew. */
	if (heads && heads->born != p->born) {
		heads->born = p->born;
		heads->sent[0] = heads->sent[1] = 0;
		heads->dns = is_dns_packet(p);
	}
	return heads;
#endif
}

/* Whether user space wants the packet. */
static __always_inline bool wants_head(const struct packet *p)
{
	const __u8 kind = p->key.kind;
	const __u32 side = p->from_hi & 1;
	struct flow_heads *heads;
	__u32 most = 1, sent;

	if (!settings.head_rate || kind >> KIND_TUNNEL_SHIFT || !(kind & (KIND_IPV4 | KIND_IPV6)))
		return false;
	if (p->is_tcp) {
		/* Segments without data show where the data begins, and where it ends. */
		if (!p->payload && !(p->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)))
			return false;
		most = settings.head_segments;
	} else if (p->key.proto != PROTO_UDP) {
		return false;
	}
	heads = heads_of(p);
	if (!heads)
		return is_dns_packet(p);
	if (heads->dns)
		return true;
	/* Two CPUs may send one packet more. */
	sent = heads->sent[side];
	if (sent >= most)
		return false;
	heads->sent[side] = sent + 1;
	return true;
}

/* Bytes of a head that are sent: datagrams of DNS whole, of others the beginning. */
static __always_inline __u64 head_bytes(const struct packet *p, __u64 bytes)
{
	return bytes > HEAD_MOST && !is_dns_packet(p) ? HEAD_MOST : bytes;
}

/* PACKET_HEAD, or 0 when this CPU has sent enough this second: then it is counted. */
__noinline int take_head(context *ctx)
{
	struct level *l = the_level();
	struct head_budget *budget;
	__u32 zero = 0;
	__u64 second;

	if (!l)
		return 0;
	budget = bpf_map_lookup_elem(&head_budgets, &zero);
	if (!budget)
		return 0;
	second = bpf_ktime_get_ns() / NSEC_PER_SEC;
	if (budget->second != second) {
		budget->second = second;
		budget->sent = 0;
	}
	if (budget->sent < settings.head_rate) {
		budget->sent++;
		return PACKET_HEAD;
	}
	count_cause(point_of(&l->p.key), l->p.direction, NOTE_HEAD_LIMIT, 1, packet_length(ctx));
	return 0;
}
#endif
