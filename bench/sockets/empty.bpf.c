// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the socket programs are compared with: programs at the same hooks that do nothing.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define EMPTY(section, name, result)                                                               \
	SEC(section)                                                                               \
	int name(void *context)                                                                    \
	{                                                                                          \
		return result;                                                                     \
	}

EMPTY("tp_btf/inet_sock_set_state", socket_state, 0)
EMPTY("tp_btf/tcp_destroy_sock", socket_destroyed, 0)
EMPTY("tp_btf/tcp_send_reset", socket_reset, 0)
EMPTY("cgroup/connect4", socket_connect4, 1)
EMPTY("cgroup/connect6", socket_connect6, 1)
EMPTY("cgroup/sendmsg4", socket_sendmsg4, 1)
EMPTY("cgroup/sendmsg6", socket_sendmsg6, 1)
EMPTY("cgroup/sock_release", socket_release, 1)
EMPTY("cgroup/getpeername4", socket_getpeername4, 1)
EMPTY("cgroup/getpeername6", socket_getpeername6, 1)

char _license[] SEC("license") = "Dual BSD/GPL";
