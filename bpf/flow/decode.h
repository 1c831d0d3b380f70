/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From bytes to a key: docs/accounting.md section 2.
 *
 * decode_fast() reads the common case (Ethernet or none, IPv4 without options or IPv6 without
 * extension headers, whole TCP or UDP header) straight from the linear part. decode_level() reads
 * anything, at any offset, through load().
 */
#pragma once
#include "parse.h"
#include "table.h"

#define ETH_LENGTH		 14
#define ETHERTYPE_TEB		 0x6558 /* transparent Ethernet bridging */
#define ETHERTYPE_MPLS		 0x8847
#define ETHERTYPE_MPLS_MULTICAST 0x8848
#define ETHERTYPE_ERSPAN	 0x88be /* types I and II */
#define ETHERTYPE_ERSPAN_III	 0x22eb
#define VLAN_PRESENT		 0x1000
#define VLAN_ID			 0x0fff

#define PORT_VXLAN	 4789
#define PORT_VXLAN_LINUX 8472
#define PORT_GENEVE	 6081
#define PORT_MPLS	 6635

#define LABELS 8 /* MPLS labels stepped over */
#define TAGS   4 /* VLAN tags stepped over, of which two are in the key as they are */
#define LEVELS 3 /* parent, child, grandchild */

#ifdef SKUA_XDP
typedef struct xdp_md context;
#define load(ctx, offset, to, length) bpf_xdp_load_bytes(ctx, offset, to, length)
#define packet_length(ctx)	      bpf_xdp_get_buff_len(ctx)
#define packet_ifindex(ctx)	      ((ctx)->ingress_ifindex)
#else
typedef struct __sk_buff context;
#define load(ctx, offset, to, length) bpf_skb_load_bytes(ctx, offset, to, length)
#define packet_length(ctx)	      ((ctx)->len)
#define packet_ifindex(ctx)	      ((ctx)->ifindex)
#endif

enum start {
	START_ETHERNET,
	START_IP, /* the version nibble decides */
};

/* One level of a packet: where it starts, what was found, where the next one starts. */
struct level {
	struct packet p;
	__u32 offset;
	__u32 length;	/* of the whole packet */
	__u32 headers;	/* what each segment of a super-packet carries: up to the transport payload
			 */
	__u32 inner;	/* offset of the next level */
	__u32 inner_id; /* VNI, GRE key, label, session of ERSPAN */
	__u32 inner_label; /* as packet.label of the next level */
	__u16 stripped;	   /* VLAN that the card stripped: 0 or VLAN_PRESENT | VID */
	__u8 start;
	__u8 inner_start;
	__u8 inner_tunnel; /* enum flow_tunnel, 0: no next level */
	__u8 malformed;
	__u8 super;  /* GSO or GRO packet: lengths in headers do not match the packet */
	__u8 follow; /* decode tunnels, too */
	__u8 ports;  /* this level has ports, or type and code */
};

/*
 * The level being decoded. In a map instead of on the stack so that the functions below can be
 * global: the verifier then checks each once, for all callers. These programs never nest on a CPU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct level);
} scratch SEC(".maps");

static __always_inline struct level *the_level(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

static __always_inline struct level *the_saved_level(void)
{
	__u32 one = 1;

	return bpf_map_lookup_elem(&scratch, &one);
}

struct tcp_header {
	__be16 src;
	__be16 dst;
	__be32 seq;
	__be32 ack;
	__u8 offset;
	__u8 flags;
	__be16 window;
	__be32 check_urgent;
};

/* Whether it is less, compared as bytes in network order. */
static __always_inline int compare16(const __u64 *a, const __u64 *b)
{
	__u64 x = bpf_be64_to_cpu(a[0]), y = bpf_be64_to_cpu(b[0]);

	if (x == y) {
		x = bpf_be64_to_cpu(a[1]);
		y = bpf_be64_to_cpu(b[1]);
	}
	return x < y ? -1 : x > y;
}

