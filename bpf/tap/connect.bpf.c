// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Before the SYN of a connection is sent, in the system call of the process that connects: a
 * selected process's socket is added to the tap, so that not even the SYN is missed. User space
 * corrects missing and wrong sockets with its next poll.
 */
#define SKUA_DIRECT_TASK
#include "../socket/task.h"
#include "sockets.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define GO_ON 1

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct tap_task);
	__type(value, __u32);
} tasks SEC(".maps");

/* One load for each field: the verifier must know which field is read. */
static __always_inline __u32 taken(__u32 word)
{
	asm volatile("" : "+r"(word));
	return word;
}

static __always_inline bool is_wanted(struct task_struct *task)
{
	struct tap_task key = {.kind = TASK_PROCESS};

	key.number = task->tgid;
	if (bpf_map_lookup_elem(&tasks, &key))
		return true;
	key.kind = TASK_GROUP;
	key.number = read_cgroup(task);
	if (bpf_map_lookup_elem(&tasks, &key))
		return true;
	key.kind = TASK_NAME;
	key.number = 0;
	/* As a string: the bytes after the NUL may be of a longer name before. */
	bpf_core_read_str(key.name, sizeof(key.name), &task->group_leader->comm);
	return bpf_map_lookup_elem(&tasks, &key);
}

SEC("sockops")
int tap_connect(struct bpf_sock_ops *context)
{
	struct tap_socket key = {.protocol = TCP_PROTOCOL};
	struct task_struct *task;
	__u32 *local = (__u32 *)key.local, *remote = (__u32 *)key.remote;
	__u32 port;
	__u64 now;

	if (context->op != BPF_SOCK_OPS_TCP_CONNECT_CB)
		return GO_ON;
	task = bpf_get_current_task_btf();
	if (task->flags & PF_KTHREAD || !is_wanted(task))
		return GO_ON;
	if (context->family == AF_INET6) {
		local[0] = taken(context->local_ip6[0]);
		local[1] = taken(context->local_ip6[1]);
		local[2] = taken(context->local_ip6[2]);
		local[3] = taken(context->local_ip6[3]);
		remote[0] = taken(context->remote_ip6[0]);
		remote[1] = taken(context->remote_ip6[1]);
		remote[2] = taken(context->remote_ip6[2]);
		remote[3] = taken(context->remote_ip6[3]);
	} else {
		put_ipv4(key.local, taken(context->local_ip4));
		put_ipv4(key.remote, taken(context->remote_ip4));
	}
	/* The one is in host order, the other stands in the upper half in network order. */
	key.local_port = bpf_htons(context->local_port);
	key.remote_port = bpf_htons(bpf_ntohl(context->remote_port));
	port = key.local_port;
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&ports, &port, &now, BPF_ANY);
	bpf_map_update_elem(&sockets, &key, &now, BPF_ANY);
	return GO_ON;
}
