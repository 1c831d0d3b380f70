/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the socket programs share with user space; crates/capture/kernel/src/bindings/socket.rs is
 * made of it (tests/bindings.rs). Rules: docs/sockets.md. Times are ns of
 * CLOCK_MONOTONIC if nothing else is said; addresses are IPv6 ones, IPv4 as ::ffff:a.b.c.d; ports
 * are in host order.
 */
#pragma once
#include <linux/types.h>

/* Both hierarchies number their groups alike: this bit of an id marks version 1's. */
#define CGROUP_V1 (1ULL << 63)

struct socket_task {
	__u32 pid;
	__u32 uid;
	__u64 start_ns; /* CLOCK_BOOTTIME */
	__u64 cgroup;	/* with CGROUP_V1 where it is one of version 1 */
	char comm[16];
	char exe[32];
};

/* How the owner was found, best first; skua_socket::TaskRule. */
enum socket_rule {
	RULE_ACCEPT,
	RULE_CONNECT,
	RULE_FILE,
	RULE_CLOSE,
	RULE_SEND,
	RULE_CREATE,
	RULE_LISTENER,
	RULE_UNKNOWN,
};

enum socket_opener {
	OPENER_UNKNOWN,
	OPENER_LOCAL,
	OPENER_REMOTE,
};

enum socket_end {
	END_NONE, /* open */
	END_CLOSED,
	END_RESET_LOCAL,
	END_RESET_REMOTE,
	END_REFUSED,
	END_TIMED_OUT,
	END_ERROR,
};

/* States beside TCP's. */
#define STATE_UDP_CONNECTED   64
#define STATE_UDP_UNCONNECTED 65

/* struct tcp_sock's numbers, in its units; bytes are payload. */
struct socket_tcp {
	__u64 bytes_sent;
	__u64 bytes_received;
	__u64 bytes_retransmitted;
	__u32 segments_sent;
	__u32 segments_received;
	__u32 retransmits;
	__u32 lost;
	__u32 srtt_eighths;  /* 1/8 us */
	__u32 mdev_quarters; /* 1/4 us */
	__u32 min_rtt_us;
	__u32 cwnd;
	__u32 mss;
	__u32 rate_delivered;	/* segments in … */
	__u32 rate_interval_us; /* … this time */
	__u32 pad;
};

/* A socket in a snapshot or at its end. */
struct socket_record {
	__u64 id;
	__u64 start_ns;
	__u64 established_ns;
	__u64 now_ns;
	struct socket_task task;
	__u8 local[16];
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 netns;
	__u8 protocol;
	__u8 state;
	__u8 rule;
	__u8 opener;
	__u8 end;
	__u8 pad;
	__u16 error; /* errno, with END_ERROR */
	__u32 backlog;
	__u32 backlog_max;
	struct socket_tcp tcp;
};

#define RTT_BUCKETS 24

/* Aggregate mode: what ended connections have in common, … */
struct pair_key {
	__u8 local[16];
	__u8 remote[16];
	__u64 task_start_ns;
	__u32 pid;
	__u32 netns;
	__u16 service_port;
	__u8 protocol;
	__u8 opener;
	__u8 rule;
	__u8 pad[3];
};

/* … and their sums. Smallest ones are kept as the greatest complement: 0 is "none yet". */
struct pair_sums {
	struct socket_task task;
	__u64 connections;
	__u64 failed;
	__u64 reset;
	__u64 duration_ns;
	__u64 bytes_sent;
	__u64 bytes_received;
	__u64 bytes_retransmitted;
	__u64 segments_sent;
	__u64 segments_received;
	__u64 retransmits;
	__u64 rtt_count;
	__u64 rtt_sum_us;
	__u64 rtt_min_us_complement;
	__u64 rtt_max_us;
	__u64 first_ns_complement;
	__u64 last_ns;
	__u32 rtt_histogram[RTT_BUCKETS];
};

/* A control group that was made; its path follows, without NUL. */
struct cgroup_made {
	__u64 id; /* with CGROUP_V1 where it is one of version 1 */
	__u32 length;
	__u32 pad;
};

/* Sockets that did not become a record; skua_socket::SocketLosses. */
enum socket_loss {
	LOSS_RING_FULL,
	LOSS_TABLE_FULL,
	LOSS_PAIRS_FULL,
	STORAGE_REFUSED, /* no loss: the program requests the storage again, see track_make */
	LOSSES,
};

/* The contents of one answer of the kernel's dump. Only the requesting thread runs the program. */
struct look_control {
	__u32 thread; /* that reads a snapshot; 0: none */
	__u32 looked; /* number of records in `looks` */
	__u32 owned;  /* sockets in `owned` */
	__u32 pid;    /* owner of these sockets */
};

struct look {
	struct socket_record record;
	__u64 sk;
	__u64 inode;
};

struct socket_settings {
	__u32 wake_at;	/* bytes in the ring at which user space is woken */
	__u8 aggregate; /* sum up instead of one record per end */
	__u8 pad[3];
};

_Static_assert(sizeof(struct socket_task) == 72, "shared with user space");
_Static_assert(sizeof(struct socket_tcp) == 72, "shared with user space");
_Static_assert(sizeof(struct socket_record) == 232, "shared with user space");
_Static_assert(sizeof(struct pair_key) == 56, "shared with user space");
_Static_assert(sizeof(struct pair_sums) == 296, "shared with user space");
_Static_assert(sizeof(struct cgroup_made) == 16, "shared with user space");
_Static_assert(sizeof(struct socket_settings) == 8, "shared with user space");