/* Puts the endpoints, given as source in lo and destination in hi, into canonical order. */
static __always_inline void canonical(struct packet *p)
{
	struct flow_key *k = &p->key;
	int order = compare16(&k->word[0], &k->word[2]);

	if (order < 0 || (order == 0 && bpf_ntohs(k->lo_port) <= bpf_ntohs(k->hi_port)))
		return;
	{
		const __u64 w0 = k->word[0], w1 = k->word[1];
		const __be16 port = k->lo_port;

		k->word[0] = k->word[2];
		k->word[1] = k->word[3];
		k->word[2] = w0;
		k->word[3] = w1;
		k->lo_port = k->hi_port;
		k->hi_port = port;
	}
	p->from_hi = 1;
}

/* ICMP type of the request that a reply of this type answers, or the type itself. */
static __always_inline __u8 icmp_request(bool v6, __u8 type)
{
	if (v6) {
		switch (type) {
		case 129: /* echo */
		case 131: /* multicast listener */
		case 134: /* router */
		case 136: /* neighbour */
		case 140: /* node information */
		case 145: /* home agent */
			return type - 1;
		}
		return type;
	}
	switch (type) {
	case 0: /* echo */
		return 8;
	case 9: /* router */
		return 10;
	case 14: /* timestamp */
	case 16: /* information */
	case 18: /* address mask */
		return type - 1;
	}
	return type;
}

/* Whether the type is one of the pairs that icmp_request() knows. */
static __always_inline bool icmp_is_query(bool v6, __u8 request)
{
	if (v6)
		return request == 128 || request == 130 || request == 133 || request == 135 ||
		       request == 139 || request == 144;
	return request == 8 || request == 10 || request == 13 || request == 15 || request == 17;
}

static __always_inline bool icmp_has_id(bool v6, __u8 request)
{
	if (v6)
		return request == 128;
	return request == 8 || request == 13 || request == 15 || request == 17;
}

/* Looks up, or stores, the ports of a fragmented datagram. */
__noinline int fragment_ports(__u32 id, __u32 first)
{
	struct level *l = the_level();
	struct fragment_key key = {};
	struct fragment_note *found;
	struct flow_key *k;

	if (!l || (first && !l->ports))
		return 0;
	k = &l->p.key;
	key.ifindex = k->ifindex;
	key.netns = k->netns;
	key.id = id;
	key.proto = k->proto;
	__builtin_memcpy(key.src, k->lo, 16);
	__builtin_memcpy(key.dst, k->hi, 16);
	if (first) {
		struct fragment_note note = {};

		note.src_port = k->lo_port;
		note.dst_port = k->hi_port;
		note.detail = k->detail;
		note.opener = l->p.opener;

		bpf_map_update_elem(&fragments, &key, &note, BPF_ANY);
		return 0;
	}
	found = bpf_map_lookup_elem(&fragments, &key);
	if (!found)
		return 0;
	k->lo_port = found->src_port;
	k->hi_port = found->dst_port;
	k->detail = found->detail;
	l->p.opener = found->opener;
	return 0;
}

static __always_inline void set_inner(struct level *l, __u8 tunnel, __u32 offset, __u8 start,
				      __u32 id)
{
	l->inner_tunnel = tunnel;
	l->inner = offset;
	l->inner_start = start;
	l->inner_id = id;
}

/* Skips MPLS labels, RFC 3032. Returns the last one, 0 if there is no bottom of stack. */
static __always_inline __u32 bottom_label(context *ctx, __u32 *offset)
{
	__be32 entry;
	int i;

	for (i = 0; i < LABELS; i++) {
		if (load(ctx, *offset, &entry, sizeof(entry)) < 0)
			return 0;
		*offset += sizeof(entry);
		if (bpf_ntohl(entry) & 0x100)
			return bpf_ntohl(entry);
	}
	return 0;
}

