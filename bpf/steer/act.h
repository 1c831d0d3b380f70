/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is done with a packet of a channel that stands fired. */
#pragma once
#include "packet.h"

/* TCX_NEXT and TC_ACT_UNSPEC: the programs behind this one run, and then the packet goes on. */
#define GO_ON	(-1)
#define DISCARD 2

#define MACS 12

/* net_device.flags and .state (include/uapi/linux/if.h, include/linux/netdevice.h) */
#define IFF_UP	   (1 << 0)
#define NO_CARRIER (1 << 2)

static __always_inline int replace_address(struct __sk_buff *skb, const struct steer_place *at)
{
	__u32 checksum = at->transport + (at->protocol == IPPROTO_UDP
						  ? __builtin_offsetof(struct udphdr, check)
						  : __builtin_offsetof(struct tcphdr, check));
	/* A UDP checksum of 0 means none, and must neither come nor go. */
	__u64 flags = BPF_F_PSEUDO_HDR | (at->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0);
	__u32 place = at->ip + (settings.address_six ? __builtin_offsetof(struct ipv6hdr, daddr)
						     : __builtin_offsetof(struct iphdr, daddr));
	__be32 old[4] = {}, new[4];
	__s64 difference;

	for (int i = 0; i < 4; i++)
		new[i] = ((const volatile __be32 *)settings.address)[i];
	if (settings.address_six) {
		if (bpf_skb_load_bytes(skb, place, old, sizeof(old)))
			return -1;
		difference = bpf_csum_diff(old, sizeof(old), new, sizeof(new), 0);
		if (bpf_l4_csum_replace(skb, checksum, 0, difference, flags))
			return -1;
		return bpf_skb_store_bytes(skb, place, new, sizeof(new), 0);
	}
	if (bpf_skb_load_bytes(skb, place, old, sizeof(old[0])))
		return -1;
	if (bpf_l4_csum_replace(skb, checksum, old[0], new[0], flags | sizeof(old[0])))
		return -1;
	if (bpf_l3_csum_replace(skb, at->ip + __builtin_offsetof(struct iphdr, check), old[0],
				new[0], sizeof(old[0])))
		return -1;
	return bpf_skb_store_bytes(skb, place, new, sizeof(new[0]), 0);
}

static __always_inline int replace_port(struct __sk_buff *skb, const struct steer_place *at)
{
	/* TCP and UDP have it at the same place. */
	__u32 place = at->transport + __builtin_offsetof(struct udphdr, dest);
	__u32 checksum = at->transport + (at->protocol == IPPROTO_UDP
						  ? __builtin_offsetof(struct udphdr, check)
						  : __builtin_offsetof(struct tcphdr, check));
	__u64 flags = at->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__be16 old, new = settings.port;

	if (bpf_skb_load_bytes(skb, place, &old, sizeof(old)))
		return -1;
	if (bpf_l4_csum_replace(skb, checksum, old, new, flags | sizeof(old)))
		return -1;
	return bpf_skb_store_bytes(skb, place, &new, sizeof(new), 0);
}

/* Whether the packet has what is to be rewritten. */
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

/* 0: the target takes the packet; or why not. */
static __always_inline __u32 target_takes(struct __sk_buff *skb,
					  const struct steer_control *control)
{
	__u32 target = control->target, mtu = 0;
	long answer;

	if (!target)
		return STEER_NO_TARGET;
	/* The kernel drops without a word what is sent to an interface that is down. */
	if (settings.looks && (!is_up(control->flags[0]) || !is_up(control->flags[1]) ||
			       !has_carrier(control->state)))
		return STEER_NO_TARGET;
	/* Also says whether the interface is still there, before user space has heard of it. */
	answer = bpf_check_mtu(skb, target, &mtu, 0, 0);
	if (answer < 0)
		return STEER_NO_TARGET;
	return answer ? STEER_TOO_LONG : 0;
}

static __always_inline int redirect(struct __sk_buff *skb, const struct steer_place *at,
				    const struct steer_control *control, __u32 *became)
{
	__u32 target = control->target;
	__u8 macs[MACS];

	*became = target_takes(skb, control);
	if (*became)
		return GO_ON;
	*became = STEER_REFUSED;
	if (!can_rewrite(at))
		return GO_ON;
	if (settings.rewrite & STEER_REWRITE_MACS) {
		__builtin_memcpy(macs, control->macs, MACS);
		if (bpf_skb_store_bytes(skb, 0, macs, MACS, 0))
			return GO_ON;
	}
	/* The first writing has made the headers writable; after it none of these fails. */
	if (settings.rewrite & STEER_REWRITE_ADDRESS && replace_address(skb, at))
		return GO_ON;
	if (settings.rewrite & STEER_REWRITE_PORT && replace_port(skb, at))
		return GO_ON;
	*became = STEER_ACTED;
	return control->peer ? bpf_redirect_peer(target, 0) : bpf_redirect(target, 0);
}

/* A copy; what is changed for it is changed back, so that the original goes on as it came. */
static __always_inline int mirror(struct __sk_buff *skb, const struct steer_control *control,
				  __u32 *became)
{
	__u32 target = control->target;
	__u8 macs[MACS], own[MACS];

	*became = target_takes(skb, control);
	if (*became)
		return GO_ON;
	*became = STEER_REFUSED;
	if (settings.rewrite & STEER_REWRITE_MACS) {
		__builtin_memcpy(macs, control->macs, MACS);
		if (bpf_skb_load_bytes(skb, 0, own, MACS) ||
		    bpf_skb_store_bytes(skb, 0, macs, MACS, 0))
			return GO_ON;
	}
	if (!bpf_clone_redirect(skb, target, 0))
		*became = STEER_ACTED;
	if (settings.rewrite & STEER_REWRITE_MACS)
		bpf_skb_store_bytes(skb, 0, own, MACS, 0);
	return GO_ON;
}

/* The verdict on the packet, and what became of it. */
static __always_inline int act(struct __sk_buff *skb, const struct steer_place *at, __u64 now,
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
		return redirect(skb, at, state, became);
	case STEER_MIRROR:
		return mirror(skb, state, became);
	case STEER_MARK:
		skb->mark = settings.mark;
		*became = STEER_ACTED;
		return GO_ON;
	}
	*became = STEER_ACTED;
	return DISCARD;
}
