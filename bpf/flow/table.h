/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The flow table: finding or making the entry of a packet and counting it there. */
#pragma once
#include "netns.h"

#define NSEC_PER_USEC  1000u
#define NSEC_PER_MSEC  1000000u
#define LATE_WINDOW_US 3000u /* a late segment so soon after a gap is out of order */

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

enum opener {
	OPENER_UNKNOWN,
	OPENER_SOURCE,	    /* this is the request */
	OPENER_DESTINATION, /* this is the reply */
};

/* Bits of packet.rare. */
#define RARE_FRAGMENT 1
#define RARE_ECHO     2 /* ICMP echo, request or reply */

/* What count_packet() did. */
enum counted {
	COUNTED_NOT,
	COUNTED,
	COUNTED_LOOK, /* the caller is to note what the packet shows: note_link(), note_level() */
};

/* What one level (outer, inside a tunnel) of one packet adds to its flow. */
struct packet {
	struct flow_key key;
	__u32 packets;
	__u32 bytes;
	__u32 seq;
	__u32 payload;
	__u32 tunnel_id;
	__u64 parent; /* set only inside a tunnel, as flow_slot.parent */
	__u16 window;
	__u8 tcp_flags;
	__u8 is_tcp;
	__u8 from_hi; /* the source is key.hi */
	__u8 opener;  /* of an ICMP query: enum opener */
	__u8 direction;
	__u8 index; /* place among the first packets of its entry, 0: later (SKUA_PACKETS) */
	__u8 rare;
	__u8 ttl;      /* of TCP: TTL or hop limit */
	__u16 tags[2]; /* third and fourth VLAN tag, as in flow_key.vlan */
	__u32 label;   /* bottom MPLS label before this level, with COLD_LABEL; 0 none */
	__u32 place;   /* with COUNTED_LOOK, or SKUA_PACKETS: index of the entry */
	__u32 born;    /* when the entry began (SKUA_PACKETS) */
};

#define NO_PLACE   0xffffffffu /* the packet is in no entry (SKUA_PACKETS) */
#define BORN_SHIFT 10	       /* of packet.born: about a us */

/* Notes what carried the packet that begins an entry. */
static __always_inline void set_carrier(struct flow_cold *cold, const struct packet *p)
{
	/* The drain has left 0. */
	if (p->key.kind >> KIND_TUNNEL_SHIFT) {
		cold->tunnel_id = p->tunnel_id;
		cold->parent = p->parent;
	}
}

/* The time of a packet: a load. Reading even the coarse clock takes nearly as long as the rest. */
static __always_inline __u64 ticks(void)
{
	return bpf_jiffies64();
}

/* What stands for a key: its hash, which also chooses the place, and its print. */
struct identity {
	__u64 hash;
	__u64 print;
};

/*
 * NH (UMAC, 1999) over the halves of each word, twice, with independent secrets: for each of both
 * sums, the probability of finding two keys that share it is at most 2^-31 for who does not know
 * the secret. The slot keeps both instead of the key, so that a packet of a known flow needs one
 * cache line; two keys are taken for one with a probability of at most 2^-61, whoever chooses them.
 * `hash` is the same function as FlowKey::hash64.
 *
 * Words 0, 2 and 6 are 0 for IPv4 outside of tunnels; the loader has computed what they add.
 */
static __always_inline struct identity identify(const struct flow_key *key)
{
	__u64 hash, print;

#define ADD(sums, secret, i)                                                                       \
	do {                                                                                       \
		__u64 sum = key->word[i] + settings.secret[i];                                     \
		sums += (sum & 0xffffffff) * (sum >> 32);                                          \
	} while (0)
#define ADD_BOTH(i)                                                                                \
	do {                                                                                       \
		ADD(hash, hash_key, i);                                                            \
		ADD(print, print_key, i);                                                          \
	} while (0)
	if (key->word[0] | key->word[2] | key->word[6]) {
		hash = print = 0;
		ADD_BOTH(0);
		ADD_BOTH(2);
		ADD_BOTH(6);
	} else {
		hash = settings.hash_zeros;
		print = settings.print_zeros;
	}
	ADD_BOTH(1);
	ADD_BOTH(3);
	ADD_BOTH(4);
	ADD_BOTH(5);
#undef ADD_BOTH
#undef ADD
	hash *= settings.hash_key[7];
	hash ^= hash >> 32;
	hash *= 0x5be0cd19137e2179ULL;
	return (struct identity){.hash = hash ^ hash >> 29, .print = print};
}