static __always_inline void look_into_mpls(context *ctx, struct level *l, __u32 offset)
{
	const __u32 entry = bottom_label(ctx, &offset);

	if (!entry)
		return;
	set_inner(l, TUNNEL_MPLS, offset, START_IP, entry >> 12);
	l->inner_label = entry >> 12 | COLD_LABEL;
}

static __always_inline void look_into_udp(context *ctx, struct level *l, __u32 offset, __u16 port)
{
	__u8 header[8];
	__u32 id;

	if (port == PORT_MPLS) { /* RFC 7510 */
		look_into_mpls(ctx, l, offset);
		return;
	}
	if (port != PORT_VXLAN && port != PORT_VXLAN_LINUX && port != PORT_GENEVE)
		return;
	if (load(ctx, offset, header, sizeof(header)) < 0)
		return;
	id = (__u32)header[4] << 16 | (__u32)header[5] << 8 | header[6];
	if (port != PORT_GENEVE) {
		if (header[0] & 0x08) /* the VNI is valid, RFC 7348 section 5 */
			set_inner(l, TUNNEL_VXLAN, offset + 8, START_ETHERNET, id);
		return;
	}
	if (header[0] >> 6) /* version, RFC 8926 section 3.4 */
		return;
	{
		const __u32 next = offset + 8 + (header[0] & 0x3f) * 4;
		const __u16 ethertype = (__u16)header[2] << 8 | header[3];

		if (ethertype == ETHERTYPE_TEB)
			set_inner(l, TUNNEL_GENEVE, next, START_ETHERNET, id);
		else if (ethertype == ETHERTYPE_IPV4 || ethertype == ETHERTYPE_IPV6)
			set_inner(l, TUNNEL_GENEVE, next, START_IP, id);
	}
}

/* The header of ERSPAN before a mirrored packet, draft-foschiano-erspan-03. */
static __always_inline void look_into_erspan(context *ctx, struct level *l, __u32 offset,
					     __u16 ethertype, bool sequence)
{
	__be16 header[6];
	__u16 last;
	__u32 id;

	/* Type I has no header, and GRE no sequence number before it. */
	if (ethertype == ETHERTYPE_ERSPAN && !sequence) {
		set_inner(l, TUNNEL_ERSPAN, offset, START_ETHERNET, 0);
		return;
	}
	if (load(ctx, offset, header, 8) < 0)
		return;
	id = bpf_ntohs(header[1]) & 0x3ff;
	if (ethertype == ETHERTYPE_ERSPAN) {
		if (bpf_ntohs(header[0]) >> 12 == 1)
			set_inner(l, TUNNEL_ERSPAN, offset + 8, START_ETHERNET, id);
		return;
	}
	if (bpf_ntohs(header[0]) >> 12 != 2 || load(ctx, offset, header, sizeof(header)) < 0)
		return;
	last = bpf_ntohs(header[5]);
	offset += sizeof(header);
	if (last & 1) /* a header of the platform */
		offset += 8;
	switch (last >> 10 & 0x1f) { /* what was mirrored */
	case 0:
		set_inner(l, TUNNEL_ERSPAN, offset, START_ETHERNET, id);
		return;
	case 2:
		set_inner(l, TUNNEL_ERSPAN, offset, START_IP, id);
	}
}

