/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Actions on packets of a channel that has fired. */
#pragma once
#include "packet.h"
#ifndef STEER_XDP
#include "rewrite.h"
#endif

/* net_device.flags and .state (include/uapi/linux/if.h, include/linux/netdevice.h) */
#define IFF_UP	   (1 << 0)
#define NO_CARRIER (1 << 2)

/* Whether the packet has the headers that the action rewrites. */
static __always_inline bool can_rewrite(const struct steer_place *at)
{
	if (!(settings.rewrite & ~STEER_REWRITE_MACS))
		return true;
	if (at->protocol != IPPROTO_UDP && at->protocol != IPPROTO_TCP)
		return false;
	return !(settings.rewrite & STEER_REWRITE_ADDRESS) || at->six == settings.address_six;
}

static __always_inline bool is_up(__u64 place)
{
	__u32 flags;

	if (!place)
		return true;
	return !bpf_probe_read_kernel(&flags, sizeof(flags), (void *)(long)place) && flags & IFF_UP;
}

static __always_inline bool has_carrier(__u64 place)
{
	__u64 state;

	if (!place)
		return true;
	return !bpf_probe_read_kernel(&state, sizeof(state), (void *)(long)place) &&
	       !(state & NO_CARRIER);
}

/* 0: the target can send the packet; else the cause. */
static __always_inline __u32 target_takes(steer_context *ctx, const struct steer_control *control)
{
	__u32 target = control->target, mtu = 0;
	long answer;

	if (!target)
		return STEER_NO_TARGET;
	/* The kernel silently drops packets that are sent to an interface that is down. */
	if (settings.looks && (!is_up(control->flags[0]) || !is_up(control->flags[1]) ||
			       !has_carrier(control->state)))
		return STEER_NO_TARGET;
	/* This also shows that the interface was deleted, before user space knows it. */
	answer = bpf_check_mtu(ctx, target, &mtu, 0, 0);
	if (answer < 0)
		return STEER_NO_TARGET;
	return answer ? STEER_TOO_LONG : 0;
}

static __always_inline int redirect(steer_context *ctx, const struct steer_place *at,
				    const struct steer_control *control, __u32 *became)
{
	__u32 target = control->target;
	__u8 macs[MACS];

	*became = target_takes(ctx, control);
	if (*became)
		return GO_ON;
	*became = STEER_REFUSED;
	if (!can_rewrite(at))
		return GO_ON;
	if (settings.rewrite & STEER_REWRITE_MACS) {
		__builtin_memcpy(macs, control->macs, MACS);
		if (replace_macs(ctx, macs))
			return GO_ON;
	}
	/* The first write has made the headers writable; later ones do not fail. */
	if (settings.rewrite & STEER_REWRITE_ADDRESS && replace_address(ctx, at))
		return GO_ON;
	if (settings.rewrite & STEER_REWRITE_PORT && replace_port(ctx, at))
		return GO_ON;
	*became = STEER_ACTED;
#ifndef STEER_XDP
	if (control->peer)
		return bpf_redirect_peer(target, 0);
#endif
	return bpf_redirect(target, 0);
}

#ifndef STEER_XDP
/* Sends a copy; changes for it are undone, so that the original stays as it came. */
static __always_inline int mirror(steer_context *ctx, const struct steer_control *control,
				  __u32 *became)
{
	__u32 target = control->target;
	__u8 macs[MACS], own[MACS];

	*became = target_takes(ctx, control);
	if (*became)
		return GO_ON;
	*became = STEER_REFUSED;
	if (settings.rewrite & STEER_REWRITE_MACS) {
		__builtin_memcpy(macs, control->macs, MACS);
		if (bpf_skb_load_bytes(ctx, 0, own, MACS) ||
		    bpf_skb_store_bytes(ctx, 0, macs, MACS, 0))
			return GO_ON;
	}
	if (!bpf_clone_redirect(ctx, target, 0))
		*became = STEER_ACTED;
	if (settings.rewrite & STEER_REWRITE_MACS)
		bpf_skb_store_bytes(ctx, 0, own, MACS, 0);
	return GO_ON;
}
#endif

/* The verdict on the packet, and what happened to it. */
static __always_inline int act(steer_context *ctx, const struct steer_place *at, __u64 now,
			       __u32 *became)
{
	struct steer_control *state;
	__u32 zero = 0;

	*became = STEER_REPORTED;
	if (settings.action == STEER_REPORT)
		return GO_ON;
	*became = STEER_UNWATCHED;
	state = bpf_map_lookup_elem(&control, &zero);
	if (!state ||
	    (settings.patience && (__s64)(now - state->heartbeat) > (__s64)settings.patience))
		return GO_ON;
	switch (settings.action) {
	case STEER_REDIRECT:
		return redirect(ctx, at, state, became);
#ifndef STEER_XDP
	case STEER_MIRROR:
		return mirror(ctx, state, became);
	case STEER_MARK:
		ctx->mark = settings.mark;
		*became = STEER_ACTED;
		return GO_ON;
#endif
	}
	*became = STEER_ACTED;
	return DISCARD;
}