static __always_inline struct point_key point_of(const struct flow_key *key)
{
	return (struct point_key){.ifindex = key->ifindex, .netns = key->netns};
}

/* Counts on a rare path: per capture point, direction and cause. */
static __always_inline void add_to_cause(struct point_key key, __u32 direction, __u32 cause,
					 __u64 packets, __u64 bytes)
{
	struct point_counters *point = bpf_map_lookup_elem(&points, &key);
	__u32 zero = 0;

	if (!point)
		point = bpf_map_lookup_elem(&no_point, &zero);
	if (!point || direction > 1 || cause >= CAUSE_MAX)
		return;
	/* Per CPU and never nested: these programs run with bottom halves disabled. */
	point->count[direction][cause].packets += packets;
	point->count[direction][cause].bytes += bytes;
}

#ifdef SKUA_TABLES
/* Apart, since its lookups take stack, of which all functions in a chain of calls have 512 bytes.
 */
__noinline int add_apart(__u64 point, __u32 direction, __u32 cause, __u64 packets, __u64 bytes)
{
	const struct point_key key = {.ifindex = point, .netns = point >> 32};

	add_to_cause(key, direction, cause, packets, bytes);
	return 0;
}

#define ADD_TO_CAUSE(key, ...) add_apart((key).ifindex | (__u64)(key).netns << 32, __VA_ARGS__)
#else
#define ADD_TO_CAUSE add_to_cause
#endif

static __always_inline void count_cause(struct point_key key, __u32 direction, __u32 cause,
					__u64 packets, __u64 bytes)
{
	ADD_TO_CAUSE(key, direction, cause, packets, bytes);
}

static __always_inline __u32 full_cause(const struct flow_key *key)
{
	if (!(key->kind & KIND_NETWORK))
		return CAUSE_TABLE_FULL_OTHER;
	switch (key->proto) {
	case 6:
		return CAUSE_TABLE_FULL_TCP;
	case 17:
		return CAUSE_TABLE_FULL_UDP;
	case 1:
	case 58:
		return CAUSE_TABLE_FULL_ICMP;
	}
	return CAUSE_TABLE_FULL_OTHER;
}

#ifdef SKUA_NO_CMPXCHG
/* Before 5.12 BPF has no compare-and-swap: a lock per stripe of slots guards the claim. */
struct claim_lock {
	struct bpf_spin_lock lock;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct claim_lock);
} claim_locks SEC(".maps");

static __always_inline bool swap_word(__u32 *word, __u32 index, __u32 from, __u32 to)
{
	__u32 stripe = index & 1023;
	struct claim_lock *claim = bpf_map_lookup_elem(&claim_locks, &stripe);
	bool won = false;

	if (!claim)
		return false;
	bpf_spin_lock(&claim->lock);
	if (*(volatile __u32 *)word == from) {
		*(volatile __u32 *)word = to;
		won = true;
	}
	bpf_spin_unlock(&claim->lock);
	return won;
}

static __always_inline void set_bits(__u32 *word, __u32 bits)
{
	if ((*word & bits) != bits)
		*(volatile __u32 *)word |= bits;
}

static __always_inline void publish(struct flow_slot *slot, __u32 tag)
{
	/* Stores stay in order on x86-64; arm64 readers compare the whole key after the state. */
	*(volatile __u32 *)&slot->state = tag;
}

/*
 * Returns what the previous connection sent, and leaves COUNTED_ANEW in its place.
 *
 * Before 5.12 there is no atomic exchange. If a drain takes the same value between the two steps,
 * the word becomes negative, and the next drain corrects that.
 */
