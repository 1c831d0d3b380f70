/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The walk of one packet through the flow program, the same for every hook. */
#pragma once
#include "addresses.h"
#include "own.h"
#include "packets.h"

#define TAG_LENGTH 4

static __always_inline __u64 id48(const struct flow_key *key)
{
	const __u64 id = identify(key).hash & 0xffffffffffffULL;

	return id ? id : 1;
}

/* FlowKey::tunnel_hash. */
static __always_inline __u64 tunnel_hash(const struct level *l)
{
	const __u64 mixed = l->inner_id * 0x9e3779b97f4a7c15ULL & 0xffffffffffffULL;
	struct flow_key key = l->p.key;

	/* The source port spreads flows over links, and differs by direction, as labels do. */
	key.lo_port = key.hi_port = 0;
	return l->inner_tunnel == TUNNEL_MPLS ? id48(&key) : id48(&key) ^ mixed;
}

static __always_inline void start_level(context *ctx, struct level *l, bool ethernet,
					__u8 direction, __u16 netns)
{
	__builtin_memset(l, 0, sizeof(*l));
	l->p.key.ifindex = packet_ifindex(ctx);
	l->p.key.netns = netns;
	l->p.direction = direction;
	l->p.packets = 1;
	l->length = packet_length(ctx);
	l->start = ethernet ? START_ETHERNET : START_IP;
	l->follow = settings.tunnels;
#ifndef SKUA_XDP
	if (ctx->gso_segs > 1 || (!ctx->gso_segs && settings.gso_size && ctx->gso_size)) {
		l->super = 1;
		l->follow = 1;
	}
	if (ethernet && ctx->vlan_present)
		l->stripped = VLAN_PRESENT | (ctx->vlan_tci & VLAN_ID);
#endif
}

/* Turns a level into the one found inside it. `parent` is the identifier of its flow, `hash` that
 * of the tunnel. */
static __always_inline void step_into(struct level *l, __u64 parent, __u64 hash)
{
	const struct packet was = {.packets = l->p.packets, .direction = l->p.direction};
	const __u32 ifindex = l->p.key.ifindex;
	const __u16 netns = l->p.key.netns;
	int i;

	__builtin_memset(&l->p, 0, sizeof(l->p));
	l->p.packets = was.packets;
	l->p.direction = was.direction;
	l->p.tunnel_id = l->inner_id;
	l->p.label = l->inner_label;
	l->p.key.ifindex = ifindex;
	l->p.key.netns = netns;
	l->p.key.kind = l->inner_tunnel << KIND_TUNNEL_SHIFT;
	for (i = 0; i < 6; i++)
		l->p.key.tunnel_hash[i] = hash >> (8 * i);
	l->p.parent = parent;
	l->offset = l->inner;
	l->start = l->inner_start;
	l->inner_tunnel = 0;
	l->inner_label = 0;
	l->stripped = 0;
	l->headers = 0;
	l->ports = 0;
}

/* Differences between the interface's counters and ours, so that sums can be compared. */
static __always_inline void note_size(const struct level *l)
{
	const __u32 tag = l->stripped ? TAG_LENGTH : 0;

	if (tag)
		count_cause(point_of(&l->p.key), l->p.direction, NOTE_TAG_BYTES, 1, tag);
	if (l->super)
		count_cause(point_of(&l->p.key), l->p.direction, NOTE_SEGMENTED, l->p.packets - 1,
			    l->p.bytes - l->length - tag);
}

#ifdef SKUA_LINEAR
static __always_inline bool needs_care(context *ctx, bool ethernet)
{
#ifdef SKUA_XDP
	return false;
#else
	return ctx->gso_segs > 1 || (settings.gso_size && ctx->gso_size) ||
	       (ethernet && ctx->vlan_present);
#endif
}

/* One word, so that the hash does not wait for three stores to become one load. */
static __always_inline __u64 ports_and_point(__be16 lo_port, __be16 hi_port, __u32 ifindex)
{
	return lo_port | (__u64)hi_port << 16 | (__u64)ifindex << 32;
}

/*
 * The common case, read in place and every field of the packet written once. Returns false when
 * decode_level() is needed; start_level() then starts again.
 */
