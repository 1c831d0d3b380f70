// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Which tick it is. It is not attached: user space (ticks.rs) runs it by a test run, and finds the
 * answer at the beginning of the packet.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int ticks(struct __sk_buff *skb)
{
	const __u64 now = bpf_jiffies64();

	bpf_skb_store_bytes(skb, 0, &now, sizeof(now), 0);
	return 0;
}
