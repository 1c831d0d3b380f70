// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Flow table at XDP, if requested: only received frames, before the kernel makes packets of them.
 * Needs bpf_xdp_load_bytes (5.18).
 */
#define SKUA_XDP
#define SKUA_LINEAR
#include "observe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp")
int flow_xdp_ethernet(struct xdp_md *ctx)
{
	observe(ctx, true, DIR_INGRESS);
	return XDP_PASS;
}

/* Packets that do not match the filter come here. */
SEC("xdp")
int left_xdp_ethernet(struct xdp_md *ctx)
{
	leave_out(ctx, true, DIR_INGRESS, CAUSE_FILTERED);
	return XDP_PASS;
}
