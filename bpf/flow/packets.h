/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packets for user space in addition to counters: the first ones of each entry, all counted ones
 * while a live stream is open, and heads (heads.h). Only in the objects that are built with
 * SKUA_PACKETS.
 */
#pragma once
#include "heads.h"
#include "send.h"

#ifdef SKUA_PACKETS
#ifdef SKUA_TABLES
#define packets OF_TABLE(packets)
#endif

/*
 * Clients that watch get packets at once. Stored packets can wait until the ring is a quarter
 * full, or for the next drain.
 */
static __always_inline __u64 wake_flags(__u32 why)
{
	const __u64 filled = bpf_ringbuf_query(&packets, BPF_RB_AVAIL_DATA);

	if (filled >= bpf_ringbuf_query(&packets, BPF_RB_RING_SIZE) / 4)
		return BPF_RB_FORCE_WAKEUP;
	return why & PACKET_LIVE ? 0 : BPF_RB_NO_WAKEUP;
}

static __always_inline void fill_head(context *ctx, struct packet_head *head,
				      const struct packet *p, __u32 why, __u32 bytes,
				      __u32 ethernet)
{
	head->key = p->key;
	head->time = bpf_ktime_get_ns();
	head->length = packet_length(ctx);
	head->captured = bytes;
	head->tag_protocol = 0;
	head->tag = 0;
#ifndef SKUA_XDP
	if (ethernet && ctx->vlan_present) {
		head->tag_protocol = bpf_ntohs(ctx->vlan_proto);
		head->tag = ctx->vlan_tci;
	}
#endif
	head->why = why;
	head->index = p->index;
	head->direction = p->direction;
	head->ethernet = ethernet;
}

#define SEND_HEAD	     struct packet_head
#define SEND_FILL(head)	     fill_head(ctx, head, &l->p, why, bytes, ethernet)
#define SEND_LOAD(to, bytes) load(ctx, 0, to, bytes)
#define SEND_FLAGS	     wake_flags(why)

/* Sends the packet whose outermost level was just counted. */
__noinline int send_packet(context *ctx, __u32 why, __u32 ethernet)
{
	struct level *l = the_level();
	__u64 bytes;

	if (!l)
		return 0;
	bytes = packet_length(ctx);
	if (bytes > settings.packet_bytes)
		bytes = settings.packet_bytes;
	if (why == PACKET_HEAD)
		bytes = head_bytes(&l->p, bytes);
	SEND();
full:
failed:
	if (why & PACKET_FIRST)
		count_cause(point_of(&l->p.key), l->p.direction, NOTE_RAW_LOST, 1,
			    packet_length(ctx));
	if (why & PACKET_LIVE)
		count_cause(point_of(&l->p.key), l->p.direction, NOTE_LIVE_LOST, 1,
			    packet_length(ctx));
	if (why & PACKET_HEAD)
		count_cause(point_of(&l->p.key), l->p.direction, NOTE_HEAD_LOST, 1,
			    packet_length(ctx));
	return 0;
}

#undef packets

static __always_inline void tell_packet(context *ctx, const struct level *l, bool ethernet)
{
	struct flow_control *ctl = the_control();
	__u32 why = l->p.index ? PACKET_FIRST : 0;

	if (ctl && *(volatile __u64 *)&ctl->live)
		why |= PACKET_LIVE;
	if (wants_head(&l->p))
		why |= take_head(ctx);
	if (why)
		send_packet(ctx, why, ethernet);
}
#else
#define tell_packet(ctx, l, ethernet)                                                              \
	do {                                                                                       \
	} while (0)
#endif