static __always_inline __u64 count_anew(__u64 *sent)
{
	const __u64 taken = *(volatile __u64 *)sent;

	__sync_fetch_and_add(sent, COUNTED_ANEW - taken);
	return taken;
}

/*
 * Counts a packet. Returns which parts of the word are now to be carried: each time while they are
 * there, as two CPUs may have added at once and neither of them seen that it was the first.
 */
static __always_inline __u64 add_sent(__u64 *sent, __u64 packet)
{
	const __u64 sum = *(volatile __u64 *)sent + packet;

	__sync_fetch_and_add(sent, packet);
	return (__s64)sum < 0 ? 0 : sum & (SENT_CARRY_PACKETS | SENT_CARRY_BYTES);
}
#else
static __always_inline bool swap_word(__u32 *word, __u32 index, __u32 from, __u32 to)
{
	return __sync_val_compare_and_swap(word, from, to) == from;
}

static __always_inline __u64 count_anew(__u64 *sent)
{
	return __sync_lock_test_and_set(sent, COUNTED_ANEW);
}

/* Counts a packet. Returns which parts of the word are now to be carried, to one CPU alone. */
static __always_inline __u64 add_sent(__u64 *sent, __u64 packet)
{
	const __u64 before = __sync_fetch_and_add(sent, packet);

	return (before + packet) & ~before & (SENT_CARRY_PACKETS | SENT_CARRY_BYTES);
}

static __always_inline void set_bits(__u32 *word, __u32 bits)
{
	if ((*word & bits) != bits)
		__sync_fetch_and_or(word, bits);
}

static __always_inline void publish(struct flow_slot *slot, __u32 tag)
{
	__sync_lock_test_and_set(&slot->state, tag);
}
#endif

static __always_inline struct flow_control *the_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/*
 * Called for each new entry: wakes user space once when the table fills up. Entries that the full
 * table refuses count, too; else nothing would wake user space once it is full.
 */
static __always_inline void call_for_drain(struct flow_control *ctl)
{
	__u64 wake_at = ctl->wake_at;

	if (ctl->inserted + ctl->refused >= wake_at && ctl->woken != wake_at) {
		ctl->woken = wake_at;
		bpf_ringbuf_output(&wakeups, &wake_at, sizeof(wake_at), BPF_RB_FORCE_WAKEUP);
	}
}

/* Wakes user space when half of the ring of ended connections is full. */
static __always_inline void call_for_ended(struct flow_control *ctl)
{
	__u64 wake_at = ctl->ended_wake_at;

	if (ctl->ended >= wake_at && ctl->ended_woken != wake_at) {
		ctl->ended_woken = wake_at;
		bpf_ringbuf_output(&wakeups, &wake_at, sizeof(wake_at), BPF_RB_FORCE_WAKEUP);
	}
}

static __always_inline bool table_full(const struct flow_control *ctl)
{
	return (__s64)(ctl->inserted - ctl->freed) >= (__s64)settings.most_entries;
}

static __always_inline struct flow_cold *cold_of(__u32 index)
{
	return bpf_map_lookup_elem(&cold_slots, &index);
}

/*
 * The live entry of the key, or a new one; NULL when the table is full. `place` receives its index,
 * `fresh` whether it was made for this packet. The table has PROBES slots more than places, so that
 * probing never wraps.
 *
 * Two CPUs that see a new conversation at once may make two entries; user space adds them up.
 */
