// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What every program is compared with: one that only lets the packet pass.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("tcx/ingress")
int empty(struct __sk_buff *skb)
{
	return -1; // TCX_NEXT
}

char _license[] SEC("license") = "Dual BSD/GPL";
