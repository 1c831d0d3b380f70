/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the flow programs share with user space: the slots of the flow table, its control block and
 * the counters beside it. crates/capture/kernel/src/bindings/flow.rs is made of it
 * (tests/bindings.rs). Rules: docs/accounting.md.
 */
#pragma once
#include <linux/types.h>

/* One conversation at one capture point, section 1. */
struct flow_key {
	union {
		struct {
			__u8 lo[16];
			__u8 hi[16];
			__be16 lo_port;
			__be16 hi_port;
			__u32 ifindex;
			__u16 netns;
			__u16 vlan[2];
			__u8 proto;
			__u8 kind;
			__u16 detail;
			__u8 tunnel_hash[6];
		};
		__u64 word[7];
	};
};

#define KIND_IPV4	  1
#define KIND_IPV6	  2
#define KIND_NETWORK	  3
#define KIND_ETHERNET	  (1 << 2)
#define KIND_TUNNEL_SHIFT 3

enum flow_tunnel {
	TUNNEL_NONE,
	TUNNEL_VXLAN,
	TUNNEL_GENEVE,
	TUNNEL_GRE,
	TUNNEL_IPIP,
	TUNNEL_MPLS,
	TUNNEL_ERSPAN,
};

/* Slot states; a live slot holds part of its hash with the top bit set. */
#define SLOT_EMPTY 0
#define SLOT_TOMB  1 /* was freed, entries further on may belong to the same probe sequence */
#define SLOT_BUSY  2 /* a program is writing the key */
#define SLOT_DYING 4 /* user space frees it after a grace period */
#define SLOT_LIVE  0x80000000u

/* Bits of flow_slot.seen: TCP flags of lo in 0-7 and of hi in 8-15, then: */
#define SEEN_LO_INGRESS (1u << 16)
#define SEEN_LO_EGRESS	(1u << 17)
#define SEEN_HI_INGRESS (1u << 18)
#define SEEN_HI_EGRESS	(1u << 19)
#define SEEN_DIRECTIONS (0xfu << 16)
#define SEEN_LO_FIRST	(1u << 20)
#define SEEN_LO_OPENED	(1u << 21)
#define SEEN_HI_OPENED	(1u << 22)
#define SEEN_LO_SEQ	(1u << 23) /* next_seq of lo is valid */
#define SEEN_HI_SEQ	(1u << 24)
#define SEEN_SYNACK	(1u << 25) /* the ACK of a SYN+ACK is timed when it comes */
#define SEEN_ACK	(1u << 26) /* it has come */

struct flow_counters {
	__u64 packets;
	__u64 bytes;
};

/*
 * What a side sent since the last drain, one word so that one atomic addition counts a packet:
 * packets from bit 40 on, bytes below, both signed. Before a field can overflow, the program moves
 * a part of it to flow_cold.carried. The mark COUNTED_ANEW is added when the ports are used again,
 * until the next drain reads the word: a drain that read `first` before that sees by it to which
 * connection packets belong.
 */
#define SENT_PACKETS_SHIFT 40
#define SENT_CARRY_PACKETS (1ull << 60) /* 2^20 packets */
#define SENT_CARRY_BYTES   (1ull << 38)
#define COUNTED_ANEW	   (1ull << 62)

/* One cache line: what is compared and what is counted. */
struct flow_slot {
	__u32 state;	 /* part of the hash, or SLOT_... */
	__u32 hash_high; /* the upper half of the hash, of which the place follows */
	__u64 print;	 /* identify() */
	__u64 sent[2];	 /* since the last drain; [0] by lo, [1] by hi */
	__u64 first;	 /* CLOCK_MONOTONIC ns */
	__u32 seen;
	__u32 last;	   /* tick of the last packet: jiffies modulo 2^32, at least 49 days */
	__u32 next_seq[2]; /* of TCP */
	__u32 kept;	   /* packets sent as the first ones (SKUA_PACKETS) */
	__u32 pad;
};

#define COLD_MAC       0xffffffffffffULL
#define COLD_TAG_SHIFT 48
#define COLD_LABEL     (1u << 31) /* there is a label */
#define COLD_LABELS    8	  /* of carries: with MPLS labels before what it carries */
#define COLD_RST_BY_HI (1u << 31)
#define COLD_MS	       (1u << 30) /* of a time after the first packet: in ms, else in us */

/*
 * What few packets touch, of the slot with the same index; [0] is of lo, [1] of hi. Three cache
 * lines: written when an entry is made; when something about a side is new; of TCP and echo.
 */
struct flow_cold {
	struct flow_key key;
	__u64 parent; /* inside a tunnel: identifier of the flow that carried the first packet */