static __always_inline bool decode_fast(context *ctx, struct packet *p, bool ethernet,
					__u8 direction, __u16 netns)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const __u32 length = packet_length(ctx);
	__u32 offset = ethernet ? ETH_LENGTH : 0, ip_end;
	__u64 src[2], dst[2];
	__be16 src_port, dst_port;
	void *transport;
	__u8 proto, kind, ttl;
	int order;
	bool v4;

	if (ethernet) {
		struct ethernet_header *eth = data;

		if ((void *)(eth + 1) > end)
			return false;
		if (eth->ethertype == bpf_htons(ETHERTYPE_IPV4))
			v4 = true;
		else if (eth->ethertype == bpf_htons(ETHERTYPE_IPV6))
			v4 = false;
		else
			return false;
	} else {
		if (data + 1 > end)
			return false;
		v4 = *(__u8 *)data >> 4 == 4;
	}
	if (v4) {
		struct ipv4_header *ip = data + offset;

		if ((void *)(ip + 1) > end || ip->version_length != 0x45 ||
		    ip->fragment & bpf_htons(0x3fff))
			return false;
		proto = ip->proto;
		ttl = ip->ttl;
		transport = ip + 1;
		ip_end = bpf_ntohs(ip->total_length);
		if (ip_end)
			ip_end += offset;
		src[0] = 0;
		dst[0] = 0;
		src[1] = (__u64)ip->src << 32 | 0xffff0000u;
		dst[1] = (__u64)ip->dst << 32 | 0xffff0000u;
		order = bpf_ntohl(ip->src) < bpf_ntohl(ip->dst) ? -1 : ip->src != ip->dst;
		kind = KIND_IPV4;
		offset += 20;
	} else {
		struct ipv6_header *ip = data + offset;

		if ((void *)(ip + 1) > end || *(__u8 *)ip >> 4 != 6)
			return false;
		proto = ip->next;
		ttl = ip->hop_limit;
		transport = ip + 1;
		ip_end = bpf_ntohs(ip->payload_length);
		if (ip_end)
			ip_end += offset + 40;
		__builtin_memcpy(src, ip->src, 16);
		__builtin_memcpy(dst, ip->dst, 16);
		order = compare16(src, dst);
		kind = KIND_IPV6;
		offset += 40;
	}
	if (proto == PROTO_UDP) {
		__be16 *udp = transport;

		if (transport + 8 > end)
			return false;
		src_port = udp[0];
		dst_port = udp[1];
		if (settings.tunnels &&
		    (dst_port == bpf_htons(PORT_VXLAN) || dst_port == bpf_htons(PORT_VXLAN_LINUX) ||
		     dst_port == bpf_htons(PORT_GENEVE) || dst_port == bpf_htons(PORT_MPLS)))
			return false;
		p->is_tcp = 0;
		p->tcp_flags = 0;
	} else if (proto == PROTO_TCP) {
		struct tcp_header *tcp = transport;
		__u32 after;

		if ((void *)(tcp + 1) > end || tcp->offset >> 4 < 5)
			return false;
		src_port = tcp->src;
		dst_port = tcp->dst;
		p->is_tcp = 1;
		p->tcp_flags = tcp->flags;
		p->ttl = ttl;
		p->seq = bpf_ntohl(tcp->seq);
		p->window = bpf_ntohs(tcp->window);
		after = offset + (tcp->offset >> 4) * 4;
		if (!ip_end)
			ip_end = length;
		p->payload = ip_end > after ? ip_end - after : 0;
	} else {
		return false;
	}
	if (order == 0)
		order = bpf_ntohs(src_port) > bpf_ntohs(dst_port);
	if (order <= 0) {
		p->key.word[0] = src[0];
		p->key.word[1] = src[1];
		p->key.word[2] = dst[0];
		p->key.word[3] = dst[1];
		p->key.word[4] = ports_and_point(src_port, dst_port, packet_ifindex(ctx));
		p->from_hi = 0;
	} else {
		p->key.word[0] = dst[0];
		p->key.word[1] = dst[1];
		p->key.word[2] = src[0];
		p->key.word[3] = src[1];
		p->key.word[4] = ports_and_point(dst_port, src_port, packet_ifindex(ctx));
		p->from_hi = 1;
	}
	if (ethernet)
		kind |= KIND_ETHERNET;
	p->key.word[5] = netns | (__u64)proto << 48 | (__u64)kind << 56;
	p->key.word[6] = 0;
	p->packets = 1;
	p->bytes = length;
	p->tunnel_id = 0;
	p->opener = OPENER_UNKNOWN;
	p->rare = 0;
	p->direction = direction;
	return true;
}
#endif

/* Offset of the innermost transport payload: the headers that every segment carries again. */
static __always_inline __u32 super_headers(context *ctx, struct level *l)
{
	__u32 headers = l->headers;
	struct level *outer = the_saved_level();
	int i;

	if (!outer)
		return headers;
	*outer = *l;

	for (i = 1; i < LEVELS && l->inner_tunnel; i++) {
		step_into(l, 0, 0);
		if (!decode_level(ctx))
			break;
		headers = l->headers;
	}
	*l = *outer;
	return headers;
}

