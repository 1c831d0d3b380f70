/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The kernel's structs, with only the fields that the programs read. Offsets and sizes here have no
 * meaning, the loader takes those of the running kernel from its BTF (CO-RE). A comment gives the
 * version since which fields are as they are here; without one, since before 5.4, the oldest that
 * Skua supports.
 */
#pragma once
#include <linux/types.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Namespaces. */
struct ns_common {
	unsigned int inum;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct net {
	struct ns_common ns;
	struct hlist_head *dev_index_head;
};

struct nsproxy {
	struct net *net_ns;
};

/* Interfaces. */
typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	unsigned long state;
	unsigned int flags;
	int ifindex;
	struct hlist_node index_hlist;
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
};

/* Sockets. */
struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;	  /* CONFIG_IPV6 */
	struct in6_addr skc_v6_rcv_saddr; /* CONFIG_IPV6 */
	unsigned long skc_flags;
	struct {
		__s64 counter;
	} skc_cookie; /* 0 until a cookie is requested */
};

struct socket;

struct sock {
	struct sock_common __sk_common;
	int sk_err;
	/* Bit fields before 5.6, userlocks before 6.4. */
	__u16 sk_protocol;
	__u8 sk_userlocks;
	__u8 sk_shutdown; /* bit field before 5.6 */
	__u32 sk_ack_backlog;
	__u32 sk_max_ack_backlog;
	struct socket *sk_socket;
};

struct socket {
	struct sock *sk;
};

struct inode {
	unsigned long i_ino;
};

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

struct msghdr {
	void *msg_name;
	int msg_namelen;
};

struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
};

struct minmax_sample {
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 mss_cache;
	__u32 snd_cwnd;
	__u32 lost_out;
	struct minmax rtt_min;
	__u32 segs_out;
	__u64 bytes_sent; /* 4.19 */
	__u32 write_seq;
	__u32 mdev_us;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 srtt_us;
	__u64 bytes_received;
	__u32 segs_in;
	__u32 data_segs_in;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u64 bytes_acked;
	__u64 bytes_retrans; /* 4.19 */
	__u32 total_retrans;
};

/* Files. */
struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct path f_path;
};

/* Control groups. */
struct kernfs_node {
	__u64 id; /* 5.5; before: union kernfs_node_id */
};

/* Before 5.5; the inode's number are the lower 32 bits. */
union kernfs_node_id {
	__u64 id;
};

struct kernfs_node___old {
	union kernfs_node_id id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[1];
	struct cgroup_root *root;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

/* Tasks. */
typedef struct {
	__u32 val;
} kuid_t;

struct cred {
	kuid_t euid;
};

struct mm_struct {
	struct file *exe_file;
};

struct task_struct {
	unsigned int flags;
	int tgid;
	struct mm_struct *mm;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	unsigned int in_execve : 1;
	__u64 start_boottime; /* 5.5; before: real_start_time */
	const struct cred *cred;
	char comm[16];
	struct nsproxy *nsproxy;
	struct css_set *cgroups;
};

struct task_struct___old {
	__u64 real_start_time; /* before 5.5, what start_boottime is since */
};

/* Iterators, 5.8. */
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
};

struct bpf_iter__bpf_sk_storage_map { /* 5.9 */
	struct bpf_iter_meta *meta;
	struct sock *sk;
	void *value;
};

#pragma clang attribute pop

/* Their values differ with the configuration. */
enum cgroup_subsys_id {
	memory_cgrp_id = 4,
	pids_cgrp_id = 11,
};

/* include/net/tcp_states.h */
enum tcp_state {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT,
	TCP_SYN_RECV,
	TCP_FIN_WAIT1,
	TCP_FIN_WAIT2,
	TCP_TIME_WAIT,
	TCP_CLOSE,
	TCP_CLOSE_WAIT,
	TCP_LAST_ACK,
	TCP_LISTEN,
	TCP_CLOSING,
};

#define AF_INET	 2
#define AF_INET6 10

#define SOCK_DEAD 0 /* bits of sk_flags, include/net/sock.h */
#define SOCK_DONE 1 /* set by the other side's FIN, and only by that */

#define SEND_RCV_SHUTDOWN  3	      /* of sk_shutdown */
#define SOCK_BINDPORT_LOCK 8	      /* of sk_userlocks: bound to a port on purpose */
#define PF_KTHREAD	   0x00200000 /* of task_struct.flags */
