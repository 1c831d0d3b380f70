/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Settings and maps. The loader sets sizes and read-only data before loading. */
#pragma once
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "steer.h"

const volatile struct steer_settings settings = {
	.channels = 64,
	.depth = 10,
	.ethernet = 1,
	.channel_width = 2,
	.value_width = 4,
	.fraction = 8,
	.smoothing = 3,
	.threshold = 3,
	.release = 3,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct steer_channel);
} channels SEC(".maps");

/* The last samples of each channel, settings.depth of them; nothing is decided by them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, STEER_DEPTH * sizeof(struct steer_sample));
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_control);
} control SEC(".maps");

struct steer_counters {
	__u64 of[STEER_COUNTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");
