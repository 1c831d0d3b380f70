/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A packet in the detector: read channel and value, judge, act, count. */
#pragma once
#include "act.h"
#include "judge.h"
#include "value.h"

static __always_inline struct steer_number read_channel(steer_context *ctx,
							const struct steer_place *at)
{
	__u32 offset = at->base + settings.channel_offset;
	__u64 raw;

	if (!settings.channel_width)
		return (struct steer_number){};
	if (offset + settings.channel_width > at->end ||
	    !read_bytes(ctx, offset, settings.channel_width, settings.channel_little, &raw))
		return no_number(STEER_BEYOND);
	if (raw >= settings.channels)
		return no_number(STEER_CHANNEL);
	return (struct steer_number){.value = raw};
}

static __always_inline struct steer_number read_decimal_value(steer_context *ctx, __u32 offset,
							      __u32 end)
{
	__u8 text[STEER_TEXT + 4] = {};
	__u32 length;

	if (offset >= end)
		return no_number(STEER_BEYOND);
	length = end - offset;
	if (length > settings.value_width)
		length = settings.value_width;
	if (!read_text(ctx, offset, length, text))
		return no_number(STEER_BEYOND);
	return decimal_number(text);
}

static __always_inline struct steer_number read_value(steer_context *ctx,
						      const struct steer_place *at)
{
	__u32 offset = at->base + settings.value_offset;
	__u64 raw;

	if (settings.value_encoding == STEER_DECIMAL)
		return read_decimal_value(ctx, offset, at->end);
	if (offset + settings.value_width > at->end ||
	    !read_bytes(ctx, offset, settings.value_width, settings.value_little, &raw))
		return no_number(STEER_BEYOND);
	switch (settings.value_encoding) {
	case STEER_SIGNED:
		return signed_number(raw, settings.value_width);
	case STEER_FLOAT:
		return float_number(raw);
	case STEER_DOUBLE:
		return double_number(raw);
	}
	return whole_number(raw, false);
}

static __always_inline void report(struct steer_counters *counts, __u32 channel, __s64 value,
				   __u64 now, const struct steer_verdict *v)
{
	struct steer_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		counts->of[STEER_EVENTS_LOST]++;
		return;
	}
	event->time = now;
	event->value = value;
	event->before = v->before;
	event->after = v->after;
	event->count = v->count;
	event->channel = channel;
	event->fired = v->fired;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline void count(struct steer_counters *counts, __u32 which)
{
	if (which < STEER_COUNTS)
		counts->of[which]++;
}

static __always_inline int steer_packet(steer_context *ctx)
{
	struct steer_verdict verdict;
	struct steer_place at = {};
	struct steer_number channel, value;
	struct steer_counters *counts;
	__u32 zero = 0, cause, became;
	__u64 now;
	int answer;

	counts = bpf_map_lookup_elem(&counters, &zero);
	if (!counts)
		return GO_ON;
	counts->of[STEER_MATCHED]++;
	if (is_aggregated(ctx)) {
		counts->of[STEER_AGGREGATED]++;
		return GO_ON;
	}
	straighten(ctx);
	cause = locate(ctx, &at);
	if (cause) {
		count(counts, cause);
		return GO_ON;
	}
	channel = read_channel(ctx, &at);
	if (channel.cause) {
		count(counts, channel.cause);
		return GO_ON;
	}
	value = read_value(ctx, &at);
	if (value.cause) {
		count(counts, value.cause);
		return GO_ON;
	}
	now = settings.exact_clock ? bpf_ktime_get_ns()
				   : bpf_jiffies64() * settings.tick_ns + settings.tick_0;
	cause = judge(channel.value, value.value, now, &verdict);
	if (cause) {
		count(counts, cause);
		return GO_ON;
	}
	counts->of[STEER_SAMPLED]++;
	if (verdict.changed)
		report(counts, channel.value, value.value, now, &verdict);
	if (!verdict.fired)
		return GO_ON;
	counts->of[STEER_FIRED]++;
	answer = act(ctx, &at, now, &became);
	count(counts, became);
	return answer;
}
