// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Live-frames generator: injects packets of `flows` flows "as if received" (XDP_PASS).
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

volatile __u32 flows;

SEC("xdp")
int feed(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	// Not a walk with a fixed step: the entries of a BPF_MAP_TYPE_HASH lie in memory in the order of
	// their insertion, and a walk in that order again has them prefetched.
	__u32 flow = ((__u64)bpf_get_prandom_u32() * flows) >> 32;

	if ((void *)(udp + 1) > end)
		return XDP_ABORTED;
	ip->saddr = bpf_htonl(0x0b000000 + flow);
	udp->source = bpf_htons(1024 + (flow & 0xff));
	return XDP_PASS;
}

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
