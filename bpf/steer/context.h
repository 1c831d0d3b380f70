/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A packet in the context of a program at tc, or with STEER_XDP, which a benchmark sets
 * (bench/steer/xdp.bpf.c), one at XDP.
 */
#pragma once
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Bytes of a packet that are read directly: headers may take as many. */
#define HEADERS 256
/* Bytes of a frame's two addresses. */
#define MACS 12

#ifdef STEER_XDP
typedef struct xdp_md steer_context;

#define GO_ON	XDP_PASS
#define DISCARD XDP_DROP

/* Programs that do not declare support for packets in fragments get none. */
static __always_inline __u32 packet_length(const steer_context *ctx)
{
	return ctx->data_end - ctx->data;
}

static __always_inline bool copy_bytes(steer_context *ctx, __u32 offset, void *to, __u32 length)
{
	return !bpf_xdp_load_bytes(ctx, offset, to, length);
}

/* Interfaces without Ethernet headers have no XDP. */
static __always_inline __be16 packet_protocol(const steer_context *ctx)
{
	return 0;
}

/* One of several datagrams: the others would be steered with it. */
static __always_inline bool is_aggregated(const steer_context *ctx)
{
	return false;
}

static __always_inline void straighten(steer_context *ctx)
{
}
#else
typedef struct __sk_buff steer_context;

/* TCX_NEXT and TC_ACT_UNSPEC: the programs behind this one run, and then the packet goes on. */
#define GO_ON	(-1)
#define DISCARD 2 /* TC_ACT_SHOT */

static __always_inline __u32 packet_length(const steer_context *ctx)
{
	return ctx->len;
}

static __always_inline bool copy_bytes(steer_context *ctx, __u32 offset, void *to, __u32 length)
{
	return !bpf_skb_load_bytes(ctx, offset, to, length);
}

static __always_inline __be16 packet_protocol(const steer_context *ctx)
{
	return ctx->protocol;
}

/* One of several datagrams: the others would be steered with it. */
static __always_inline bool is_aggregated(const steer_context *ctx)
{
	return ctx->gso_segs > 1;
}

/* Moves the bytes that are read directly into the linear part. Nothing else changes. */
static __always_inline void straighten(steer_context *ctx)
{
	__u32 linear = ctx->data_end - ctx->data;

	if (linear < HEADERS && linear < ctx->len)
		bpf_skb_pull_data(ctx, ctx->len < HEADERS ? ctx->len : HEADERS);
}
#endif
