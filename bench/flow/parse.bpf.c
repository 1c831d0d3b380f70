// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Our flow program without its table: reads the packet, makes the key, and lets it go. */
#define SKUA_LINEAR
#include "../../bpf/flow/observe.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int parse(struct __sk_buff *skb)
{
	struct level *l = the_level();

	if (l && !needs_care(skb, true))
		decode_fast(skb, &l->p, true, DIR_INGRESS, 0);
	return -1; /* TCX_NEXT */
}
