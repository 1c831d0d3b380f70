/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Locates the value in a packet and reads it. crates/act/steer/src/locate.rs is the
 * same in Rust.
 */
#pragma once
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include "context.h"
#include "maps.h"
#include "parse.h"

/* Keeps the verifier's knowledge of a number together with the number. */
#define keep(x) asm volatile("" : "+r"(x))

/* Offsets from the packet's begin. */
struct steer_place {
	__u32 ip;
	__u32 transport;
	/* The offset that settings.from selects. */
	__u32 base;
	/* The bytes after it are padding. */
	__u32 end;
	__u8 protocol;
	bool six;
};

/* A header at an offset; NULL when the packet ends before. */
static __always_inline void *header(steer_context *ctx, __u32 offset, __u32 size)
{
	void *at;

	keep(offset);
	if (offset > HEADERS)
		return 0;
	at = (void *)(long)ctx->data + offset;
	return at + size > (void *)(long)ctx->data_end ? 0 : at;
}

static __always_inline __u32 locate_ip6(steer_context *ctx, struct steer_place *at)
{
	struct ipv6hdr *ip = header(ctx, at->ip, sizeof(*ip));
	struct cursor cursor = {.offset = at->ip + sizeof(*ip)};

	if (!ip || ip->version != 6)
		return STEER_SHORT;
	at->six = true;
	at->end = cursor.offset + bpf_ntohs(ip->payload_len);
	if (at->end > packet_length(ctx))
		return STEER_SHORT;
	cursor.next = ip->nexthdr;
	for (int i = 0; i < EXTENSIONS && is_extension(cursor.next); i++) {
		__u8 *extension = header(ctx, cursor.offset, 8);

		if (!extension)
			return STEER_SHORT;
		step_over(&cursor, extension);
		if (cursor.fragment & IPV6_FRAGMENTED)
			return STEER_FRAGMENT;
	}
	at->protocol = cursor.next;
	at->transport = cursor.offset;
	return 0;
}

static __always_inline __u32 locate_ip4(steer_context *ctx, struct steer_place *at)
{
	struct iphdr *ip = header(ctx, at->ip, sizeof(*ip));
	__u32 length, size;

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return STEER_SHORT;
	length = bpf_ntohs(ip->tot_len);
	size = ip->ihl * 4;
	at->end = at->ip + length;
	if (length < size || at->end > packet_length(ctx))
		return STEER_SHORT;
	if (ip->frag_off & bpf_htons(IPV4_FRAGMENTED))
		return STEER_FRAGMENT;
	at->protocol = ip->protocol;
	at->transport = at->ip + size;
	return 0;
}

static __always_inline __u32 locate_payload(steer_context *ctx, struct steer_place *at)
{
	if (at->protocol == IPPROTO_UDP) {
		struct udphdr *udp = header(ctx, at->transport, sizeof(*udp));
		__u32 length;

		if (!udp)
			return STEER_SHORT;
		length = bpf_ntohs(udp->len);
		if (length < sizeof(*udp) || at->transport + length > at->end)
			return STEER_SHORT;
		at->end = at->transport + length;
		at->base = at->transport + sizeof(*udp);
		return 0;
	}
	if (at->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = header(ctx, at->transport, sizeof(*tcp));
		__u32 size;

		if (!tcp)
			return STEER_SHORT;
		size = tcp->doff * 4;
		if (size < sizeof(*tcp) || at->transport + size > at->end)
			return STEER_SHORT;
		at->base = at->transport + size;
		return 0;
	}
	return STEER_NO_PAYLOAD;
}

/* 0, or the cause why the packet has no such value. */
static __always_inline __u32 locate(steer_context *ctx, struct steer_place *at)
{
	__be16 protocol = packet_protocol(ctx);
	__u32 cause;

	if (settings.from == STEER_FROM_FRAME && !(settings.rewrite & ~STEER_REWRITE_MACS)) {
		at->end = packet_length(ctx);
		return 0;
	}
	at->ip = 0;
	if (settings.ethernet) {
		struct ethhdr *ethernet = header(ctx, 0, sizeof(*ethernet));

		if (!ethernet)
			return STEER_SHORT;
		protocol = ethernet->h_proto;
		at->ip = sizeof(*ethernet);
		for (int i = 0; i < VLAN_TAGS && is_vlan(protocol); i++) {
			struct vlan_tag *tag = header(ctx, at->ip, sizeof(*tag));

			if (!tag)
				return STEER_SHORT;
			protocol = tag->ethertype;
			at->ip += sizeof(*tag);
		}
	}
	if (protocol == bpf_htons(ETH_P_IP))
		cause = locate_ip4(ctx, at);
	else if (protocol == bpf_htons(ETH_P_IPV6))
		cause = locate_ip6(ctx, at);
	else
		cause = STEER_NO_PAYLOAD;
	switch (settings.from) {
	case STEER_FROM_FRAME:
		at->base = 0;
		at->end = packet_length(ctx);
		return cause;
	case STEER_FROM_IP:
		at->base = at->ip;
		return cause;
	}
	return cause ? cause : locate_payload(ctx, at);
}

/* The bytes at a place in the byte order of the packet. */
static __always_inline __u64 pick(const void *at, __u32 width, bool little)
{
	switch (width) {
	case 1:
		return *(const __u8 *)at;
	case 2:
		return little ? *(const __u16 *)at : bpf_ntohs(*(const __u16 *)at);
	case 4:
		return little ? *(const __u32 *)at : bpf_ntohl(*(const __u32 *)at);
	default:
		return little ? *(const __u64 *)at : bpf_be64_to_cpu(*(const __u64 *)at);
	}
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pick() is for little-endian machines");

/* Reads this many bytes; false if the packet ends before. */
static __always_inline bool read_bytes(steer_context *ctx, __u32 offset, __u32 width, bool little,
				       __u64 *raw)
{
	__u64 copy = 0;
	void *at;

	keep(offset);
	if (offset > 0xffff)
		return false;
	at = (void *)(long)ctx->data + offset;
	if (at + width <= (void *)(long)ctx->data_end) {
		*raw = pick(at, width, little);
		return true;
	}
	/* In another piece of the packet. */
	if (!copy_bytes(ctx, offset, &copy, width))
		return false;
	*raw = pick(&copy, width, little);
	return true;
}

static __always_inline bool read_text(steer_context *ctx, __u32 offset, __u32 length,
				      __u8 text[STEER_TEXT])
{
	/* One less, so that verifiers before 6.2 know that it is not 0. */
	length--;
	keep(length);
	if (length >= STEER_TEXT)
		return false;
	return copy_bytes(ctx, offset, text, length + 1);
}
