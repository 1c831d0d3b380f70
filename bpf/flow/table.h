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
static __always_inline void set_carrier(struct flow_slot *slot, const struct packet *p)
{
	slot->tunnel_id = p->tunnel_id;
	slot->parent = p->key.kind >> KIND_TUNNEL_SHIFT ? p->parent : 0;
}

static __always_inline __u64 now_coarse(void)
{
	return settings.coarse_clock ? bpf_ktime_get_coarse_ns() : bpf_ktime_get_ns();
}

/*
 * NH (UMAC, 1999) over the halves of each word: without the secret, the probability of finding two
 * keys of one sum is at most 2^-31. The same function as FlowKey::hash64.
 */
static __always_inline __u64 flow_hash(const struct flow_key *key)
{
	__u64 hash = 0;

#define ADD(i)                                                                                     \
	do {                                                                                       \
		__u64 sum = key->word[i] + settings.hash_key[i];                                   \
		hash += (sum & 0xffffffff) * (sum >> 32);                                          \
	} while (0)
	ADD(0);
	ADD(1);
	ADD(2);
	ADD(3);
	ADD(4);
	ADD(5);
	ADD(6);
#undef ADD
	hash *= settings.hash_key[7];
	hash ^= hash >> 32;
	hash *= 0x5be0cd19137e2179ULL;
	return hash ^ hash >> 29;
}

