/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Sockets whose packets are selected; crates/capture/kernel/src/bindings/tap.rs is made of it, too.
 */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* IPv4 addresses are mapped ones. `remote` of listening sockets is all 0. */
struct tap_socket {
	__u8 local[16];
	__u8 remote[16];
	__be16 local_port;
	__be16 remote_port;
	__u8 protocol;
	__u8 pad[3];
};

/* How a process is selected whose next connections are tapped. */
enum tap_task_kind {
	TASK_PROCESS, /* its number */
	TASK_NAME,    /* its name, NUL padded */
	TASK_GROUP,   /* its control group, as in socket_task.cgroup */
};

struct tap_task {
	__u64 kind;
	union {
		__u64 number;
		char name[16];
	};
};

/* Values are times (CLOCK_MONOTONIC, ns): when the socket was put here or seen last. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct tap_socket);
	__type(value, __u64);
} sockets SEC(".maps");

/*
 * Local ports of those sockets, network order: nearly every packet of other sockets has neither
 * port here. A port is added before its socket. Values as above.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} ports SEC(".maps");

_Static_assert(sizeof(struct tap_socket) == 40, "shared with user space");
_Static_assert(sizeof(struct tap_task) == 24, "shared with user space");
