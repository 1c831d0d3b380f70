/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Adds a sample to the moving average of its channel, and decides whether the channel is fired.
 * crates/act/steer/src/judge.rs is the same in Rust.
 *
 * Several CPUs may have samples of one channel. All of its state is one word, exchanged atomically:
 * each sample sees the average of the one before it, and each firing is reported once. A spin lock
 * would take twice the time (docs/performance.md).
 */
#pragma once
#include "maps.h"

/*
 * The word: the average, or the sum of the ring until that is full, above the lowest bits; in those
 * the number of samples until it is full, and then whether it stands fired.
 */
#define PHASE_BITS 7
#define PHASE_MASK ((1 << PHASE_BITS) - 1)
#define CALM	   64
#define FIRED	   65

/* Each failure means that another CPU has succeeded. */
#define TRIES 32

struct steer_verdict {
	__s64 before;
	__s64 after;
	__u64 count;
	/* Far enough to start the hold time again. */
	bool moved;
	bool fired;
	/* It did not before, or it did. */
	bool changed;
};

static __always_inline __u64 magnitude(__s64 value)
{
	return value < 0 ? -(__u64)value : (__u64)value;
}

static __always_inline __u64 limit(__s64 average, __u32 kind, __u32 amount)
{
	__u64 size = magnitude(average);

	if (kind == STEER_SHIFT)
		return size >> (amount & 63);
	/* In two steps, for the product would not fit. */
	return size / 10000 * amount + size % 10000 * amount / 10000;
}

static __always_inline __s64 mean(__s64 sum)
{
	__u64 size = magnitude(sum) / settings.depth;

	return sum < 0 ? -(__s64)size : (__s64)size;
}

/* Whether the average moved far enough to fire, or to stay fired. */
static __always_inline bool moved(bool active, const struct steer_verdict *v)
{
	__u64 move = magnitude(v->after - v->before);

	return move > limit(v->before, settings.threshold_kind, settings.threshold) ||
	       (active && move > limit(v->before, settings.release_kind, settings.release));
}

/* What a sample changes in the word. */
static __always_inline __u64 step(struct steer_channel *c, __u64 word, __s64 sample, __u64 now,
				  bool judged, struct steer_verdict *v)
{
	__u32 phase = word & PHASE_MASK;
	__s64 average = (__s64)word >> PHASE_BITS;

	v->before = v->after = average;
	v->moved = v->fired = v->changed = false;
	if (phase < CALM) {
		average += sample;
		phase++;
		if (phase >= settings.depth) {
			average = mean(average);
			phase = CALM;
		}
		return (__u64)average << PHASE_BITS | phase;
	}
	v->after = average + ((sample - average) >> (settings.smoothing & 63));
	if (judged) {
		bool active = phase == FIRED;

		v->moved = moved(active, v);
		v->fired = v->moved || (active && now < c->until);
		v->changed = v->fired != active;
	}
	return (__u64)v->after << PHASE_BITS | (v->fired ? FIRED : CALM);
}

/* 0, or the cause why the sample is not used. */
static __always_inline __u32 judge(__u32 channel, __s64 sample, __u64 now, struct steer_verdict *v)
{
	struct steer_channel *c = bpf_map_lookup_elem(&channels, &channel);
	struct steer_sample *ring = bpf_map_lookup_elem(&rings, &channel);
	__u64 word, place;
	bool judged;

	if (!c || !ring)
		return STEER_CHANNEL;
	word = *(volatile __u64 *)&c->word;
	judged = *(volatile __u64 *)&c->count >= (__u64)settings.depth + settings.warm_up;
	for (int i = 0; i < TRIES; i++) {
		__u64 next = step(c, word, sample, now, judged, v);
		__u64 found = __sync_val_compare_and_swap(&c->word, word, next);

		if (found == word)
			goto taken;
		word = found;
	}
	return STEER_CONTENDED;
taken:
	if (settings.hold && v->moved)
		c->until = now + settings.hold;
	if (v->fired)
		__sync_fetch_and_add(&c->fired, 1);
	place = __sync_fetch_and_add(&c->count, 1);
	v->count = place + 1;
	place %= settings.depth;
	asm volatile("" : "+r"(place));
	if (place < settings.depth) {
		ring[place].time = now;
		ring[place].value = sample;
	}
	return 0;
}
