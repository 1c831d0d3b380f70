/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Changes the headers of a packet at tc. After the first change has succeeded none fails. */
#pragma once
#include "packet.h"

static __always_inline int replace_macs(steer_context *ctx, const __u8 *macs)
{
	return bpf_skb_store_bytes(ctx, 0, macs, MACS, 0);
}

static __always_inline int replace_address(steer_context *ctx, const struct steer_place *at)
{
	__u32 checksum = at->transport + (at->protocol == IPPROTO_UDP
						  ? __builtin_offsetof(struct udphdr, check)
						  : __builtin_offsetof(struct tcphdr, check));
	/* A UDP checksum of 0 means none: do not add one, and do not make one 0. */
	__u64 flags = BPF_F_PSEUDO_HDR | (at->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0);
	__u32 place = at->ip + (settings.address_six ? __builtin_offsetof(struct ipv6hdr, daddr)
						     : __builtin_offsetof(struct iphdr, daddr));
	__be32 old[4] = {}, new[4];
	__s64 difference;

	for (int i = 0; i < 4; i++)
		new[i] = ((const volatile __be32 *)settings.address)[i];
	if (settings.address_six) {
		if (bpf_skb_load_bytes(ctx, place, old, sizeof(old)))
			return -1;
		difference = bpf_csum_diff(old, sizeof(old), new, sizeof(new), 0);
		if (bpf_l4_csum_replace(ctx, checksum, 0, difference, flags))
			return -1;
		return bpf_skb_store_bytes(ctx, place, new, sizeof(new), 0);
	}
	if (bpf_skb_load_bytes(ctx, place, old, sizeof(old[0])))
		return -1;
	if (bpf_l4_csum_replace(ctx, checksum, old[0], new[0], flags | sizeof(old[0])))
		return -1;
	if (bpf_l3_csum_replace(ctx, at->ip + __builtin_offsetof(struct iphdr, check), old[0],
				new[0], sizeof(old[0])))
		return -1;
	return bpf_skb_store_bytes(ctx, place, new, sizeof(new[0]), 0);
}

static __always_inline int replace_port(steer_context *ctx, const struct steer_place *at)
{
	/* TCP and UDP have it at the same place. */
	__u32 place = at->transport + __builtin_offsetof(struct udphdr, dest);
	__u32 checksum = at->transport + (at->protocol == IPPROTO_UDP
						  ? __builtin_offsetof(struct udphdr, check)
						  : __builtin_offsetof(struct tcphdr, check));
	__u64 flags = at->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__be16 old, new = settings.port;

	if (bpf_skb_load_bytes(ctx, place, &old, sizeof(old)))
		return -1;
	if (bpf_l4_csum_replace(ctx, checksum, old, new, flags | sizeof(old)))
		return -1;
	return bpf_skb_store_bytes(ctx, place, &new, sizeof(new), 0);
}