/* RFC 2784 and 2890. */
static __always_inline void look_into_gre(context *ctx, struct level *l, __u32 offset)
{
	__u16 flags, ethertype;
	__be16 header[2];
	__be32 key = 0;

	if (load(ctx, offset, header, sizeof(header)) < 0)
		return;
	flags = bpf_ntohs(header[0]);
	ethertype = bpf_ntohs(header[1]);
	if (flags & 0x4007) /* routing (RFC 1701) or another version */
		return;
	offset += 4;
	if (flags & 0x8000)
		offset += 4;
	if (flags & 0x2000) {
		if (load(ctx, offset, &key, sizeof(key)) < 0)
			return;
		offset += 4;
	}
	if (flags & 0x1000)
		offset += 4;
	switch (ethertype) {
	case ETHERTYPE_TEB:
		set_inner(l, TUNNEL_GRE, offset, START_ETHERNET, bpf_ntohl(key));
		return;
	case ETHERTYPE_MPLS:
	case ETHERTYPE_MPLS_MULTICAST: {
		const __u32 entry = bottom_label(ctx, &offset);

		if (!entry)
			return;
		l->inner_label = entry >> 12 | COLD_LABEL;
		break;
	}
	case ETHERTYPE_ERSPAN:
	case ETHERTYPE_ERSPAN_III:
		look_into_erspan(ctx, l, offset, ethertype, flags & 0x1000);
		return;
	case ETHERTYPE_IPV4:
	case ETHERTYPE_IPV6:
		break;
	default:
		return;
	}
	set_inner(l, TUNNEL_GRE, offset, START_IP, bpf_ntohl(key));
}

/*
 * Ports and TCP fields. `ip_end` is where the IP packet ends by its own length, 0 unknown.
 */
__noinline int decode_transport(context *ctx, __u32 offset, __u32 ip_end)
{
	struct level *l = the_level();
	struct flow_key *k;
	struct packet *p;
	bool v6;

	if (!l)
		return 0;
	p = &l->p;
	k = &p->key;
	v6 = (k->kind & KIND_NETWORK) == KIND_IPV6;

	switch (k->proto) {
	case PROTO_TCP: {
		struct tcp_header tcp;
		__u32 after;

		if (load(ctx, offset, &tcp, sizeof(tcp)) < 0 || tcp.offset >> 4 < 5) {
			l->malformed = 1;
			return 0;
		}
		k->lo_port = tcp.src;
		k->hi_port = tcp.dst;
		l->ports = 1;
		p->is_tcp = 1;
		p->tcp_flags = tcp.flags;
		p->seq = bpf_ntohl(tcp.seq);
		p->window = bpf_ntohs(tcp.window);
		after = offset + (tcp.offset >> 4) * 4;
		l->headers = after;
		if (!ip_end || l->super)
			ip_end = l->length;
		p->payload = ip_end > after ? ip_end - after : 0;
		return 0;
	}
	case PROTO_UDP:
	case PROTO_UDP_LITE: {
		__be16 udp[4];

		if (load(ctx, offset, udp, sizeof(udp)) < 0) {
			l->malformed = 1;
			return 0;
		}
		k->lo_port = udp[0];
		k->hi_port = udp[1];
		l->ports = 1;
		l->headers = offset + 8;
		if (l->follow && k->proto == PROTO_UDP)
			look_into_udp(ctx, l, offset + 8, bpf_ntohs(udp[1]));
		return 0;
	}
	case PROTO_SCTP:
	case PROTO_DCCP: {
		__be16 ports[6];

		if (load(ctx, offset, ports, sizeof(ports)) < 0) {
			l->malformed = 1;
			return 0;
		}
		k->lo_port = ports[0];
		k->hi_port = ports[1];
		l->ports = 1;
		l->headers = offset + 12;
		return 0;
	}
	case PROTO_ICMP:
	case PROTO_ICMPV6: {
		__u8 icmp[4], request;
		__be16 id[2];

		if ((k->proto == PROTO_ICMPV6) != v6)
			return 0;
		if (load(ctx, offset, icmp, sizeof(icmp)) < 0) {
			l->malformed = 1;
			return 0;
		}
		request = icmp_request(v6, icmp[0]);
		if (icmp_has_id(v6, request)) {
			if (load(ctx, offset + 4, id, sizeof(id)) < 0) {
				l->malformed = 1;
				return 0;
			}
			k->detail = bpf_ntohs(id[0]);
		}
		if (request == (v6 ? 128 : 8))
			p->rare |= RARE_ECHO;
		if (icmp_is_query(v6, request))
			p->opener = icmp[0] == request ? OPENER_SOURCE : OPENER_DESTINATION;
		k->lo_port = bpf_htons((__u16)request << 8 | icmp[1]);
		k->hi_port = k->lo_port;
		l->ports = 1;
		return 0;
	}
	case PROTO_GRE:
		if (l->follow)
			look_into_gre(ctx, l, offset);
		return 0;
	case PROTO_IPIP:
		if (l->follow)
			set_inner(l, TUNNEL_IPIP, offset, START_IP, 0);
		return 0;
	case PROTO_IPV6:
		if (l->follow)
			set_inner(l, TUNNEL_IPIP, offset, START_IP, 0);
		return 0;
	}
	return 0;
}

