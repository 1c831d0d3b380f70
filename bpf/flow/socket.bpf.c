// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Flow table in the filter of a packet socket, where tc is not available. It sees both directions;
 * the verdict 0 means that the kernel copies nothing to the socket. Only helpers can read packets.
 */
#include "observe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define COPY_NOTHING	0
#define PACKET_OUTGOING 4

static __always_inline __u8 way(const struct __sk_buff *skb)
{
	return skb->pkt_type == PACKET_OUTGOING ? DIR_EGRESS : DIR_INGRESS;
}

/* A packet socket sees what loopback sends when it is sent and when it arrives. */
static __always_inline bool seen_twice(const struct __sk_buff *skb)
{
	return skb->pkt_type == PACKET_OUTGOING && skb->ifindex == LOOPBACK_IFINDEX;
}

#define FLOW_PROGRAMS(link_name, ethernet)                                                         \
	SEC("socket")                                                                              \
	int flow_socket_##link_name(struct __sk_buff *skb)                                         \
	{                                                                                          \
		if (!seen_twice(skb))                                                              \
			observe(skb, ethernet, way(skb));                                          \
		return COPY_NOTHING;                                                               \
	}                                                                                          \
	/* Packets that do not match the filter come here. */                                      \
	SEC("socket")                                                                              \
	int left_socket_##link_name(struct __sk_buff *skb)                                         \
	{                                                                                          \
		if (!seen_twice(skb))                                                              \
			leave_out(skb, ethernet, way(skb), CAUSE_FILTERED);                        \
		return COPY_NOTHING;                                                               \
	}

FLOW_PROGRAMS(ethernet, true)
FLOW_PROGRAMS(ip, false)
