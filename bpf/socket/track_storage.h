/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Tracks in the kernel's socket storage: they come and go with their sockets. */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct socket_track);
} tracks SEC(".maps");

#define track_find(sk) ((struct socket_track *)bpf_sk_storage_get(&tracks, sk, NULL, 0))

/*
 * Fails not only when memory is short but also while another CPU makes or deletes the first
 * storage of the same socket (-EAGAIN in bpf_local_storage_update, which leaves
 * further attempts to the caller).
 */
#define TRACK_ATTEMPTS 4

static __always_inline struct socket_track *track_make(void *sk)
{
	struct socket_track *track;

	for (int attempt = 0; attempt < TRACK_ATTEMPTS; attempt++) {
		track = bpf_sk_storage_get(&tracks, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
		if (track)
			return track;
		count_loss(STORAGE_REFUSED);
	}
	return NULL;
}

/* Never used again on this host: cookies are counted up and need far less than 48 bits. */
#define track_id(track, sk)                                                                        \
	(bpf_get_socket_cookie(sk) + ((track) ? (__u64)(track)->incarnation << 48 : 0))

/* The kernel frees it with the socket. */
static __always_inline void track_drop(void *sk)
{
}

/* The kernel had no memory. The end of such a socket is still seen. */
static __always_inline void track_refused(void)
{
	count_loss(LOSS_TABLE_FULL);
}

static __always_inline bool track_was_refused(void)
{
	return false;
}
