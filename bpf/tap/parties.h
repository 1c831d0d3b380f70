/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which packets are copied: by sets of addresses, of which any may match, and by sockets. */
#pragma once
#include "parse.h"
#include "sockets.h"
#include "tap.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} hosts4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(key_size, 16);
	__uint(value_size, 4);
} hosts6 SEC(".maps");

/*
 * A bit for each address of hosts4 and hosts6, by a hash of it: where the bit is not set the
 * address is in neither, which is cheaper than a lookup there. The kernel inlines lookups in
 * arrays.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_bits);
} host_bits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct prefix4);
	__type(value, __u32);
} prefixes4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct prefix6);
	__type(value, __u32);
} prefixes6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(key_size, 6);
	__uint(value_size, 4);
} macs SEC(".maps");

/* The fields of a packet that are compared. IPv4 addresses are in the first word. */
struct ends {
	__u8 macs[12]; /* destination, source */
	__u32 version; /* 4, 6 or 0 */
	__u32 source[4];
	__u32 destination[4];
	__be16 ports[2]; /* source, destination; 0 where there are none */
	__u8 protocol;
};

/* Bytes of a packet in which headers can be read directly. */
#define HEADERS 256

/* Bytes at an offset, directly from the packet if they are in its linear part. */
static __always_inline bool read_at(struct __sk_buff *skb, __u32 offset, void *to, __u32 length)
{
	void *at;

	/* Prevents the compiler from separating the number from its checked copy. */
	asm volatile("" : "+r"(offset));
	if (offset <= HEADERS) {
		at = (void *)(long)skb->data + offset;
		if (at + length <= (void *)(long)skb->data_end) {
			__builtin_memcpy(to, at, length);
			return true;
		}
	}
	return bpf_skb_load_bytes(skb, offset, to, length) == 0;
}

static __always_inline bool has_ports(__u8 protocol)
{
	return protocol == PROTO_TCP || protocol == PROTO_UDP || protocol == PROTO_UDP_LITE ||
	       protocol == PROTO_SCTP;
}

/* Offset of the IP header, after tags in the packet. */
static __always_inline __u32 find_ip(struct __sk_buff *skb, struct ends *e, bool ethernet)
{
	__u32 offset = 12;
	__be16 type = 0;
	int i;

	if (!ethernet) {
		__u8 first;

		if (!read_at(skb, 0, &first, 1))
			return 0;
		e->version = first >> 4;
		return 0;
	}
	if ((settings.flags & (TAP_MACS | TAP_BALANCE)) && !read_at(skb, 0, e->macs, 12))
		return 0;
	if (!read_at(skb, 12, &type, 2))
		return 0;
	for (i = 0; i < VLAN_TAGS && is_vlan(type); i++) {
		offset += 4;
		if (!read_at(skb, offset, &type, 2))
			return 0;
	}
	if (type == bpf_htons(ETHERTYPE_IPV4))
		e->version = 4;
	else if (type == bpf_htons(ETHERTYPE_IPV6))
		e->version = 6;
	return offset + 2;
}

/* Reads the addresses; `transport`: also the ports. Fragments have none, not even the first. */
static __always_inline void read_ends(struct __sk_buff *skb, struct ends *e, bool ethernet,
				      bool transport)
{
	__u32 offset = find_ip(skb, e, ethernet);

	if (e->version == 4) {
		struct ipv4_header ip;

		if (!read_at(skb, offset, &ip, sizeof(ip))) {
			e->version = 0;
			return;
		}
		e->source[0] = ip.src;
		e->destination[0] = ip.dst;
		e->protocol = ip.proto;
		if (transport && has_ports(ip.proto) && !(ip.fragment & bpf_htons(IPV4_FRAGMENTED)))
			read_at(skb, offset + (ip.version_length & 15) * 4, e->ports, 4);
	} else if (e->version == 6) {
		struct cursor at = {};
		struct ipv6_header ip;
		int i;

		if (!read_at(skb, offset, &ip, sizeof(ip))) {
			e->version = 0;
			return;
		}
		__builtin_memcpy(e->source, ip.src, 16);
		__builtin_memcpy(e->destination, ip.dst, 16);
		at.offset = offset + sizeof(ip);
		at.next = ip.next;
		for (i = 0; transport && i < EXTENSIONS && is_extension(at.next); i++) {
			__u8 header[8];

			if (!read_at(skb, at.offset, header, sizeof(header)))
				break;
			step_over(&at, header);
			if (at.fragment & IPV6_FRAGMENTED)
				break;
		}
		e->protocol = at.next;
		if (transport && has_ports(at.next) && !(at.fragment & IPV6_FRAGMENTED))
			read_at(skb, at.offset, e->ports, 4);
	} else {
		e->version = 0;
	}
}