static __always_inline void map_ipv4(__u8 *to, __be32 address)
{
	*(__u64 *)to = 0;
	*(__u64 *)(to + 8) = (__u64)address << 32 | 0xffff0000u;
}

__noinline int decode_ipv4(context *ctx, __u32 offset)
{
	struct level *l = the_level();
	struct flow_key *k;
	struct ipv4_header ip;
	__u32 header, total, end;
	__u16 fragment;

	if (!l)
		return 0;
	k = &l->p.key;
	if (load(ctx, offset, &ip, sizeof(ip)) < 0 || ip.version_length >> 4 != 4)
		return 0;
	header = (ip.version_length & 0xf) * 4;
	if (header < 20 || offset + header > l->length)
		return 0;
	l->headers = offset + header;
	k->kind |= KIND_IPV4;
	k->proto = ip.proto;
	l->p.ttl = ip.ttl;
	map_ipv4(k->lo, ip.src);
	map_ipv4(k->hi, ip.dst);
	total = bpf_ntohs(ip.total_length);
	end = total ? offset + total : 0;
	fragment = bpf_ntohs(ip.fragment);
	if (fragment & IPV4_FRAGMENTED)
		l->p.rare |= RARE_FRAGMENT;
	if (fragment & IPV4_FRAGMENT_OFFSET) {
		fragment_ports(bpf_ntohs(ip.id), false);
	} else {
		decode_transport(ctx, offset + header, end);
		if (fragment & IPV4_FRAGMENTED)
			fragment_ports(bpf_ntohs(ip.id), true);
	}
	return 1;
}

__noinline int decode_ipv6(context *ctx, __u32 offset)
{
	struct level *l = the_level();
	struct flow_key *k;
	struct cursor at = {};
	struct ipv6_header ip;
	__u16 payload;
	__u32 end;
	int i;

	if (!l)
		return 0;
	k = &l->p.key;
	if (load(ctx, offset, &ip, sizeof(ip)) < 0 || *(__u8 *)&ip >> 4 != 6)
		return 0;
	l->headers = offset + 40;
	k->kind |= KIND_IPV6;
	__builtin_memcpy(k->lo, ip.src, 16);
	__builtin_memcpy(k->hi, ip.dst, 16);
	l->p.ttl = ip.hop_limit;
	payload = bpf_ntohs(ip.payload_length);
	end = payload ? offset + 40 + payload : 0;
	at.offset = offset + 40;
	at.next = ip.next;
	/* The compiler may enter a loop in its middle, which Linux 5.10 refuses. */
#pragma unroll
	for (i = 0; i <= EXTENSIONS; i++) {
		__u8 header[8];

		if (!is_extension(at.next))
			break;
		k->proto = at.next;
		l->malformed = i == EXTENSIONS || load(ctx, at.offset, header, sizeof(header)) < 0;
		if (l->malformed)
			break;
		step_over(&at, header);
		l->malformed = at.offset > l->length;
		if (l->malformed)
			break;
		l->headers = at.offset;
		if (at.fragment & IPV6_FRAGMENT_OFFSET)
			break;
	}
	if (at.fragment & IPV6_FRAGMENTED)
		l->p.rare |= RARE_FRAGMENT;
	if (l->malformed)
		return 1;
	k->proto = at.next;
	if (at.fragment & IPV6_FRAGMENT_OFFSET) {
		fragment_ports(at.fragment_id, false);
		return 1;
	}
	decode_transport(ctx, at.offset, end);
	if (at.fragment & IPV6_FRAGMENTED)
		fragment_ports(at.fragment_id, true);
	return 1;
}

