// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Finds where the kernel keeps the state of an interface, so that steer.bpf.c can check that it is
 * up before it sends a packet. It is not attached: user space runs it by a test run, in the
 * interface's namespace.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "kernel.h"
#include "steer.h"

/* Lists of interfaces by index (include/linux/netdevice.h), and how long one is at most. */
#define NETDEV_HASHENTRIES 256
#define MOST		   256
/* The driver's data follows the struct, at a multiple of this. */
#define NETDEV_ALIGN 32

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_device);
} found SEC(".maps");

static __always_inline struct net_device *device(__u32 ifindex)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct hlist_head *lists = BPF_CORE_READ(task, nsproxy, net_ns, dev_index_head);
	struct hlist_node *node;

	node = BPF_CORE_READ(&lists[ifindex % NETDEV_HASHENTRIES], first);
	for (int i = 0; i < MOST && node; i++) {
		struct net_device *dev =
			(void *)node - bpf_core_field_offset(struct net_device, index_hlist);

		if (BPF_CORE_READ(dev, ifindex) == ifindex)
			return dev;
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

/* What a veth keeps first: its other end. */
static __always_inline struct net_device *other_end(struct net_device *dev)
{
	__u64 size = bpf_core_type_size(struct net_device);
	struct net_device *other = 0;

	size = (size + NETDEV_ALIGN - 1) / NETDEV_ALIGN * NETDEV_ALIGN;
	bpf_probe_read_kernel(&other, sizeof(other), (void *)dev + size);
	return other;
}

SEC("tc")
int find(struct __sk_buff *skb)
{
	__u64 flags = bpf_core_field_offset(struct net_device, flags);
	__u32 zero = 0;
	struct steer_device *answer = bpf_map_lookup_elem(&found, &zero);
	struct net_device *near, *far;

	if (!answer)
		return 0;
	near = device(answer->ifindex);
	if (!near)
		return 0;
	answer->flags[0] = (__u64)near + flags;
	answer->state = (__u64)near + bpf_core_field_offset(struct net_device, state);
	if (!answer->veth)
		return 1;
	far = other_end(near);
	/* Both must refer to each other, or this is not a pair of veths. */
	if (far && far != near && other_end(far) == near)
		answer->flags[1] = (__u64)far + flags;
	return 1;
}
