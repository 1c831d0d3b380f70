/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Reading the kernel's structs. Where the verifier knows the types (tp_btf, fexit, iterators) a
 * read is one load that cannot fault; elsewhere it is a call.
 */
#pragma once
#include "base.h"

#ifdef SKUA_DIRECT
#define READ(pointer, field) ((pointer)->field)
#define READ_BYTES(to, pointer, field)                                                             \
	bpf_probe_read_kernel(to, sizeof((pointer)->field), &(pointer)->field)
#else
#define READ(pointer, field) BPF_CORE_READ(pointer, field)
#define READ_BYTES(to, pointer, field)                                                             \
	bpf_core_read(to, sizeof((pointer)->field), &(pointer)->field)
#endif

/* For fields that are bit fields on some kernels. */
#ifdef SKUA_DIRECT
#define READ_BITS(pointer, field) ((pointer)->field)
#else
#define READ_BITS(pointer, field) BPF_CORE_READ_BITFIELD_PROBED(pointer, field)
#endif

/*
 * Like READ, for data of the running task. Programs for which the verifier does not know the
 * socket's type may still know the task's (5.15): SKUA_DIRECT_TASK.
 */
#if defined(SKUA_DIRECT) || defined(SKUA_DIRECT_TASK)
#define READ_TASK(pointer, field) ((pointer)->field)
#define CURRENT_TASK()		  bpf_get_current_task_btf()
#else
#define READ_TASK(pointer, field) BPF_CORE_READ(pointer, field)
#define CURRENT_TASK()		  ((struct task_struct *)bpf_get_current_task())
#endif

#define UDP_PROTOCOL 17
#define TCP_PROTOCOL 6

/* An IPv4 address in IPv6's form. */
static __always_inline void put_ipv4(__u8 to[16], __be32 address)
{
	__u32 *words = (__u32 *)to;

	words[0] = 0;
	words[1] = 0;
	words[2] = bpf_htonl(0xffff);
	words[3] = address;
}

/*
 * Both addresses and the remote port. The local port is read elsewhere: skc_num is 0 at close,
 * inet_sport while a TCP socket is not bound yet.
 */
static __always_inline __u16 read_endpoints(struct sock *sk, __u8 *local, __u8 *remote)
{
	struct sock_common *common = &sk->__sk_common;

	if (READ(common, skc_family) == AF_INET6 && bpf_core_field_exists(common->skc_v6_daddr)) {
		READ_BYTES(local, common, skc_v6_rcv_saddr);
		READ_BYTES(remote, common, skc_v6_daddr);
	} else {
		put_ipv4(local, READ(common, skc_rcv_saddr));
		put_ipv4(remote, READ(common, skc_daddr));
	}
	return bpf_ntohs(READ(common, skc_dport));
}

static __always_inline __u32 read_netns(struct sock *sk)
{
	struct net *net = READ(sk, __sk_common.skc_net.net);

	return READ(net, ns.inum);
}
