/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Recognizes our own traffic by its sockets, not by ports: settings.exclude_self. */
#pragma once
#include "decode.h"

#ifdef SKUA_KNOWS_SOCKETS
enum own {
	OWN_NO,
	OWN_YES,
	OWN_UNKNOWN, /* there is no full socket */
};

static __always_inline __u32 is_marked(struct bpf_sock *sk)
{
	return bpf_sk_storage_get(&own_sockets, sk, NULL, 0) ? OWN_YES : OWN_NO;
}

/* Checks the socket that receives packets from `remote` to `local`. */
static __always_inline __u32 ask_receiver(struct __sk_buff *skb, const struct flow_key *k,
					  bool local_is_hi)
{
	const __u8 *local = local_is_hi ? k->hi : k->lo, *remote = local_is_hi ? k->lo : k->hi;
	const __be16 local_port = local_is_hi ? k->hi_port : k->lo_port;
	const __be16 remote_port = local_is_hi ? k->lo_port : k->hi_port;
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *common, *full;
	__u32 own = OWN_UNKNOWN, size;

	if ((k->kind & KIND_NETWORK) == KIND_IPV4) {
		__builtin_memcpy(&tuple.ipv4.saddr, remote + 12, 4);
		__builtin_memcpy(&tuple.ipv4.daddr, local + 12, 4);
		tuple.ipv4.sport = remote_port;
		tuple.ipv4.dport = local_port;
		size = sizeof(tuple.ipv4);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, remote, 16);
		__builtin_memcpy(tuple.ipv6.daddr, local, 16);
		tuple.ipv6.sport = remote_port;
		tuple.ipv6.dport = local_port;
		size = sizeof(tuple.ipv6);
	}
	if (k->proto == PROTO_TCP) {
		common = size == sizeof(tuple.ipv4)
				 ? bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4),
						      BPF_F_CURRENT_NETNS, 0)
				 : bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6),
						      BPF_F_CURRENT_NETNS, 0);
		if (!common)
			return OWN_UNKNOWN;
		full = bpf_sk_fullsock(common);
		/* A connection that is being opened belongs to its listener. */
		if (!full)
			full = bpf_get_listener_sock(common);
		if (full)
			own = is_marked(full);
		bpf_sk_release(common);
		return own;
	}
	full = size == sizeof(tuple.ipv4)
		       ? bpf_sk_lookup_udp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0)
		       : bpf_sk_lookup_udp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	if (!full)
		return OWN_UNKNOWN;
	own = is_marked(full);
	bpf_sk_release(full);
	return own;
}

/* Checks the socket that sent the packet. */
static __always_inline __u32 ask_sender(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk, *full;

	if (!sk)
		return OWN_UNKNOWN;
	full = bpf_sk_fullsock(sk);
	if (!full)
		full = bpf_get_listener_sock(sk);
	return full ? is_marked(full) : OWN_UNKNOWN;
}

/* Whether the outer level of the packet is of one of our sockets. */
__noinline int is_own(struct __sk_buff *skb)
{
	struct level *l = the_level();
	struct own_key key = {};
	struct flow_key *k;
	__u32 own, yes = 1;
	bool to_hi;

	if (!l)
		return 0;
	k = &l->p.key;
	if ((k->proto != PROTO_TCP && k->proto != PROTO_UDP) || !(k->kind & KIND_NETWORK) ||
	    !(k->lo_port | k->hi_port))
		return 0;
	to_hi = !l->p.from_hi;
	if (l->p.direction == DIR_EGRESS) {
		own = ask_sender(skb);
		if (own == OWN_UNKNOWN)
			own = ask_receiver(skb, k, !to_hi);
	} else {
		own = ask_receiver(skb, k, to_hi);
		/* On loopback both ends are here; it is not ours only if neither end is. */
		if (own != OWN_YES && k->ifindex == LOOPBACK_IFINDEX) {
			const __u32 other = ask_receiver(skb, k, !to_hi);

			if (other != OWN_NO)
				own = other;
		}
	}
	__builtin_memcpy(key.lo, k->lo, 16);
	__builtin_memcpy(key.hi, k->hi, 16);
	key.lo_port = k->lo_port;
	key.hi_port = k->hi_port;
	key.netns = k->netns;
	key.proto = k->proto;
	if (own == OWN_YES)
		bpf_map_update_elem(&own_conversations, &key, &yes, BPF_ANY);
	else if (own == OWN_UNKNOWN && bpf_map_lookup_elem(&own_conversations, &key))
		own = OWN_YES;
	return own == OWN_YES;
}
#else
#define is_own(ctx) 0
#endif