	/* MAC addresses of lo and hi, 0 none, first byte lowest; above them the third and the
	 * fourth VLAN tag. */
	__u64 link[2];
	__u16 pair[2];	  /* both addresses mixed, as each side sent them last; 0 none */
	__u32 label[2];	  /* bottom MPLS label of each side, with COLD_LABEL */
	__u32 tunnel_id;  /* inside a tunnel */
	__u32 moved;	  /* how often the addresses of a side changed, since the last drain */
	__u32 fragmented; /* packets that are fragments, since the last drain */
	__u32 rst_after;  /* time after slot.first and 1: the first RST, with COLD_RST_BY_HI */
	__u32 skipped[2]; /* gaps in the sequence numbers, and their bytes, since the last drain */
	__u32 skipped_bytes[2];
	__u8 no_syn;  /* the SYN was not seen: syn is the time of the SYN+ACK */
	__u8 ttl[2];  /* TTL or hop limit of the first SYN, 0 none */
	__u8 carries; /* enum flow_tunnel of what the packets carry, and COLD_LABELS */

	/* Of ICMP echo `syn` is the time of a request that waits for its reply, and `synack` how
	 * long the last reply took. */
	__u64 syn;    /* CLOCK_MONOTONIC ns of the first SYN */
	__u32 synack; /* ns after the SYN, at least 1, at most 4.29 s */
	__u32 ack;    /* ns after the SYN+ACK; without one, of a RST after the SYN */
	__u32 retransmitted[2];
	__u32 out_of_order[2];
	__u32 zero_window[2];
	__u32 gap_us[2];    /* when a gap was seen, us modulo 2^32, 0 none */
	__u32 fin_after[2]; /* as rst_after: the first FIN of a side; 0 none */
	/* Of flow_slot.sent, since the last drain: SENT_CARRY_PACKETS in the lower half,
	 * SENT_CARRY_BYTES in the upper. */
	__u32 carried[2];
};

/* A connection whose ports were used again; the program that sees the reuse sends it. */
struct flow_ended {
	struct flow_slot slot;
	struct flow_cold cold;
};

/* One per table. Only one side, the programs or user space, writes a cache line. */
struct flow_control {
	__u64 inserted;	   /* by the programs */
	__u64 woken;	   /* value of wake_at for which user space was woken */
	__u64 ended;	   /* connections sent to user space because their ports were used again */
	__u64 refused;	   /* packets that wanted an entry of the full table */
	__u64 ended_woken; /* value of ended_wake_at for which user space was woken */
	__u64 pad0[3];
	__u64 freed;	     /* by user space */
	__u64 wake_at;	     /* wake user space when inserted + refused reaches this */
	__u64 address_set;   /* ADDRESSES_… */
	__u64 live;	     /* a live stream of all packets is open (SKUA_PACKETS) */
	__u64 ended_wake_at; /* wake user space when ended reaches this */
	__u64 pad1[3];
};

/* Bits of flow_control.address_set. */
#define ADDRESSES_SET	      1 /* there is one */
#define ADDRESSES_GENERATION  2 /* which half of the trie is in force */
#define ADDRESSES_HAS_INCLUDE 4

/*
 * Key of the address trie. The first bytes choose one of four sets, so that one map and one lookup
 * serve them all.
 */
struct address_key {
	__u32 prefix_length; /* of all that follows */
	__u8 network;	     /* KIND_IPV4 or KIND_IPV6 */
	__u8 generation;     /* 0 or 1 */
	__u8 pad[2];
	__u8 address[16]; /* IPv4 in the first 4 */
};

#define ADDRESS_KEY_HEAD 32 /* bits before the address */

enum address_mark {
	ADDRESS_INCLUDE = 1,
	ADDRESS_EXCLUDE = 2,
};

/* Counters per capture point, direction and cause, section 5. */
enum point_cause {
	CAUSE_TABLE_FULL_TCP,
	CAUSE_TABLE_FULL_UDP,
	CAUSE_TABLE_FULL_ICMP,
	CAUSE_TABLE_FULL_OTHER,
	CAUSE_FILTERED,
	CAUSE_ADDRESS_SET,
	CAUSE_SAMPLED_OUT,
	CAUSE_SELF,
	CAUSE_TRUNCATED,
	CAUSE_NO_DECODE,
	CAUSE_RING_FULL, /* user space counts it, for packet rings; the next two for DPDK */
	CAUSE_NO_BUFFER,
	CAUSE_DEVICE_ERROR,
	NOTE_MALFORMED, /* notes from here on: these packets are in flows, too */
	NOTE_SEGMENTED,
	NOTE_TAG_BYTES,
	NOTE_CHILD_FULL, /* packets of tunnelled flows that found no entry; the parent counted them
			  */
	NOTE_RAW_LOST,	 /* packets to store that did not fit into the ring */
	NOTE_LIVE_LOST,	 /* packets of a live stream that did not fit into the ring */
	NOTE_REUSE_MERGED, /* SYNs counted in the previous closed connection: the ring was full */
	NOTE_HEAD_LIMIT,   /* heads beyond settings.head_rate */
	NOTE_HEAD_LOST,	   /* heads that did not fit into the ring */
	CAUSE_MAX,
};

