/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What flow, tap and steer share about headers below TCP and UDP: numbers, limits, and how to skip
 * IPv6 extension headers. Each reads packets in its own way. The same in Rust:
 * crates/capture/packet/src/ip.rs.
 */
#pragma once
#include <stdbool.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>

#define ETHERTYPE_IPV4	   0x0800
#define ETHERTYPE_VLAN	   0x8100
#define ETHERTYPE_IPV6	   0x86dd
#define ETHERTYPE_PROVIDER 0x88a8 /* IEEE 802.1ad */
#define ETHERTYPE_QINQ	   0x9100 /* the same before there was a standard */

#define PROTO_HOP_BY_HOP  0
#define PROTO_ICMP	  1
#define PROTO_IPIP	  4
#define PROTO_TCP	  6
#define PROTO_UDP	  17
#define PROTO_DCCP	  33
#define PROTO_IPV6	  41
#define PROTO_ROUTING	  43
#define PROTO_FRAGMENT	  44
#define PROTO_GRE	  47
#define PROTO_AH	  51
#define PROTO_ICMPV6	  58
#define PROTO_DESTINATION 60
#define PROTO_SCTP	  132
#define PROTO_MOBILITY	  135
#define PROTO_UDP_LITE	  136
#define PROTO_HIP	  139
#define PROTO_SHIM6	  140

#define VLAN_TAGS  2 /* stepped over */
#define EXTENSIONS 8 /* IPv6 extension headers stepped over */

/* The offset in a fragment field of IPv4 (RFC 791) or IPv6 (RFC 8200); with it, whether more
 * fragments follow. */
#define IPV4_FRAGMENT_OFFSET 0x1fff
#define IPV4_FRAGMENTED	     0x3fff
#define IPV6_FRAGMENT_OFFSET 0xfff8
#define IPV6_FRAGMENTED	     0xfff9

struct ethernet_header {
	__u8 dst[6];
	__u8 src[6];
	__be16 ethertype;
} __attribute__((packed));

struct vlan_tag {
	__be16 tci;
	__be16 ethertype;
};

struct ipv4_header {
	__u8 version_length;
	__u8 tos;
	__be16 total_length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 proto;
	__be16 check;
	__be32 src;
	__be32 dst;
};

struct ipv6_header {
	__be32 version_class_label;
	__be16 payload_length;
	__u8 next;
	__u8 hop_limit;
	__u8 src[16];
	__u8 dst[16];
};

/* Offset and type of the next header of an IPv6 packet. */
struct cursor {
	__u32 offset;
	__u32 fragment_id;
	__u16 fragment; /* the fragment header's offset and flags */
	__u8 next;
};

static __always_inline bool is_vlan(__be16 ethertype)
{
	return ethertype == bpf_htons(ETHERTYPE_VLAN) ||
	       ethertype == bpf_htons(ETHERTYPE_PROVIDER) || ethertype == bpf_htons(ETHERTYPE_QINQ);
}

static __always_inline bool is_extension(__u8 next)
{
	return next == PROTO_HOP_BY_HOP || next == PROTO_ROUTING || next == PROTO_FRAGMENT ||
	       next == PROTO_AH || next == PROTO_DESTINATION || next == PROTO_MOBILITY ||
	       next == PROTO_HIP || next == PROTO_SHIM6;
}

/* Skips the extension header that begins with these 8 bytes (RFC 6564, RFC 8200, AH: RFC
 * 4302). */
static __always_inline void step_over(struct cursor *at, const __u8 *header)
{
	if (at->next == PROTO_FRAGMENT) {
		at->fragment = (__u16)header[2] << 8 | header[3];
		at->fragment_id = (__u32)header[4] << 24 | (__u32)header[5] << 16 |
				  (__u32)header[6] << 8 | header[7];
		at->offset += 8;
	} else if (at->next == PROTO_AH) {
		at->offset += (header[1] + 2) * 4;
	} else {
		at->offset += (header[1] + 1) * 8;
	}
	at->next = header[0];
}