static __always_inline struct flow_slot *find_slot(const struct packet *p, __u32 *place,
						   bool *fresh)
{
	const struct identity id = identify(&p->key);
	const __u32 tag = (__u32)id.hash | SLOT_LIVE, hash_high = id.hash >> 32;
	const __u32 base = ((__u64)hash_high * settings.slot_count) >> 32;
	struct flow_slot *slot, *tomb = NULL;
	struct flow_cold *cold;
	struct flow_control *ctl;
	__u32 tomb_index = 0, i;

	*fresh = false;
	for (i = 0; i < PROBES; i++) {
		__u32 state, index = base + i;

		slot = bpf_map_lookup_elem(&slots, &index);
		if (!slot)
			return NULL;
		state = *(volatile __u32 *)&slot->state;
		if (state == tag) {
			if (slot->hash_high == hash_high && slot->print == id.print) {
				*place = index;
				return slot;
			}
		} else if (state == SLOT_TOMB) {
			if (!tomb) {
				tomb = slot;
				tomb_index = index;
			}
		}
		/* An entry of the key would be here at the latest: the conversation is new. */
		if (state == SLOT_EMPTY || i == PROBES - 1) {
			ctl = the_control();
			if (!ctl)
				return NULL;
			if (table_full(ctl)) {
				__sync_fetch_and_add(&ctl->refused, 1);
				call_for_drain(ctl);
				return NULL;
			}
			if (tomb && swap_word(&tomb->state, tomb_index, SLOT_TOMB, SLOT_BUSY)) {
				slot = tomb;
				index = tomb_index;
				goto claimed;
			}
			if (state == SLOT_EMPTY &&
			    swap_word(&slot->state, index, SLOT_EMPTY, SLOT_BUSY))
				goto claimed;
			/* Another CPU took this slot: try the next one. */
			tomb = NULL;
		}
		continue;
	claimed:
		__sync_fetch_and_add(&ctl->inserted, 1);
		call_for_drain(ctl);
		/* There are as many as slots. */
		cold = cold_of(index);
		if (cold) {
			cold->key = p->key;
			set_carrier(cold, p);
		}
		slot->hash_high = hash_high;
		slot->print = id.print;
		slot->seen = p->from_hi ? 0 : SEEN_LO_FIRST;
		if (p->opener)
			slot->seen |= (p->opener == OPENER_SOURCE) == !p->from_hi ? SEEN_LO_OPENED
										  : SEEN_HI_OPENED;
#ifdef SKUA_PACKETS
		slot->kept = 0;
#endif
		slot->first = bpf_ktime_get_ns();
		slot->last = ticks();
		publish(slot, tag);
		*place = index;
		*fresh = true;
		return slot;
	}
	return NULL;
}

static __always_inline __u32 clamp_ns(__u64 later, __u64 earlier)
{
	__u64 difference = later - earlier;

	if (difference == 0)
		return 1;
	return difference > 0xffffffff ? 0xffffffff : difference;
}

/*
 * What few packets add is in functions of their own. Kernels such as 6.1 verify these once, and
 * what is inlined with each state of what comes before.
 */

/* Notes the first FIN of a side, the first RST, and how long a SYN waited for that. */
__noinline int note_end(__u32 index, __u32 side, __u32 flags)
{
	struct flow_slot *slot = bpf_map_lookup_elem(&slots, &index);
	struct flow_cold *cold = cold_of(index);
	const __u64 now = bpf_ktime_get_ns();
	__u64 after;

	side &= 1;
	if (!slot || !cold)
		return 0;
	after = now > slot->first ? (now - slot->first) / NSEC_PER_USEC + 1 : 1;
	if (after >= COLD_MS) {
		after = (now - slot->first) / NSEC_PER_MSEC + 1;
		after = (after < COLD_MS ? after : COLD_MS - 1) | COLD_MS;
	}
	if (flags & TCP_FIN && !cold->fin_after[side])
		cold->fin_after[side] = after;
	if (!(flags & TCP_RST))
		return 0;
	if (!cold->rst_after)
		cold->rst_after = after | (side ? COLD_RST_BY_HI : 0);
	if (cold->syn && !cold->synack && !cold->ack &&
	    slot->seen & (side ? SEEN_LO_OPENED : SEEN_HI_OPENED))
		cold->ack = clamp_ns(now, cold->syn);
	return 0;
}

/* Counts fragments, and the round-trip time of ICMP echo. */
__noinline int count_rare(__u32 index, __u32 rare, __u32 packets, __u32 opener)
{
	struct flow_cold *cold = cold_of(index);

	if (!cold)
		return 0;
	if (rare & RARE_FRAGMENT)
		__sync_fetch_and_add(&cold->fragmented, packets);
	if (rare & RARE_ECHO) {
		const __u64 now = bpf_ktime_get_ns();

		if (opener == OPENER_SOURCE) {
			if (!cold->syn)
				cold->syn = now;
		} else if (cold->syn) {
			cold->synack = clamp_ns(now, cold->syn);
			cold->syn = 0;
		}
	}
	return 0;
}

