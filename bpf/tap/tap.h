/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the tap's programs and user space share; crates/capture/kernel/src/bindings/tap.rs is made
 * of it (tests/bindings.rs).
 */
#pragma once
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define GO_ON -1 /* TCX_NEXT, and TC_ACT_UNSPEC for clsact */
#define DROP  2	 /* TCX_DROP, TC_ACT_SHOT */

/* Which sets are not empty, and other options: settings.flags. */
#define TAP_HOSTS4    (1 << 0)
#define TAP_HOSTS6    (1 << 1)
#define TAP_PREFIXES4 (1 << 2)
#define TAP_PREFIXES6 (1 << 3)
#define TAP_MACS      (1 << 4)
#define TAP_SOCKETS   (1 << 5)
#define TAP_DEDUP     (1 << 6)
#define TAP_RATE      (1 << 7)
#define TAP_BALANCE   (1 << 8)
#define TAP_PARTIES   (TAP_HOSTS4 | TAP_HOSTS6 | TAP_PREFIXES4 | TAP_PREFIXES6 | TAP_MACS)

/* Which address of a packet is compared: values of the sets. */
#define ROLE_SOURCE	 1
#define ROLE_DESTINATION 2

/* Why a packet that matched was not copied: indices of tap_counters.dropped. */
enum tap_cause {
	TAP_DUPLICATE,	/* was copied where it came in */
	TAP_SAMPLED,	/* left out by sampling */
	TAP_RATE_LIMIT, /* over the rate */
	TAP_NO_MONITOR, /* no monitor is up */
	TAP_FULL,	/* the monitor's queue or the ring is full */
	TAP_TOO_BIG,	/* longer than the monitor accepts */
	TAP_FAILED,	/* the kernel could not copy or send it */
	TAP_COPY,	/* is a copy itself */
	TAP_CAUSES,
};

struct tap_count {
	__u64 packets;
	__u64 bytes;
};

/* Of one source and direction. */
struct tap_counters {
	struct tap_count matched;
	struct tap_count copied;
	struct tap_count dropped[TAP_CAUSES];
};

/* Of one monitor. */
struct tap_monitor_counters {
	struct tap_count sent;
	struct tap_count cut;
	struct tap_count too_big;
	struct tap_count failed;
	struct tap_count strange; /* no copies: another program sends here */
};

struct tap_settings {
	__u32 process; /* marks copies of this process's taps */
	__u32 tap;     /* marks copies of this one */
	__u32 flags;
	__u32 sampling; /* copies what is below, of 2^32; 0: all */
	/* Time that a packet, a bit takes, in 1/1024 ns; 0: no limit. */
	__u64 packet_time;
	__u64 bit_time;
	__u64 burst; /* how far ahead of time, 1/1024 ns */
	__u32 cut;   /* bytes of a packet from its Ethernet header on; 0: all */
	__u32 vlan;  /* tag of the first source; 0: none */
};

/* A source interface of the namespace that the programs are loaded for. */
struct tap_source {
	__u32 number;
	__u32 tapped; /* bit 0: on ingress, bit 1: on egress */
};

/* An entry in the table of outputs: where its copies go. */
struct tap_output {
	__u32 ifindex; /* 0: nowhere */
	__u32 monitor; /* number */
	__u32 mtu;     /* without Ethernet header; 0: not checked here */
	__u32 pad;
};

#define OUTPUTS	    64
#define MAX_SOURCES 1024

enum tap_encapsulation {
	TAP_PLAIN,
	TAP_VXLAN,
	TAP_GENEVE,
	TAP_ERSPAN,
};

/* A monitor as the delivering program sees it. */
struct tap_monitor {
	__u32 ifindex;
	__u32 mtu; /* of the outgoing interface, without Ethernet header */
	__u32 encapsulation;
	__u32 id; /* VNI, session */
	__u8 remote[16];
	__u8 local[16];
	__u8 remote_mac[6];
	__u8 local_mac[6];
	__u16 port;
	__u8 ipv6;
	__u8 ttl;
};

/* A prefix: an address and its length in bits. */
struct prefix4 {
	__u32 length;
	__u8 address[4];
};

struct prefix6 {
	__u32 length;
	__u8 address[16];
};

/* One of 2^HOST_BITS bits for each host, by a hash of its address. */
#define HOST_BITS   19
#define HOST_FACTOR 0x9e3779b1u /* odd, 2^32 divided by the golden ratio */

struct host_bits {
	__u64 words[(1 << HOST_BITS) / 64];
};

/* A packet for user space: this, and its bytes. */
struct tap_packet {
	__u64 time;	/* CLOCK_MONOTONIC, ns */
	__u32 length;	/* of the whole packet, without the tag beside it */
	__u32 captured; /* bytes that follow */
	__u32 source;	/* number, direction in the top bit */
	__u16 tag_protocol;
	__u16 tag; /* control information of the VLAN tag beside the packet */
};

#define PACKET_MOST 65536 /* bytes of a packet at most */

_Static_assert(sizeof(struct tap_settings) == 48, "shared with user space");
_Static_assert(sizeof(struct tap_counters) == 160, "shared with user space");
_Static_assert(sizeof(struct tap_monitor_counters) == 80, "shared with user space");
_Static_assert(sizeof(struct tap_monitor) == 64, "shared with user space");
_Static_assert(sizeof(struct tap_packet) == 24, "shared with user space");

/* Read-only data, set by the loader: the verifier removes the code of disabled features. */
const volatile struct tap_settings settings = {};

/*
 * What a copy carries on its way to the monitor, in skb->cb: it stays with the packet from the
 * source's hook to the monitor's, also through a veth pair and segmentation, and no other packet
 * has these two random numbers there.
 */
static __always_inline bool is_copy(struct __sk_buff *skb)
{
	return skb->cb[0] == settings.process;
}

static __always_inline bool is_our_copy(struct __sk_buff *skb)
{
	return skb->cb[0] == settings.process && skb->cb[1] == settings.tap;
}

/* cb[2]: source, direction in the top bit. */
#define FROM_EGRESS 0x80000000u

static __always_inline void count(struct tap_count *count, __u64 packets, __u64 bytes)
{
	/* Per CPU, but a program may be interrupted by one. */
	__sync_fetch_and_add(&count->packets, packets);
	__sync_fetch_and_add(&count->bytes, bytes);
}
