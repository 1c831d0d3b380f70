// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Flow table at tc: tcx (6.6) or a clsact classifier (4.5), before the queueing discipline on
 * egress, after the VLAN tag was stripped on ingress. Verdict: go on as if we were not there.
 */
#define SKUA_LINEAR
#include "observe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define GO_ON -1 /* TCX_NEXT, and TC_ACT_UNSPEC for clsact */

#define FLOW_PROGRAMS(direction_name, direction, link_name, ethernet)                              \
	SEC("tc")                                                                                  \
	int flow_##direction_name##_##link_name(struct __sk_buff *skb)                             \
	{                                                                                          \
		observe(skb, ethernet, direction);                                                 \
		return GO_ON;                                                                      \
	}                                                                                          \
	/* Packets that do not match the filter come here. */                                      \
	SEC("tc")                                                                                  \
	int left_##direction_name##_##link_name(struct __sk_buff *skb)                             \
	{                                                                                          \
		leave_out(skb, ethernet, direction, CAUSE_FILTERED);                               \
		return GO_ON;                                                                      \
	}

FLOW_PROGRAMS(ingress, DIR_INGRESS, ethernet, true)
FLOW_PROGRAMS(egress, DIR_EGRESS, ethernet, true)
FLOW_PROGRAMS(ingress, DIR_INGRESS, ip, false)
FLOW_PROGRAMS(egress, DIR_EGRESS, ip, false)