static __always_inline bool has_role(const __u32 *roles, __u32 role)
{
	return roles && (*roles & role);
}

/* False: no set of hosts has it. */
static __always_inline bool may_be_host(const __u32 *address, int words)
{
	const struct host_bits *bits;
	__u32 zero = 0, hash = 0;
	int i;

	for (i = 0; i < words; i++)
		hash = (hash ^ address[i]) * HOST_FACTOR;
	hash >>= 32 - HOST_BITS;
	bits = bpf_map_lookup_elem(&host_bits, &zero);
	return bits && bits->words[hash / 64] & 1ULL << hash % 64;
}

static __always_inline bool side_matches(const struct ends *e, const __u32 *address,
					 const __u8 *mac, __u32 role)
{
	if (settings.flags & TAP_MACS) {
		if (has_role(bpf_map_lookup_elem(&macs, mac), role))
			return true;
	}
	if (e->version == 4) {
		if ((settings.flags & TAP_HOSTS4) && may_be_host(address, 1)) {
			__u32 key = address[0];

			if (has_role(bpf_map_lookup_elem(&hosts4, &key), role))
				return true;
		}
		if (settings.flags & TAP_PREFIXES4) {
			struct prefix4 key = {.length = 32};

			__builtin_memcpy(key.address, address, 4);
			if (has_role(bpf_map_lookup_elem(&prefixes4, &key), role))
				return true;
		}
	} else if (e->version == 6) {
		if ((settings.flags & TAP_HOSTS6) && may_be_host(address, 4)) {
			__u32 key[4];

			__builtin_memcpy(key, address, 16);
			if (has_role(bpf_map_lookup_elem(&hosts6, key), role))
				return true;
		}
		if (settings.flags & TAP_PREFIXES6) {
			struct prefix6 key = {.length = 128};

			__builtin_memcpy(key.address, address, 16);
			if (has_role(bpf_map_lookup_elem(&prefixes6, &key), role))
				return true;
		}
	}
	return false;
}

/* Whether a set has one of the packet's two addresses. */
static __always_inline bool parties_match(const struct ends *e)
{
	return side_matches(e, e->source, e->macs + 6, ROLE_SOURCE) ||
	       side_matches(e, e->destination, e->macs, ROLE_DESTINATION);
}

static __always_inline void put_mapped(__u8 *to, const struct ends *e, const __u32 *address)
{
	__u32 *words = (__u32 *)to;

	if (e->version == 4) {
		words[2] = bpf_htonl(0xffff);
		words[3] = address[0];
	} else {
		__builtin_memcpy(to, address, 16);
	}
}

/* Whether this side is the local end of a selected socket. Packets without ports have none. */
static __always_inline bool socket_at(const struct ends *e, int side)
{
	const __u32 *local = side ? e->destination : e->source;
	const __u32 *remote = side ? e->source : e->destination;
	struct tap_socket key = {
		.local_port = e->ports[side],
		.remote_port = e->ports[!side],
		.protocol = e->protocol,
	};
	__u32 port = e->ports[side];

	if (!bpf_map_lookup_elem(&ports, &port))
		return false;
	put_mapped(key.local, e, local);
	put_mapped(key.remote, e, remote);
	if (bpf_map_lookup_elem(&sockets, &key))
		return true;
	__builtin_memset(key.remote, 0, sizeof(key.remote));
	key.remote_port = 0;
	return bpf_map_lookup_elem(&sockets, &key);
}

/* Whether one of the packet's two ends is a selected socket. */
static __always_inline bool sockets_match(const struct ends *e)
{
	return e->version && (socket_at(e, 0) || socket_at(e, 1));
}

/* A hash that is the same for both directions of a conversation. */
static __always_inline __u32 flow_hash_of(const struct ends *e)
{
	__u64 sum = e->protocol;
	int i;

	for (i = 0; i < 4; i++)
		sum = sum * 31 + (e->source[i] ^ e->destination[i]);
	sum ^= (__u64)(e->ports[0] ^ e->ports[1]) << 32;
	sum += (__u64)(e->source[0] + e->destination[0] + e->source[3] + e->destination[3]) << 13;
	if (!e->version)
		for (i = 0; i < 6; i++)
			sum = sum * 31 + (e->macs[i] ^ e->macs[6 + i]);
	/* The finalizer of splitmix64. */
	sum = (sum ^ (sum >> 30)) * 0xbf58476d1ce4e5b9ULL;
	sum = (sum ^ (sum >> 27)) * 0x94d049bb133111ebULL;
	return sum >> 33;
}
