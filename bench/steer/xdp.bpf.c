// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The steering program at XDP, for comparison. Only MAC addresses are rewritten.
#define STEER_XDP
#include "../../bpf/steer/packet.h"

static __always_inline int replace_macs(steer_context *ctx, const __u8 *macs)
{
	void *frame = header(ctx, 0, MACS);

	if (!frame)
		return -1;
	__builtin_memcpy(frame, macs, MACS);
	return 0;
}

static __always_inline int replace_address(steer_context *ctx, const struct steer_place *at)
{
	return -1;
}

static __always_inline int replace_port(steer_context *ctx, const struct steer_place *at)
{
	return -1;
}

#include "../../bpf/steer/detect.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	return steer_packet(ctx);
}