#define PROBES 128 /* slots probed before the table counts as full */

/* The same in every network namespace. */
#define LOOPBACK_IFINDEX 1

#define DIR_INGRESS 0
#define DIR_EGRESS  1

struct point_key {
	__u32 ifindex;
	__u32 netns;
};

struct point_counters {
	struct flow_counters count[2][CAUSE_MAX];
};

/* The first fragment of a datagram writes its ports here, for the others. */
struct fragment_key {
	__u8 src[16];
	__u8 dst[16];
	__u32 ifindex;
	__u32 id;
	__u16 netns;
	__u8 proto;
	__u8 pad;
};

struct fragment_note {
	__be16 src_port;
	__be16 dst_port;
	__u16 detail;
	__u8 opener;
	__u8 pad;
};

/* Constants that the loader sets before the programs are verified. */
struct flow_settings {
	__u64 hash_key[8];  /* secret, the last one odd */
	__u64 print_key[7]; /* another */
	__u64 hash_zeros;   /* what words 0, 2 and 6 of a key add to its hash if they are 0 */
	__u64 print_zeros;  /* and to its print */
	__u32 slot_count;   /* entries of slots and cold_slots */
	__u32 most_entries; /* live entries at most, in bursts */
	__u32 sampling;	    /* 1:N */
	__u16 netns;	    /* number of the network namespace, goes into every key */
	__u8 tunnels;	    /* decode tunnels */
	__u8 look_shift;    /* a look in so many ticks, as a power of 2: LOOK_NS of the loader */
	__u8 gso_size;	    /* __sk_buff.gso_size is there, 5.7 */
	__u8 exclude_self;  /* leave out sockets marked in own_sockets */
	__u8 addresses;	    /* there may be an address set */
	__u8 first_packets; /* number of packets of each entry to send (SKUA_PACKETS) */
	__u32 packet_bytes; /* bytes of a packet to send, at most PACKET_MOST */
	__u32 head_rate;    /* heads per second and CPU, 0: none (SKUA_PACKETS) */
	__u8 head_segments; /* of each side of a connection that are heads */
	__u8 pad[3];
};

#define PACKET_MOST 65536

/* How many packets of lo and hi were sent as heads, of the slot with the same index. */
struct flow_heads {
	__u32 born; /* of the entry that it belongs to: part of slot.first */
	__u8 sent[2];
	__u8 dns; /* all are wanted: a port is one of DNS */
	__u8 pad;
};

/* Bits of packet_head.why. */
#define PACKET_FIRST 1 /* it is one of the first of its flow */
#define PACKET_LIVE  2 /* for live streams */
#define PACKET_HEAD  4 /* for what is said in conversations: heads.h */

/* Before the bytes of a packet in the ring. */
struct packet_head {
	struct flow_key key; /* of the outermost level; may be only the capture point */
	__u64 time;	     /* CLOCK_MONOTONIC ns */
	__u32 length;	     /* of the packet, without a stripped tag */
	__u32 captured;	     /* bytes that follow */
	__u16 tag_protocol;  /* EtherType of the stripped tag, host order; 0 none */
	__u16 tag;	     /* tag control information */
	__u8 why;
	__u8 index; /* 1 for the first packet of the entry, 0 not one of the first */
	__u8 direction;
	__u8 ethernet;
};

/* A conversation wherever it is seen. */
struct own_key {
	__u8 lo[16];
	__u8 hi[16];
	__be16 lo_port;
	__be16 hi_port;
	__u16 netns;
	__u8 proto;
	__u8 pad;
};

_Static_assert(sizeof(struct own_key) == 40, "own_key");
_Static_assert(sizeof(struct flow_settings) == 168, "flow_settings");
_Static_assert(sizeof(struct packet_head) == 80, "packet_head");
_Static_assert(sizeof(struct flow_key) == 56, "flow_key");
_Static_assert(sizeof(struct flow_slot) == 64, "flow_slot");
_Static_assert(sizeof(struct flow_control) == 128, "flow_control");
_Static_assert(sizeof(struct flow_cold) == 192, "flow_cold");
_Static_assert(sizeof(struct flow_ended) == 256, "flow_ended");
_Static_assert(sizeof(struct fragment_key) == 44, "fragment_key");
_Static_assert(sizeof(struct address_key) == 24, "address_key");
