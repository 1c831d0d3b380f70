/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A packet for user space: a head, and some of its bytes, straight from the packet.
 *
 * Ring reservations have constant sizes: the smallest of a few that fits. A file that includes
 * this defines
 *
 *   SEND_HEAD              type of the head
 *   SEND_FILL(head)        fills it
 *   SEND_LOAD(to, bytes)   loads bytes from the start of the packet; negative if that fails
 *   SEND_FLAGS             how user space is woken
 *
 * and has the ring `packets`, the labels `full` (the ring is full) and `failed`, and `bytes`,
 * an
 * __u64 from 1 to PACKET_MOST.
 */
#pragma once

/*
 * `bytes` is from 1 to `size`, a power of two; the mask does not change it, but shows this to
 * every verifier.
 */
#define SEND_IN(size)                                                                              \
	do {                                                                                       \
		struct {                                                                           \
			SEND_HEAD head;                                                            \
			__u8 data[size];                                                           \
		} *to = bpf_ringbuf_reserve(&packets, sizeof(*to), 0);                             \
                                                                                                   \
		if (!to)                                                                           \
			goto full;                                                                 \
		SEND_FILL(&to->head);                                                              \
		asm volatile("" : "+r"(bytes));                                                    \
		bytes = ((bytes - 1) & ((size) - 1)) + 1;                                          \
		if (SEND_LOAD(to->data, bytes) < 0) {                                              \
			bpf_ringbuf_discard(to, BPF_RB_NO_WAKEUP);                                 \
			goto failed;                                                               \
		}                                                                                  \
		bpf_ringbuf_submit(to, SEND_FLAGS);                                                \
		return 0;                                                                          \
	} while (0)

#define SEND()                                                                                     \
	do {                                                                                       \
		if (bytes <= 128)                                                                  \
			SEND_IN(128);                                                              \
		if (bytes <= 512)                                                                  \
			SEND_IN(512);                                                              \
		if (bytes <= 2048)                                                                 \
			SEND_IN(2048);                                                             \
		if (bytes <= 16384)                                                                \
			SEND_IN(16384);                                                            \
		SEND_IN(PACKET_MOST);                                                              \
	} while (0)