/* A field of flow_slot.sent is half full: moves a part of it. A drain reads `carried` first. */
__noinline int carry(__u32 index, __u32 side, __u64 parts)
{
	struct flow_slot *slot = bpf_map_lookup_elem(&slots, &index);
	struct flow_cold *cold = cold_of(index);

	side &= 1;
	if (!slot || !cold)
		return 0;
	__sync_fetch_and_add(&slot->sent[side], -parts);
	__sync_fetch_and_add(&cold->carried[side],
			     (parts & SENT_CARRY_PACKETS ? 1 : 0) +
				     (parts & SENT_CARRY_BYTES ? 1 << 16 : 0));
	return 0;
}

/* Notes a SYN or SYN+ACK, and who opened the connection. */
__noinline int note_syn(__u32 index, __u32 side, __u32 flags, __u32 ttl)
{
	struct flow_slot *slot = bpf_map_lookup_elem(&slots, &index);
	struct flow_cold *cold = cold_of(index);
	const __u64 now = bpf_ktime_get_ns();
	const bool reply = flags & TCP_ACK;

	side &= 1;
	if (!slot || !cold)
		return 0;
	if (!cold->ttl[side])
		cold->ttl[side] = ttl;
	if (!reply && !cold->syn) {
		cold->syn = now;
	} else if (reply && !cold->synack) {
		if (cold->syn) {
			cold->synack = clamp_ns(now, cold->syn);
		} else {
			cold->syn = now;
			cold->synack = 1;
			cold->no_syn = 1;
		}
		cold->ack = 0;
		set_bits(&slot->seen, SEEN_SYNACK);
	}
	/* The first such packet decides. */
	if (!(slot->seen & (SEEN_LO_OPENED | SEEN_HI_OPENED)))
		set_bits(&slot->seen, side == reply ? SEEN_LO_OPENED : SEEN_HI_OPENED);
	return 0;
}

/* The opener's first ACK after the SYN+ACK. */
__noinline int note_ack(__u32 index)
{
	struct flow_slot *slot = bpf_map_lookup_elem(&slots, &index);
	struct flow_cold *cold = cold_of(index);

	if (!slot || !cold)
		return 0;
	if (!cold->ack)
		cold->ack =
			clamp_ns(bpf_ktime_get_ns(), cold->syn + (cold->no_syn ? 0 : cold->synack));
	set_bits(&slot->seen, SEEN_ACK);
	return 0;
}

__noinline int note_zero_window(__u32 index, __u32 side)
{
	struct flow_cold *cold = cold_of(index);

	if (cold)
		__sync_fetch_and_add(&cold->zero_window[side & 1], 1);
	return 0;
}

/* A segment that does not begin where the last one ended: `ahead` of that, or before it. */
__noinline int note_disorder(__u32 index, __u32 side, __s32 ahead)
{
	/* Rare enough for the exact clock; the coarse one ticks too slowly here. */
	const __u32 now_us = (__u32)(bpf_ktime_get_ns() / NSEC_PER_USEC) | 1;
	struct flow_cold *cold = cold_of(index);
	__u32 sum;

	side &= 1;
	if (!cold)
		return 0;
	if (ahead < 0) {
		if (cold->gap_us[side] && now_us - cold->gap_us[side] < LATE_WINDOW_US)
			__sync_fetch_and_add(&cold->out_of_order[side], 1);
		else
			__sync_fetch_and_add(&cold->retransmitted[side], 1);
		return 0;
	}
	cold->gap_us[side] = now_us;
	__sync_fetch_and_add(&cold->skipped[side], 1);
	sum = cold->skipped_bytes[side];
	/* Bytes that do not fit stay at the most. */
	if (ahead > ~sum)
		ahead = ~sum;
	__sync_fetch_and_add(&cold->skipped_bytes[side], ahead);
	return 0;
}

