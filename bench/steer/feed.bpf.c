// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Packets for the benchmark, written anew each time, for frames come round again as they were left;
// sinks that count and drop; and programs that do nothing, to compare with.
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "steer.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct generator);
} generators SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} sunk SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

/* A program at XDP that packets are given to, when there is one. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} behind SEC(".maps");

SEC("xdp")
int feed(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct generator *g = bpf_map_lookup_elem(&generators, &zero);
	__u32 *turn = bpf_map_lookup_elem(&next, &zero);
	__u8 *data = (void *)(long)ctx->data;

	if (!g || !turn || (void *)(data + FRAME) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	__builtin_memcpy(data, g->frame, FRAME);
	data[PAYLOAD + 1] = (*turn)++ % CHANNELS;
	if (g->out)
		return bpf_redirect(g->out, 0);
	bpf_tail_call(ctx, &behind, 0);
	return XDP_PASS;
}

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} to_sockets SEC(".maps");

SEC("xdp")
int to_user(struct xdp_md *ctx)
{
	return bpf_redirect_map(&to_sockets, ctx->rx_queue_index, XDP_PASS);
}

SEC("xdp")
int discard_xdp(struct xdp_md *ctx)
{
	return XDP_DROP;
}

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

static __always_inline int sink(__u32 which)
{
	__u64 *count = bpf_map_lookup_elem(&sunk, &which);

	if (count)
		++*count;
	return 2; /* TC_ACT_SHOT */
}

SEC("tc")
int sink_a(struct __sk_buff *skb)
{
	return sink(0);
}

SEC("tc")
int sink_b(struct __sk_buff *skb)
{
	return sink(1);
}

SEC("tc")
int empty(struct __sk_buff *skb)
{
	return -1;
}

SEC("tc")
int discard(struct __sk_buff *skb)
{
	return 2;
}

char _license[] SEC("license") = "Dual BSD/GPL";
