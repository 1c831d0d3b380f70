/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Records to user space by perf events, for kernels without ring buffers (before 5.8). A record is
 * built in memory of the CPU. A program that interrupts another one may build a record, too, so
 * there are a few buffers, and an interrupting program frees all that it took.
 */
#pragma once

#define RECORD_PLACES 4 /* a power of two */

struct record_places {
	__u32 taken;
	__u32 pad;
	struct socket_record records[RECORD_PLACES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct record_places);
} places SEC(".maps");

static __always_inline struct record_places *record_places(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&places, &zero);
}

/* A mask that the compiler cannot remove: old verifiers do not understand the comparison. */
static __always_inline struct socket_record *record_at(struct record_places *places, __u64 place)
{
	asm volatile("" : "+r"(place));
	return &places->records[place & (RECORD_PLACES - 1)];
}

static __always_inline struct socket_record *record_reserve(void)
{
	struct record_places *places = record_places();
	__u32 place;

	if (!places)
		return NULL;
	place = places->taken;
	if (place >= RECORD_PLACES) {
		count_loss(LOSS_RING_FULL);
		return NULL;
	}
	*(volatile __u32 *)&places->taken = place + 1;
	return record_at(places, place);
}

/* The program itself sends it, because only it has the context that the helper needs. */
static __always_inline void record_submit(struct socket_record *record)
{
}

static __always_inline __u32 records_taken(void)
{
	struct record_places *places = record_places();

	return places ? places->taken : 0;
}

static __always_inline void records_send(void *context, __u32 before)
{
	struct record_places *places = record_places();

	if (!places || before >= RECORD_PLACES || places->taken == before)
		return;
	/* The kernel reports lost records itself, so they are not counted here. */
	if (bpf_perf_event_output(context, &ended, BPF_F_CURRENT_CPU, record_at(places, before),
				  sizeof(struct socket_record)))
		count_loss(LOSS_RING_FULL);
	*(volatile __u32 *)&places->taken = before;
}

/* A program makes its record within this. */
#define WITH_RECORD(context, what)                                                                 \
	({                                                                                         \
		const __u32 before = records_taken();                                              \
		what;                                                                              \
		records_send(context, before);                                                     \
	})
