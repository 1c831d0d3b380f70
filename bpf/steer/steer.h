/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the steering program and user space share; crates/capture/kernel/src/bindings/steer.rs is
 * made of it (tests/bindings.rs), and crates/act/steer says in Rust what the program does, to the
 * bit.
 */
#pragma once
#include <linux/types.h>

/* Largest magnitude of a sample: the sum of a whole ring fits the 57 bits that judge.h has. */
#define STEER_MOST ((1ULL << 50) - 1)
/* Samples of a ring at most. */
#define STEER_DEPTH 64
/* Characters of a decimal number at most. */
#define STEER_TEXT 20
/* Digits behind the decimal point that count, as a power of ten. */
#define STEER_DIGITS 1000000000ULL

/* What offsets begin at. */
enum steer_from {
	STEER_FROM_PAYLOAD,
	STEER_FROM_IP,
	STEER_FROM_FRAME,
};

enum steer_encoding {
	STEER_UNSIGNED,
	STEER_SIGNED,
	STEER_FLOAT,
	STEER_DOUBLE,
	STEER_DECIMAL,
};

enum steer_threshold {
	STEER_SHIFT,
	/* Ten-thousandths. */
	STEER_PARTS,
};

enum steer_action {
	STEER_REPORT,
	STEER_REDIRECT,
	STEER_MIRROR,
	STEER_MARK,
	STEER_DROP,
};

/* steer_settings.rewrite */
#define STEER_REWRITE_MACS    1
#define STEER_REWRITE_ADDRESS 2
#define STEER_REWRITE_PORT    4

/* What happens to packets: indices of the counters. */
enum steer_count {
	/* Packets that the expression is true for: each is sampled, or untouched by one cause. */
	STEER_MATCHED,
	STEER_SAMPLED,
	STEER_AGGREGATED,
	STEER_NO_PAYLOAD,
	STEER_FRAGMENT,
	STEER_SHORT,
	STEER_BEYOND,
	STEER_CHANNEL,
	STEER_NO_NUMBER,
	STEER_OVERFLOW,
	STEER_CONTENDED,
	/* Samples while the channel is fired: each is one of those that follow. */
	STEER_FIRED,
	STEER_ACTED,
	STEER_REPORTED,
	STEER_NO_TARGET,
	STEER_TOO_LONG,
	STEER_REFUSED,
	STEER_UNWATCHED,
	/* Events that did not fit. */
	STEER_EVENTS_LOST,
	STEER_COUNTS,
};

/* Constants of a program: the verifier removes the code of disabled features. */
struct steer_settings {
	/* ns */
	__u64 hold;
	/* Between two ticks, and CLOCK_MONOTONIC at tick 0, ns. */
	__u64 tick_ns;
	__u64 tick_0;
	/* ns without a heartbeat after which the program stops acting; 0: it never stops. */
	__u64 patience;
	__u32 channels;
	__u32 depth;
	__u32 channel_offset;
	__u32 value_offset;
	__u32 threshold;
	__u32 release;
	__u32 warm_up;
	__u32 mark;
	__u8 from;
	/* Packets begin with an Ethernet header, else with that of IP. */
	__u8 ethernet;
	__u8 channel_width;
	__u8 channel_encoding;
	__u8 channel_little;
	__u8 value_width;
	__u8 value_encoding;
	__u8 value_little;
	/* Bits behind the point of a sample. */
	__u8 fraction;
	__u8 smoothing;
	__u8 threshold_kind;
	__u8 release_kind;
	__u8 action;
	__u8 rewrite;
	__u8 exact_clock;
	__u8 address_six;
	/* Network order. */
	__u16 port;
	/* Whether the program reads the target's state where steer_control says. */
	__u8 looks;
	__u8 pad[5];
	__u8 address[16];
};

_Static_assert(sizeof(struct steer_settings) == 104, "steer_settings");

/* Written by user space while the program runs. */
struct steer_control {
	/* CLOCK_MONOTONIC, ns. */
	__u64 heartbeat;
	/* Index of the interface to send to; 0: it is not there. */
	__u32 target;
	/* Send directly to the other end of the target, a veth in another namespace. */
	__u32 peer;
	/* Destination and source, as they stand in a frame: 12 bytes, written as words. */
	__u32 macs[3];
	__u32 pad;
	/* Where the kernel has the flags of those that must be up, and the state of that which must
	 * have a carrier; 0: none. */
	__u64 flags[2];
	__u64 state;
};

_Static_assert(sizeof(struct steer_control) == 56, "steer_control");

/* An interface, and what device.bpf.c finds: addresses in the kernel, 0 when they are not known. */
struct steer_device {
	__u32 ifindex;
	__u32 veth;
	/* Of net_device.flags: its own, and of a veth those of its other end. */
	__u64 flags[2];
	/* Of net_device.state. */
	__u64 state;
};

_Static_assert(sizeof(struct steer_device) == 32, "steer_device");

/* A channel: one cache line, so that channels do not disturb each other. */
struct steer_channel {
	/* See judge.h. */
	__u64 word;
	__u64 count;
	/* Samples while it was fired. */
	__u64 fired;
	/* It stays fired until then. */
	__u64 until;
	__u64 pad[4];
};

_Static_assert(sizeof(struct steer_channel) == 64, "steer_channel");

struct steer_sample {
	/* CLOCK_MONOTONIC, ns. */
	__u64 time;
	__s64 value;
};

/* Sent when a channel fires and when it is released. */
struct steer_event {
	__u64 time;
	__s64 value;
	__s64 before;
	__s64 after;
	__u64 count;
	__u32 channel;
	__u32 fired;
};

_Static_assert(sizeof(struct steer_event) == 48, "steer_event");
