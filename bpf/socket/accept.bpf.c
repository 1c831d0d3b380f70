// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* The process that accepts, where the kernel has fexit (5.15 on most distributions). */
#define SKUA_DIRECT
#include "track.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* (socket, flags, error, by the kernel), since 6.10 (socket, arguments); then what it returns. */
SEC("fexit/inet_csk_accept")
int socket_accept(unsigned long long *context)
{
	struct socket_track *track;
	struct sock *sk;

	if (settings.accept_args == 4)
		sk = (struct sock *)context[4];
	else
		sk = (struct sock *)context[2];
	if (!sk)
		return 0;
	track = track_find(sk);
	if (!track)
		return 0;
	if (!track_is_of(track, sk)) /* TCP fast open: accepted before it is established */
		track_accepted(track, sk);
	track_owner(track, RULE_ACCEPT);
	return 0;
}