/*
 * Wire packets and bytes of the outer level. A super-packet leaves (or came) as segments that all
 * carry the headers.
 */
__noinline int measure(context *ctx)
{
	struct level *l = the_level();
	__u32 segments = 1, headers = 0;

	/* Unused values may be uninitialized, which the verifier rejects. */
	asm volatile("" : : "r"(ctx));
	if (!l)
		return 0;
#ifndef SKUA_XDP
	if (l->super) {
		segments = ctx->gso_segs;
		headers = l->inner_tunnel ? super_headers(ctx, l) : l->headers;
		if (segments < 1) {
			/* Not counted by a guest or an old driver: from the segment size. */
			const __u32 size = settings.gso_size ? ctx->gso_size : 0;

			segments = size && l->length > headers
					   ? (l->length - headers + size - 1) / size
					   : 1;
		}
	}
#endif
	l->p.packets = segments;
	l->p.bytes = l->length + (segments - 1) * headers;
	if (l->stripped)
		l->p.bytes += TAG_LENGTH * segments;
	/* From here on "headers" is what the segments of this packet repeat. */
	l->headers = headers;
	return 1;
}

/* Whether the packet's namespace has no number; then it counts for no interface. */
static __always_inline bool nowhere(context *ctx, __u32 netns, __u8 direction)
{
	if (netns != NETNS_UNKNOWN)
		return false;
	/* There is no interface 0. */
	count_cause((struct point_key){}, direction, CAUSE_NO_DECODE, 1, packet_length(ctx));
	return true;
}

/* Counts the packet under a cause instead of in a flow. */
static __always_inline int leave_out(context *ctx, bool ethernet, __u8 direction, __u32 cause)
{
	struct level *l = the_level();
	const __u32 netns = packet_netns(ctx);

	if (!l || nowhere(ctx, netns, direction))
		return 0;
	start_level(ctx, l, ethernet, direction, netns);
	if (l->super && decode_level(ctx))
		measure(ctx);
	else
		l->p.bytes = l->length + (l->stripped ? TAG_LENGTH : 0);
	count_cause(point_of(&l->p.key), direction, cause, l->p.packets, l->p.bytes);
	note_size(l);
	return 0;
}

__noinline int count_level(void)
{
	struct level *l = the_level();

	return l ? count_packet(&l->p) : COUNTED_NOT;
}

static __always_inline __u64 mac_word(const __u8 *mac)
{
	return mac[0] | (__u64)mac[1] << 8 | (__u64)mac[2] << 16 | (__u64)mac[3] << 24 |
	       (__u64)mac[4] << 32 | (__u64)mac[5] << 40;
}

/*
 * Notes the MAC addresses of the packet whose Ethernet header begins at `offset`, in the entry in
 * which it was just counted: the first ones stay, and further ones count when a side sends with
 * others than it last did.
 */
__noinline int note_link(context *ctx, __u32 offset)
{
	struct level *l = the_level();
	struct flow_cold *cold;
	__u64 source, destination;
	__u16 pair, before;
	__u8 mac[12];
	__u32 side;

	if (!l || load(ctx, offset, mac, sizeof(mac)) < 0)
		return 0;
	cold = cold_of(l->p.place);
	destination = mac_word(mac);
	source = mac_word(mac + 6);
	/* Loopback has none. */
	if (!cold || !(source | destination))
		return 0;
	side = l->p.from_hi & 1;
	if (!((cold->link[0] | cold->link[1]) & COLD_MAC)) {
		cold->link[side] |= source;
		cold->link[side ^ 1] |= destination;
	}
	pair = ((source + (destination << 16 | destination >> 32)) * 0x9e3779b97f4a7c15ULL) >> 48 |
	       1;
	before = cold->pair[side];
	if (before == pair)
		return 0;
	cold->pair[side] = pair;
	if (before)
		__sync_fetch_and_add(&cold->moved, 1);
	return 0;
}

/* Notes tags and labels, in the entry in which the packet was just counted. */
__noinline int note_level(void)
{
	struct level *l = the_level();
	struct flow_cold *cold;
	__u32 side;

	if (!l)
		return 0;
	cold = cold_of(l->p.place);
	if (!cold)
		return 0;
	if (l->p.tags[0] && !(cold->link[0] >> COLD_TAG_SHIFT)) {
		cold->link[0] |= (__u64)l->p.tags[0] << COLD_TAG_SHIFT;
		cold->link[1] |= (__u64)l->p.tags[1] << COLD_TAG_SHIFT;
	}
	side = l->p.from_hi & 1;
	if (l->p.label && !cold->label[side])
		cold->label[side] = l->p.label;
	return 0;
}

