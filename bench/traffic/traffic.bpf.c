// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The packets of the generator: both programs give the frame that they are run on the source
// endpoint of the next flow. `feed` (XDP) then sends it, `vary` (tc) hands it to the program
// under test.
#include "traffic.h"
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct order);
} orders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct position);
} positions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} subject SEC(".maps");

static __always_inline __u32 next_flow(const struct order *order, struct position *position)
{
	__u32 flow;

	if (!order->step)
		return order->first + (((__u64)bpf_get_prandom_u32() * order->flows) >> 32);
	flow = position->flow;
	position->flow += order->step;
	if (order->flows && position->flow >= order->flows)
		position->flow -= order->flows;
	return order->first + flow;
}

// Frames come round again with whatever was changed further on: MAC addresses are written each
// time, too, as a redirect into a tunnel or a bridge may have changed them.
static __always_inline int write_flow(void *data, void *end, const struct order *order,
				      struct position *position)
{
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__u32 flow, sum = 0;

	if ((void *)(udp + 1) > end)
		return -1;
	flow = next_flow(order, position);
	eth->h_dest[0] = eth->h_source[0] = 2;
	eth->h_dest[5] = 0x99;
	eth->h_source[5] = 1;
	ip->saddr = bpf_htonl(FLOW_ADDRESS(flow));
	udp->source = bpf_htons(FLOW_PORT(flow));
	ip->check = 0;
	for (int i = 0; i < 10; i++)
		sum += ((__u16 *)ip)[i];
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~(sum + (sum >> 16));
	return 0;
}

SEC("xdp")
int feed(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct order *order = bpf_map_lookup_elem(&orders, &zero);
	struct position *position = bpf_map_lookup_elem(&positions, &zero);

	if (!order || !position ||
	    write_flow((void *)(long)ctx->data, (void *)(long)ctx->data_end, order, position))
		return XDP_ABORTED;
	if (order->verdict == XDP_REDIRECT)
		return bpf_redirect_map(&out, 0, 0);
	return order->verdict;
}

SEC("tc")
int vary(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct order *order = bpf_map_lookup_elem(&orders, &zero);
	struct position *position = bpf_map_lookup_elem(&positions, &zero);

	if (!order || !position ||
	    write_flow((void *)(long)skb->data, (void *)(long)skb->data_end, order, position))
		return -1;
	bpf_tail_call(skb, &subject, 0);
	return -1;
}

// Gives an interface the receive queues that test runs on its behalf ask for.
SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
