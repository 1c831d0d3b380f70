/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Leaving packets out by their addresses: docs/accounting.md section 7. */
#pragma once
#include "decode.h"

/* The mark of the longest prefix that contains the address; 0 if there is none. */
static __always_inline __u32 address_mark(struct address_key *key, const __u8 *address)
{
	__u32 *mark;

	if (key->network == KIND_IPV4) {
		__builtin_memcpy(key->address, address + 12, 4);
		key->prefix_length = ADDRESS_KEY_HEAD + 32;
	} else {
		__builtin_memcpy(key->address, address, 16);
		key->prefix_length = ADDRESS_KEY_HEAD + 128;
	}
	mark = bpf_map_lookup_elem(&addresses, key);
	return mark ? *mark : 0;
}

/*
 * Whether a set leaves out the decoded level. Source and destination are treated alike, so the
 * canonical order of the key is as good as the packet's.
 */
__noinline int addresses_leave_out(__u32 set)
{
	struct level *l = the_level();
	struct address_key key = {};
	__u32 lo, hi;

	if (!l)
		return 0;
	key.network = l->p.key.kind & KIND_NETWORK;
	if (!key.network)
		return !!(set & ADDRESSES_HAS_INCLUDE);
	key.generation = !!(set & ADDRESSES_GENERATION);
	lo = address_mark(&key, l->p.key.lo);
	if (lo == ADDRESS_EXCLUDE)
		return 1;
	hi = address_mark(&key, l->p.key.hi);
	if (hi == ADDRESS_EXCLUDE)
		return 1;
	return (set & ADDRESSES_HAS_INCLUDE) && lo != ADDRESS_INCLUDE && hi != ADDRESS_INCLUDE;
}

/*
 * The same for the current set. Its word is read once, so that all bits belong together. The
 * generation in it does not change while a program that has read it may be running.
 */
static __always_inline bool left_out_by_address(void)
{
	struct flow_control *ctl;
	__u32 set;

	if (!settings.addresses)
		return false;
	ctl = the_control();
	if (!ctl)
		return false;
	set = *(volatile __u64 *)&ctl->address_set;
	return (set & ADDRESSES_SET) && addresses_leave_out(set);
}
