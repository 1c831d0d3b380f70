// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The steering program with a spin lock for each channel in place of compare-and-swap, for
// comparison.
#define judge judge_by_swap
#include "../../bpf/steer/judge.h"
#undef judge

struct locked_channel {
	struct bpf_spin_lock lock;
	__u32 next;
	__u64 count;
	__u64 fired;
	__s64 ewma;
	__u64 until;
	__u32 active;
	__u32 pad[5];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct locked_channel);
} locked_channels SEC(".maps");

static __always_inline __u32 judge(__u32 channel, __s64 sample, __u64 now, struct steer_verdict *v)
{
	struct locked_channel *c = bpf_map_lookup_elem(&locked_channels, &channel);
	struct steer_sample *ring = bpf_map_lookup_elem(&rings, &channel);
	__u32 next;
	__u64 count;

	if (!c || !ring)
		return STEER_CHANNEL;
	bpf_spin_lock(&c->lock);
	next = c->next;
	if (next >= settings.depth)
		next = 0;
	ring[next].time = now;
	ring[next].value = sample;
	c->next = next + 1;
	count = ++c->count;
	v->before = v->after = c->ewma;
	v->fired = v->changed = false;
	if (count < settings.depth) {
		c->ewma += sample;
	} else if (count == settings.depth) {
		c->ewma = mean(c->ewma + sample);
	} else {
		v->after = v->before + ((sample - v->before) >> (settings.smoothing & 63));
		c->ewma = v->after;
		if (count > (__u64)settings.depth + settings.warm_up) {
			v->moved = moved(c->active, v);
			if (v->moved)
				c->until = now + settings.hold;
			v->fired = v->moved || (c->active && now < c->until);
			v->changed = v->fired != c->active;
			c->active = v->fired;
			c->fired += v->fired;
		}
	}
	bpf_spin_unlock(&c->lock);
	v->count = count;
	return 0;
}

#include "../../bpf/steer/steer.bpf.c"
