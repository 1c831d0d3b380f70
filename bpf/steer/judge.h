/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A sample into the ring and the moving average of its channel, and whether the channel stands
 * fired. crates/skua-steer/src/judge.rs is the same in Rust.
 */
#pragma once
#include "maps.h"

struct steer_verdict {
	__s64 before;
	__s64 after;
	__u64 count;
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

/* Whether it stands fired after a move of the average. */
static __always_inline bool stands(struct steer_channel *c, const struct steer_verdict *v,
				   __u64 now)
{
	__u64 move = magnitude(v->after - v->before);

	if (move > limit(v->before, settings.threshold_kind, settings.threshold) ||
	    (c->active && move > limit(v->before, settings.release_kind, settings.release))) {
		c->until = now + settings.hold;
		return true;
	}
	return c->active && now < c->until;
}

/* Several CPUs may have samples of one channel: a lock keeps each step whole and in order. No
 * helper may be called under it. */
static __always_inline bool judge(__u32 channel, __s64 sample, __u64 now, struct steer_verdict *v)
{
	struct steer_channel *c = bpf_map_lookup_elem(&channels, &channel);
	struct steer_sample *ring = bpf_map_lookup_elem(&rings, &channel);
	__u32 next;
	__u64 count;

	if (!c || !ring)
		return false;
	bpf_spin_lock(&c->lock);
	next = c->next;
	if (next >= settings.depth)
		next = 0;
	ring[next].time = now;
	ring[next].value = sample;
	c->next = next + 1;
	count = c->count + 1;
	c->count = count;
	v->before = v->after = c->ewma;
	v->fired = false;
	v->changed = false;
	if (count < settings.depth) {
		c->ewma += sample;
	} else if (count == settings.depth) {
		c->ewma = mean(c->ewma + sample);
	} else {
		v->after = v->before + ((sample - v->before) >> (settings.smoothing & 63));
		c->ewma = v->after;
		if (count > (__u64)settings.depth + settings.warm_up) {
			v->fired = stands(c, v, now);
			v->changed = v->fired != c->active;
			c->active = v->fired;
			c->fired += v->fired;
		}
	}
	bpf_spin_unlock(&c->lock);
	v->count = count;
	return true;
}