/* Distinguishes a key by a number, FlowKey::mix_in. */
static __always_inline void mix_in(struct flow_key *key, __u32 number)
{
	const __u64 mixed = number * 0x9e3779b97f4a7c15ULL;
	int i;

	for (i = 0; i < 6; i++)
		key->tunnel_hash[i] ^= mixed >> (8 * i);
}

/* Fills l->p.key and the rest of the level. Returns false if the frame is too short for its link.
 */
__noinline int decode_level(context *ctx)
{
	struct level *l = the_level();
	struct flow_key *k;
	struct ethernet_header eth = {};
	__u16 ethertype;
	__u32 offset;
	bool ip = false;
	__u8 tags = 0;
	int i;

	if (!l)
		return 0;
	k = &l->p.key;
	offset = l->offset;
	if (l->start == START_ETHERNET) {
		struct vlan_tag tag;
		__be16 next;

		if (load(ctx, offset, &eth, sizeof(eth)) < 0)
			return 0;
		offset += sizeof(eth);
		next = eth.ethertype;
		k->kind |= KIND_ETHERNET;
		if (l->stripped) {
			k->vlan[0] = l->stripped;
			tags = 1;
		}
		for (i = 0; i < TAGS && is_vlan(next); i++) {
			if (tags >= TAGS || load(ctx, offset, &tag, sizeof(tag)) < 0)
				break;
			if (tags == 0)
				k->vlan[0] = VLAN_PRESENT | (bpf_ntohs(tag.tci) & VLAN_ID);
			else if (tags == 1)
				k->vlan[1] = VLAN_PRESENT | (bpf_ntohs(tag.tci) & VLAN_ID);
			else
				l->p.tags[tags & 1] = VLAN_PRESENT | (bpf_ntohs(tag.tci) & VLAN_ID);
			tags++;
			next = tag.ethertype;
			offset += sizeof(tag);
		}
		if (l->p.tags[0])
			mix_in(k, l->p.tags[0] | (__u32)l->p.tags[1] << 16);
		ethertype = bpf_ntohs(next);
		if (ethertype < 0x0600)
			ethertype = 0;
	} else {
		__u8 nibble = 0;

		/* A packet without any byte has no EtherType, like one of an unknown version. */
		load(ctx, offset, &nibble, 1);
		ethertype = nibble >> 4 == 4   ? ETHERTYPE_IPV4
			    : nibble >> 4 == 6 ? ETHERTYPE_IPV6
					       : 0;
		if (!ethertype && k->kind >> KIND_TUNNEL_SHIFT)
			return 0;
	}
	l->headers = offset;
	if (ethertype == ETHERTYPE_IPV4)
		ip = decode_ipv4(ctx, offset);
	else if (ethertype == ETHERTYPE_IPV6)
		ip = decode_ipv6(ctx, offset);
	else if (l->follow &&
		 (ethertype == ETHERTYPE_MPLS || ethertype == ETHERTYPE_MPLS_MULTICAST))
		look_into_mpls(ctx, l, offset);
	if (!ip) {
		if (ethertype == ETHERTYPE_IPV4 || ethertype == ETHERTYPE_IPV6)
			l->malformed = 1;
		k->detail = ethertype;
		if (l->start == START_ETHERNET) {
			__builtin_memcpy(k->lo + 10, eth.src, 6);
			__builtin_memcpy(k->hi + 10, eth.dst, 6);
		}
	}
	canonical(&l->p);
	return 1;
}