static __always_inline void track_tcp(struct flow_slot *slot, __u32 index, const struct packet *p)
{
	const __u32 side = p->from_hi & 1, seq_bit = SEEN_LO_SEQ << side;
	const __u8 flags = p->tcp_flags;
	__u32 length = p->payload;
	__u32 end;
	__s32 ahead;

	if (flags & (TCP_SYN | TCP_FIN | TCP_RST)) {
		if (flags & (TCP_FIN | TCP_RST))
			note_end(index, side, flags);
		if (flags & TCP_SYN) {
			note_syn(index, side, flags, p->ttl);
			length++;
		}
		if (flags & TCP_FIN)
			length++;
	}
	if (!(flags & TCP_SYN)) {
		if ((flags & (TCP_ACK | TCP_RST)) == TCP_ACK &&
		    (slot->seen & (SEEN_SYNACK | SEEN_ACK)) == SEEN_SYNACK &&
		    slot->seen & (side ? SEEN_HI_OPENED : SEEN_LO_OPENED))
			note_ack(index);
		if (!p->window && !(flags & TCP_RST))
			note_zero_window(index, side);
	}
	if (!length)
		return;
	end = p->seq + length;
	if (!(slot->seen & seq_bit)) {
		slot->next_seq[side] = end;
		set_bits(&slot->seen, seq_bit);
		return;
	}
	ahead = p->seq - slot->next_seq[side];
	if (ahead) {
		/* A keep-alive. */
		if (ahead == -1 && p->payload <= 1 && !(flags & (TCP_SYN | TCP_FIN)))
			return;
		note_disorder(index, side, ahead);
		if ((__s32)(end - slot->next_seq[side]) <= 0)
			return;
	}
	slot->next_seq[side] = end;
}

#ifdef SKUA_PACKETS
/* Stores which of the entry's first packets this is. Packets inside tunnels are not sent. */
static __always_inline void number_packet(struct flow_slot *slot, struct packet *p)
{
	__u32 kept;

	if (slot->kept >= settings.first_packets || p->key.kind >> KIND_TUNNEL_SHIFT)
		return;
#ifdef SKUA_NO_CMPXCHG
	/* Two CPUs may get the same index: then one packet more is sent. */
	kept = slot->kept;
	slot->kept = kept + 1;
#else
	kept = __sync_fetch_and_add(&slot->kept, 1);
#endif
	if (kept < settings.first_packets)
		p->index = kept + 1;
}
#endif

static __always_inline bool is_closed(__u32 seen)
{
	const __u32 both_fin = TCP_FIN | TCP_FIN << 8;

	return seen & (TCP_RST | TCP_RST << 8) || (seen & both_fin) == both_fin;
}