static __always_inline void note_carries(__u32 place, __u8 carries)
{
	struct flow_cold *cold = cold_of(place);

	if (cold && !cold->carries)
		cold->carries = carries;
}

/* What decode_level() has found of a packet that was just counted. */
static __always_inline void note(context *ctx, const struct level *l, int counted)
{
	if (counted != COUNTED_LOOK)
		return;
	if (l->start == START_ETHERNET)
		note_link(ctx, l->offset);
	note_level();
}

/*
 * Steps into what the level carries. The hashes need much stack: here it is free again before the
 * headers inside are decoded. Kernels such as 6.1 round the stack of each function up to 32 bytes,
 * and allow 512 in a chain of calls.
 */
__noinline int step_into_child(void)
{
	struct level *l = the_level();

	if (!l)
		return 0;
	step_into(l, id48(&l->p.key), tunnel_hash(l));
	return 1;
}

/*
 * Counts the flow that the level carries, and steps into it; COUNTED_NOT when there is none.
 * `headers` is what the segments of the packet repeat, `counted` of the level. A function of its
 * own, as kernels such as 6.1 verify that once, and what is inlined into a loop in each state.
 */
__noinline int count_child(context *ctx, __u32 headers, int counted)
{
	struct level *l = the_level();
	__u32 place;
	__u8 carries;

	if (!l || !l->inner_tunnel)
		return COUNTED_NOT;
	carries = l->inner_tunnel | (l->inner_label ? COLD_LABELS : 0);
	place = l->p.place;
	if (!step_into_child() || !decode_level(ctx))
		return COUNTED_NOT;
	if (counted == COUNTED_LOOK)
		note_carries(place, carries);
	l->p.bytes = l->length - l->offset;
	if (l->p.packets > 1 && headers > l->offset)
		l->p.bytes += (l->p.packets - 1) * (headers - l->offset);
	counted = count_level();
	note(ctx, l, counted);
	return counted;
}

/* The flows that a packet carries inside it. */
static __always_inline void count_children(context *ctx, struct level *l, int counted)
{
	const __u32 headers = l->headers;
	int i;

	for (i = 1; i < LEVELS && counted != COUNTED_NOT; i++)
		counted = count_child(ctx, headers, counted);
}

/* Any packet: one that decode_fast() does not read, a super-packet, one with something inside. */
__noinline int observe_any(context *ctx)
{
	struct level *l = the_level();
	struct point_key point;
	__u8 direction;
	int counted;

	if (!l)
		return 0;
	/* The code below may replace it with that of an inner level. */
	point = point_of(&l->p.key);
	direction = l->p.direction;
	if (!decode_level(ctx)) {
		count_cause(point, direction, CAUSE_TRUNCATED, 1, l->length);
		tell_packet(ctx, l, l->start == START_ETHERNET);
		return 0;
	}
	measure(ctx);
	note_size(l);
	if (left_out_by_address()) {
		count_cause(point, direction, CAUSE_ADDRESS_SET, l->p.packets, l->p.bytes);
		return 0;
	}
	if (settings.exclude_self && is_own(ctx)) {
		count_cause(point, direction, CAUSE_SELF, l->p.packets, l->p.bytes);
		return 0;
	}
	counted = count_level();
	note(ctx, l, counted);
	tell_packet(ctx, l, l->start == START_ETHERNET);
	if (counted && settings.tunnels)
		count_children(ctx, l, counted);
	if (l->malformed)
		count_cause(point, direction, NOTE_MALFORMED, 1, 0);
	return 0;
}

static __always_inline void observe(context *ctx, bool ethernet, __u8 direction)
{
	struct level *l = the_level();
	__u32 netns;

	if (!l)
		return;
	if (settings.sampling > 1 && bpf_get_prandom_u32() % settings.sampling) {
		leave_out(ctx, ethernet, direction, CAUSE_SAMPLED_OUT);
		return;
	}
	netns = packet_netns(ctx);
	if (nowhere(ctx, netns, direction))
		return;
#ifdef SKUA_LINEAR
	if (!needs_care(ctx, ethernet) && decode_fast(ctx, &l->p, ethernet, direction, netns)) {
		if (left_out_by_address()) {
			count_cause(point_of(&l->p.key), direction, CAUSE_ADDRESS_SET, 1,
				    l->p.bytes);
			return;
		}
		if (settings.exclude_self && is_own(ctx)) {
			count_cause(point_of(&l->p.key), direction, CAUSE_SELF, 1, l->p.bytes);
			return;
		}
		if (count_level() == COUNTED_LOOK && ethernet)
			note_link(ctx, 0);
		tell_packet(ctx, l, ethernet);
		return;
	}
#endif
	start_level(ctx, l, ethernet, direction, netns);
	observe_any(ctx);
}