static __always_inline bool same_key(const struct flow_key *a, const struct flow_key *b)
{
	return !((a->word[3] ^ b->word[3]) | (a->word[1] ^ b->word[1]) | (a->word[4] ^ b->word[4]) |
		 (a->word[5] ^ b->word[5]) | (a->word[0] ^ b->word[0]) | (a->word[2] ^ b->word[2]) |
		 (a->word[6] ^ b->word[6]));
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
 * Returns the counter of the previous connection, and leaves COUNTED_ANEW in its place.
 *
 * Before 5.12 there is no atomic exchange. If a drain subtracts the same value between the two
 * steps, the counter becomes negative, and the next drain corrects that.
 */
static __always_inline __u64 count_anew(__u64 *counter)
{
	const __u64 taken = *(volatile __u64 *)counter;

	__sync_fetch_and_add(counter, COUNTED_ANEW - taken);
	return (__s64)taken < 0 ? taken : taken & ~COUNTED_ANEW;
}
#else
static __always_inline bool swap_word(__u32 *word, __u32 index, __u32 from, __u32 to)
{
	return __sync_val_compare_and_swap(word, from, to) == from;
}

static __always_inline __u64 count_anew(__u64 *counter)
{
	return __sync_lock_test_and_set(counter, COUNTED_ANEW) & ~COUNTED_ANEW;
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
	const __u64 hash = flow_hash(&p->key);
	const __u32 tag = (__u32)hash | SLOT_LIVE;
	const __u32 base = ((hash >> 32) * settings.slot_count) >> 32;
	struct flow_slot *slot, *tomb = NULL;
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
			if (same_key(&slot->key, &p->key)) {
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
		slot->key = p->key;
		set_carrier(slot, p);
		slot->seen = p->from_hi ? 0 : SEEN_LO_FIRST;
		if (p->opener)
			slot->seen |= (p->opener == OPENER_SOURCE) == !p->from_hi ? SEEN_LO_OPENED
										  : SEEN_HI_OPENED;
#ifdef SKUA_PACKETS
		slot->kept = 0;
#endif
		slot->first = bpf_ktime_get_ns();
		slot->last = slot->first;
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

static __always_inline struct flow_cold *cold_of(__u32 index)
{
	return bpf_map_lookup_elem(&cold_slots, &index);
}

/*
 * What few packets add is in functions of their own. Kernels such as 6.1 verify these once, and
 * what is inlined with each state of what comes before.
 */

/* Notes the first FIN of a side, the first RST, and how long a SYN waited for that. */
__noinline int note_end(__u32 index, __u32 side, __u32 flags)
{
	struct flow_slot *slot = bpf_map_lookup_elem(&slots, &index);
	struct flow_tcp *tcp = bpf_map_lookup_elem(&tcp_slots, &index);
	struct flow_cold *cold = cold_of(index);
	const __u64 now = bpf_ktime_get_ns();
	__u64 after;

	side &= 1;
	if (!slot || !tcp || !cold)
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
	if (tcp->syn && !tcp->synack && !tcp->ack &&
	    slot->seen & (side ? SEEN_LO_OPENED : SEEN_HI_OPENED))
		tcp->ack = clamp_ns(now, tcp->syn);
	return 0;
}

/* A gap in the sequence numbers of a side. Bytes that do not fit stay at the most. */
__noinline int note_gap(__u32 index, __u32 side, __u32 bytes)
{
	struct flow_cold *cold = cold_of(index);
	__u32 sum;

	side &= 1;
	if (!cold)
		return 0;
	__sync_fetch_and_add(&cold->skipped[side], 1);
	sum = cold->skipped_bytes[side];
	if (bytes > ~sum)
		bytes = ~sum;
	__sync_fetch_and_add(&cold->skipped_bytes[side], bytes);
	return 0;
}

/* Counts fragments, and the round-trip time of ICMP echo. */
__noinline int count_rare(__u32 index, __u32 rare, __u32 packets, __u32 opener)
{
	if (rare & RARE_FRAGMENT) {
		struct flow_cold *cold = cold_of(index);

		if (cold)
			__sync_fetch_and_add(&cold->fragmented, packets);
	}
	if (rare & RARE_ECHO) {
		struct flow_tcp *echo = bpf_map_lookup_elem(&tcp_slots, &index);
		const __u64 now = bpf_ktime_get_ns();

		if (!echo)
			return 0;
		if (opener == OPENER_SOURCE) {
			if (!echo->syn)
				echo->syn = now;
		} else if (echo->syn) {
			echo->synack = clamp_ns(now, echo->syn);
			echo->syn = 0;
		}
	}
	return 0;
}

static __always_inline void track_tcp(struct flow_slot *slot, __u32 index, const struct packet *p)
{
	struct flow_tcp *tcp = bpf_map_lookup_elem(&tcp_slots, &index);
	const __u32 side = p->from_hi & 1;
	const __u8 flags = p->tcp_flags;
	__u32 length = p->payload;
	__u32 end;

	if (!tcp)
		return;
	if (flags & (TCP_FIN | TCP_RST))
		note_end(index, side, flags);
	if (flags & TCP_SYN) {
		const bool reply = flags & TCP_ACK;
		const __u64 precise = bpf_ktime_get_ns();

		length++;
		if (!tcp->ttl[side])
			tcp->ttl[side] = p->ttl;
		if (!reply && !tcp->syn) {
			tcp->syn = precise;
		} else if (reply && !tcp->synack) {
			if (tcp->syn) {
				tcp->synack = clamp_ns(precise, tcp->syn);
			} else {
				tcp->syn = precise;
				tcp->synack = 1;
				tcp->no_syn = 1;
			}
			tcp->ack = 0;
		}
		/* The first such packet decides. */
		if (!(slot->seen & (SEEN_LO_OPENED | SEEN_HI_OPENED)))
			set_bits(&slot->seen, side == reply ? SEEN_LO_OPENED : SEEN_HI_OPENED);
	} else {
		if ((flags & (TCP_ACK | TCP_RST)) == TCP_ACK && tcp->synack && !tcp->ack &&
		    (slot->seen & (side ? SEEN_HI_OPENED : SEEN_LO_OPENED)))
			tcp->ack = clamp_ns(bpf_ktime_get_ns(),
					    tcp->syn + (tcp->no_syn ? 0 : tcp->synack));
		if (!p->window && !(flags & TCP_RST))
			__sync_fetch_and_add(&tcp->zero_window[side], 1);
	}
	if (flags & TCP_FIN)
		length++;
	if (!length)
		return;
	end = p->seq + length;
	if (!tcp->have_seq[side]) {
		tcp->have_seq[side] = 1;
		tcp->next_seq[side] = end;
		return;
	}
	{
		const __s32 ahead = p->seq - tcp->next_seq[side];

		if (ahead) {
			/* Rare enough for the exact clock; the coarse one ticks too slowly here. */
			const __u32 now_us = (__u32)(bpf_ktime_get_ns() / NSEC_PER_USEC) | 1;
			const bool keep_alive =
				ahead == -1 && p->payload <= 1 && !(flags & (TCP_SYN | TCP_FIN));

			if (keep_alive)
				return;
			if (ahead > 0) {
				tcp->gap_us[side] = now_us;
				note_gap(index, side, ahead);
			} else if (tcp->gap_us[side] &&
				   now_us - tcp->gap_us[side] < LATE_WINDOW_US) {
				__sync_fetch_and_add(&tcp->out_of_order[side], 1);
			} else {
				__sync_fetch_and_add(&tcp->retransmitted[side], 1);
			}
		}
		if ((__s32)(end - tcp->next_seq[side]) > 0)
			tcp->next_seq[side] = end;
	}
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
	struct flow_tcp *tcp = bpf_map_lookup_elem(&tcp_slots, &index);
	struct flow_cold *cold = cold_of(index);
	struct flow_control *ctl = the_control();
	struct flow_ended *ended;
	__u32 seen, tries;
	__u64 now;

	if (!slot || !tcp || !cold || !ctl)
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
	ended->tcp = *tcp;
	ended->cold = *cold;
	*(volatile __u64 *)&slot->first = now;
	slot->last = now;
	ended->slot.sent[0].packets = count_anew(&slot->sent[0].packets);
	ended->slot.sent[0].bytes = count_anew(&slot->sent[0].bytes);
	ended->slot.sent[1].packets = count_anew(&slot->sent[1].packets);
	ended->slot.sent[1].bytes = count_anew(&slot->sent[1].bytes);
	__builtin_memset(tcp, 0, sizeof(*tcp));
	__builtin_memset(cold, 0, sizeof(*cold));
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
	__u32 index = 0, bits;
	bool fresh, look;
	__u64 now, last;

#ifdef SKUA_PACKETS
	p->index = 0;
	p->place = NO_PLACE;
#endif
	slot = find_slot(p, &index, &fresh);
	if (slot && !fresh && ports_used_again(slot, p)) {
		const int begun = begin_again(index, p->from_hi);

		if (begun == BEGUN)
			set_carrier(slot, p);
		else if (begun == BEGUN_MERGED)
			count_cause(point_of(&p->key), p->direction, NOTE_REUSE_MERGED, 1, 0);
	}
	if (!slot) {
		count_cause(point_of(&p->key), p->direction,
			    p->key.kind >> KIND_TUNNEL_SHIFT ? NOTE_CHILD_FULL
							     : full_cause(&p->key),
			    p->packets, p->bytes);
		return COUNTED_NOT;
	}
	now = now_coarse();
	last = slot->last;
	/* The coarse clock is behind the exact one that set it first. */
	if (now > last)
		slot->last = now;
	/* Before the counters, so that a drain in between knows their direction. */
	bits = (__u32)p->tcp_flags << (side * 8);
	bits |= (p->direction == DIR_INGRESS ? SEEN_LO_INGRESS : SEEN_LO_EGRESS) << (side * 2);
	/* So each flow pays for a look now and then, and not each packet. */
	look = (slot->seen & bits) != bits || (now ^ last) >> LOOK_SHIFT;
	set_bits(&slot->seen, bits);
	__sync_fetch_and_add(&slot->sent[side].packets, p->packets);
	__sync_fetch_and_add(&slot->sent[side].bytes, p->bytes);
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
