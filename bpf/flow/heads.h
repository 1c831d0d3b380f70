/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Heads: the few packets from which user space reads what is said in conversations. Only in the
 * objects with SKUA_PACKETS, through whose ring they go, and only with settings.head_rate: else
 * the verifier removes all of it.
 *
 * Wanted are datagrams of DNS and its dialects, and segments of TCP on their ports. Inside tunnels
 * nothing is wanted: what they carry is seen at the interfaces where it comes from or goes to.
 */
#pragma once
#include "decode.h"

#define PORT_DNS   53
#define PORT_MDNS  5353
#define PORT_LLMNR 5355

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

static __always_inline bool is_dns(__be16 port)
{
	return port == bpf_htons(PORT_DNS) || port == bpf_htons(PORT_MDNS) ||
	       port == bpf_htons(PORT_LLMNR);
}

/* Whether user space wants the packet: two comparisons for most. */
static __always_inline bool wants_head(const struct packet *p)
{
	const __u8 kind = p->key.kind;

	if (!settings.head_rate || !(is_dns(p->key.lo_port) || is_dns(p->key.hi_port)))
		return false;
	if (kind >> KIND_TUNNEL_SHIFT || !(kind & (KIND_IPV4 | KIND_IPV6)))
		return false;
	if (p->key.proto == PROTO_UDP)
		return true;
	/* Segments without data show nothing but where the data begins. */
	return p->is_tcp && (p->payload || p->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST));
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
	second = now_coarse() / NSEC_PER_SEC;
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