/* A SYN for a closed connection opens a new one. */
static __always_inline bool ports_used_again(const struct flow_slot *slot, const struct packet *p)
{
	return p->is_tcp && (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN &&
	       is_closed(slot->seen);
}

/* What begin_again() did. */
enum begun {
	BEGUN_NOT, /* another CPU has, or it is not closed any more */
	BEGUN,
	BEGUN_MERGED, /* both connections are in one record */
};

/* Attempts to restart an entry while other CPUs set bits of it. */
#define MOST_TRIES 4

/*
 * Sends the entry's counters of the previous connection to user space, and starts the entry again
 * with this packet. So one entry is enough, however often its ports are reused.
 *
 * The order matters to the drain: the record is reserved in the ring before the time is read that
 * becomes `first`. A reader that reads the clock and then the whole ring has all previous
 * connections of the entries that are older than that time. `first` is written before the counters
 * are read: when `first` has not changed after the drain has read the counters, these are of the
 * previous connection only.
 */
__noinline int begin_again(__u32 index, __u32 from_hi)
{
	struct flow_slot *slot = bpf_map_lookup_elem(&slots, &index);
	struct flow_cold *cold = cold_of(index);
	struct flow_control *ctl = the_control();
	struct flow_ended *ended;
	__u32 seen, tries;
	__u64 now;

	if (!slot || !cold || !ctl)
		return BEGUN_NOT;
	ended = bpf_ringbuf_reserve(&ended_flows, sizeof(*ended), 0);
	if (!ended)
		return BEGUN_MERGED;
	now = bpf_ktime_get_ns();
	/* One of two CPUs with such a SYN wins; late packets of the old connection may set bits. */
	for (tries = 0; tries < MOST_TRIES; tries++) {
		seen = *(volatile __u32 *)&slot->seen;
		if (!is_closed(seen))
			break;
		if (swap_word(&slot->seen, index, seen,
			      (seen & SEEN_DIRECTIONS) | (from_hi ? 0 : SEEN_LO_FIRST)))
			goto won;
	}
	bpf_ringbuf_discard(ended, BPF_RB_NO_WAKEUP);
	return tries == MOST_TRIES ? BEGUN_MERGED : BEGUN_NOT;
won:
	ended->slot = *slot;
	ended->slot.seen = seen;
	ended->cold = *cold;
	*(volatile __u64 *)&slot->first = now;
	slot->last = ticks();
	ended->slot.sent[0] = count_anew(&slot->sent[0]);
	ended->slot.sent[1] = count_anew(&slot->sent[1]);
	/* All but the key. */
	__builtin_memset((char *)cold + sizeof(cold->key), 0, sizeof(*cold) - sizeof(cold->key));
#ifdef SKUA_PACKETS
	slot->kept = 0;
#endif
	bpf_ringbuf_submit(ended, BPF_RB_NO_WAKEUP);
	__sync_fetch_and_add(&ctl->ended, 1);
	call_for_ended(ctl);
	return BEGUN;
}

/* Counts the packet in its flow, or by cause when the table is full. Returns enum counted. */
static __always_inline int count_packet(struct packet *p)
{
	const __u32 side = p->from_hi & 1;
	struct flow_slot *slot;
	__u32 index = 0, bits, now, last;
	bool fresh, look;
	__u64 carried;

#ifdef SKUA_PACKETS
	p->index = 0;
	p->place = NO_PLACE;
#endif
	slot = find_slot(p, &index, &fresh);
	if (slot && !fresh && ports_used_again(slot, p)) {
		const int begun = begin_again(index, p->from_hi);

		if (begun == BEGUN) {
			struct flow_cold *cold = cold_of(index);

			if (cold)
				set_carrier(cold, p);
		} else if (begun == BEGUN_MERGED) {
			count_cause(point_of(&p->key), p->direction, NOTE_REUSE_MERGED, 1, 0);
		}
	}
	if (!slot) {
		count_cause(point_of(&p->key), p->direction,
			    p->key.kind >> KIND_TUNNEL_SHIFT ? NOTE_CHILD_FULL
							     : full_cause(&p->key),
			    p->packets, p->bytes);
		return COUNTED_NOT;
	}
	now = ticks();
	last = slot->last;
	/* Another CPU may be ahead. */
	if ((__s32)(now - last) > 0)
		slot->last = now;
	/* Before the counters, so that a drain in between knows their direction. */
	bits = (__u32)p->tcp_flags << (side * 8);
	bits |= (p->direction == DIR_INGRESS ? SEEN_LO_INGRESS : SEEN_LO_EGRESS) << (side * 2);
	/* So each flow pays for a look now and then, and not each packet. */
	look = (slot->seen & bits) != bits || (now ^ last) >> settings.look_shift;
	set_bits(&slot->seen, bits);
	carried = add_sent(&slot->sent[side], (__u64)p->packets << SENT_PACKETS_SHIFT | p->bytes);
	if (carried)
		carry(index, side, carried);
	if (p->is_tcp)
		track_tcp(slot, index, p);
	if (p->rare)
		count_rare(index, p->rare, p->packets, p->opener);
#ifdef SKUA_PACKETS
	number_packet(slot, p);
	p->place = index;
	p->born = slot->first >> BORN_SHIFT;
#endif
	if (!look)
		return COUNTED;
	p->place = index;
	return COUNTED_LOOK;
}
