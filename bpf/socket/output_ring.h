/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Records to user space by a ring buffer. */
#pragma once

/*
 * Wakes user space when the ring is a quarter full, and again at each further quarter; never for
 * one record. Several CPUs may pass the mark at once, so some records around it do.
 */
static __always_inline __u64 ring_flags(void)
{
	const __u64 unread = bpf_ringbuf_query(&ended, BPF_RB_AVAIL_DATA);
	const __u32 quarter = settings.wake_at;

	if (unread >= quarter && (__u32)unread % quarter < 16 * sizeof(struct socket_record))
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

static __always_inline struct socket_record *record_reserve(void)
{
	struct socket_record *record = bpf_ringbuf_reserve(&ended, sizeof(*record), 0);

	if (!record)
		count_loss(LOSS_RING_FULL);
	return record;
}

static __always_inline void record_submit(struct socket_record *record)
{
	bpf_ringbuf_submit(record, ring_flags());
}

/* A program makes its record within this. */
#define WITH_RECORD(context, what) (what)
