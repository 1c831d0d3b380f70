// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One flow table design per object: compiled once per DESIGN (see Makefile). All share the parser,
// the 56-byte key, the 64 bytes of counters and the coarse clock, so that only the table differs.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define EMPTY_PROGRAM 0
#define PARSE_ONLY 1
#define HASH 2
#define TWO_GENERATIONS 3
#define LRU_HASH 4
#define PERCPU_HASH 5
#define ARENA_PERCPU 6
#define ARRAY_SHARED 7
#define ARRAY_PERCPU 8

#define TCX_NEXT -1
#define PROBES 32
#define RETRIES 16 // looks at a slot that another CPU is filling

struct key {
	__u64 w[7];
};

struct counters {
	struct {
		__u64 packets, bytes;
	} sent[2]; // by lo, by hi
	__u64 first_ns, last_ns;
	__u64 flags[2];
};

// First cache line: what finds the flow; second: what counts it.
struct slot {
	__u32 state;
	__u32 pad;
	struct key key;
	struct counters counters;
};
_Static_assert(sizeof(struct slot) == 128, "two cache lines");

enum { STATE_EMPTY, STATE_BUSY, STATE_DYING, STATE_RESERVED, STATE_TAG };

// Fixed at load: 1 in test runs, where the source endpoint is made up instead of parsed.
const volatile __u32 synthetic = 0;
const volatile __u32 slots = 1;
// Test runs: random = any of `flows`; otherwise every run is the next flow of this CPU.
volatile __u32 random_walk, flows, step;
struct {
	__u32 next;
	__u32 pad[15];
} volatile walk[2];
struct {
	__u64 lost;
	__u64 pad[7];
} volatile losses[2];

#if DESIGN == HASH || DESIGN == LRU_HASH || DESIGN == PERCPU_HASH
struct {
#if DESIGN == HASH
	__uint(type, BPF_MAP_TYPE_HASH);
#elif DESIGN == LRU_HASH
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
#else
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
#endif
	__uint(max_entries, 1);
	__type(key, struct key);
	__type(value, struct counters);
} table SEC(".maps");
#elif DESIGN == TWO_GENERATIONS
struct generation {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct key);
	__type(value, struct counters);
} table SEC(".maps"), table2 SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct generation);
} active SEC(".maps") = { .values = { &table } };
#elif DESIGN == ARRAY_SHARED || DESIGN == ARRAY_PERCPU
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot);
} table SEC(".maps");
#elif DESIGN == ARENA_PERCPU
#define __arena __attribute__((address_space(1)))
#define ARENA_BASE (1ull << 44)
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__ulong(map_extra, ARENA_BASE);
} table SEC(".maps");
#endif

static __always_inline __u64 flow_hash(const struct key *key)
{
	__u64 hash = 0x243f6a8885a308d3;

#pragma unroll
	for (int i = 0; i < 7; i++) {
		hash = (hash ^ key->w[i]) * 0x9e3779b97f4a7c15;
		hash ^= hash >> 32;
	}
	return hash;
}

// Ethernet, IPv4, UDP: canonical key and direction (1 when the source is the higher endpoint).
static __always_inline int parse(struct __sk_buff *skb, struct key *key)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 ||
	    ip->protocol != 17)
		return -1;

	__u32 saddr = ip->saddr, daddr = ip->daddr;
	__u16 sport = udp->source, dport = udp->dest;
	if (synthetic) {
		__u32 cpu = bpf_get_smp_processor_id() & 1, flow;
		if (random_walk)
			flow = ((__u64)bpf_get_prandom_u32() * flows) >> 32;
		else
			flow = walk[cpu].next++ * step + (step == 2 ? cpu : 0);
		saddr = bpf_htonl(0x0b000000 + flow);
		sport = bpf_htons(1024 + (flow & 0xff));
	}

	__u32 s = bpf_ntohl(saddr), d = bpf_ntohl(daddr);
	int hi = s > d || (s == d && bpf_ntohs(sport) > bpf_ntohs(dport));
	key->w[0] = key->w[2] = 0;
	key->w[1] = 0xffff0000ull | (__u64)(hi ? daddr : saddr) << 32;
	key->w[3] = 0xffff0000ull | (__u64)(hi ? saddr : daddr) << 32;
	key->w[4] = (hi ? dport : sport) | (__u32)(hi ? sport : dport) << 16 |
		    (__u64)skb->ifindex << 32;
	key->w[5] = (__u64)ip->protocol << 48 | 5ull << 56;
	key->w[6] = 0;
	return hi;
}

#if DESIGN >= HASH
static __always_inline void add_atomic(struct counters *c, int dir, __u64 len, __u64 now)
{
	if (dir) {
		__sync_fetch_and_add(&c->sent[1].packets, 1);
		__sync_fetch_and_add(&c->sent[1].bytes, len);
	} else {
		__sync_fetch_and_add(&c->sent[0].packets, 1);
		__sync_fetch_and_add(&c->sent[0].bytes, len);
	}
	if (c->last_ns != now)
		c->last_ns = now;
}

static __always_inline void begin(struct counters *c, int dir, __u64 len, __u64 now)
{
	c->sent[0].packets = !dir;
	c->sent[0].bytes = dir ? 0 : len;
	c->sent[1].packets = !!dir;
	c->sent[1].bytes = dir ? len : 0;
	c->first_ns = bpf_ktime_get_ns();
	c->last_ns = now;
	c->flags[0] = c->flags[1] = 0;
}

#define ADD_PLAIN(c, dir, len, now)                 \
	do {                                        \
		if (dir) {                          \
			(c)->sent[1].packets++;     \
			(c)->sent[1].bytes += len;  \
		} else {                            \
			(c)->sent[0].packets++;     \
			(c)->sent[0].bytes += len;  \
		}                                   \
		if ((c)->last_ns != now)            \
			(c)->last_ns = now;         \
	} while (0)

static __always_inline void lose(void)
{
	losses[bpf_get_smp_processor_id() & 1].lost++;
}
#endif

#if DESIGN == HASH || DESIGN == LRU_HASH || DESIGN == PERCPU_HASH || DESIGN == TWO_GENERATIONS
static __always_inline void count(struct key *key, int dir, __u64 len)
{
	__u64 now = bpf_ktime_get_coarse_ns();
#if DESIGN == TWO_GENERATIONS
	__u32 zero = 0;
	void *map = bpf_map_lookup_elem(&active, &zero);
	if (!map)
		return;
#else
	void *map = &table;
#endif
	struct counters *c = bpf_map_lookup_elem(map, key);
	if (!c) {
		struct counters fresh;
		begin(&fresh, dir, len, now);
		if (!bpf_map_update_elem(map, key, &fresh, BPF_NOEXIST))
			return;
		// Another CPU was first, or (per-CPU map) the entry is there without our share.
		c = bpf_map_lookup_elem(map, key);
		if (!c) {
			lose();
			return;
		}
	}
#if DESIGN == PERCPU_HASH
	if (!c->first_ns)
		c->first_ns = bpf_ktime_get_ns();
	ADD_PLAIN(c, dir, len, now);
#else
	add_atomic(c, dir, len, now);
#endif
}
#elif DESIGN == ARRAY_SHARED
static __always_inline int same_key(const struct key *a, const struct key *b)
{
	return !((a->w[1] ^ b->w[1]) | (a->w[3] ^ b->w[3]) | (a->w[4] ^ b->w[4]) |
		 (a->w[5] ^ b->w[5]) | (a->w[0] ^ b->w[0]) | (a->w[2] ^ b->w[2]) |
		 (a->w[6] ^ b->w[6]));
}

static __always_inline void count(struct key *key, int dir, __u64 len)
{
	__u64 hash = flow_hash(key), now = bpf_ktime_get_coarse_ns();
	__u32 tag = (__u32)(hash >> 32) | STATE_TAG;
	__u32 index = ((hash & 0xffffffff) * slots) >> 32;

	// One counter for probes and retries: with two the verifier sees their product of states and
	// gives up at a million instructions.
#pragma clang loop unroll(disable)
	for (int i = 0; i < PROBES + RETRIES; i++) {
		struct slot *slot = bpf_map_lookup_elem(&table, &index);
		if (!slot)
			break;
		__u32 state = *(volatile __u32 *)&slot->state;
		if (state == tag && same_key(&slot->key, key)) {
			add_atomic(&slot->counters, dir, len, now);
			return;
		}
		if (state == STATE_EMPTY) {
			if (__sync_val_compare_and_swap(&slot->state, STATE_EMPTY, STATE_BUSY) ==
			    STATE_EMPTY) {
				slot->key = *key;
				begin(&slot->counters, dir, len, now);
				__sync_lock_test_and_set(&slot->state, tag);
				return;
			}
			continue; // someone took it: look again, it may be our flow
		}
		if (state == STATE_BUSY)
			continue;
		if (++index == slots)
			index = 0;
	}
	lose();
}
#elif DESIGN == ARRAY_PERCPU || DESIGN == ARENA_PERCPU
#if DESIGN == ARENA_PERCPU
typedef struct slot __arena *slot_ptr;
#else
typedef struct slot *slot_ptr;
#endif

static __always_inline void count(struct key *key, int dir, __u64 len)
{
	__u64 hash = flow_hash(key), now = bpf_ktime_get_coarse_ns();
	__u32 tag = (__u32)(hash >> 32) | STATE_TAG;
	__u32 base = (bpf_get_smp_processor_id() & 1) * slots;
	__u32 index = base + (((hash & 0xffffffff) * slots) >> 32);

#if DESIGN == ARENA_PERCPU
	// The verifier wants the program to name the arena.
	void *arena = &table;
	asm volatile("" ::"r"(arena));
#endif
#pragma clang loop unroll(disable)
	for (int i = 0; i < PROBES; i++) {
#if DESIGN == ARENA_PERCPU
		slot_ptr slot = (slot_ptr)(ARENA_BASE | (__u64)index * sizeof(struct slot));
#else
		slot_ptr slot = bpf_map_lookup_elem(&table, &index);
		if (!slot)
			break;
#endif
		__u32 state = slot->state;
		if (state == tag &&
		    !((slot->key.w[1] ^ key->w[1]) | (slot->key.w[3] ^ key->w[3]) |
		      (slot->key.w[4] ^ key->w[4]) | (slot->key.w[5] ^ key->w[5]) |
		      (slot->key.w[0] ^ key->w[0]) | (slot->key.w[2] ^ key->w[2]) |
		      (slot->key.w[6] ^ key->w[6]))) {
			ADD_PLAIN(&slot->counters, dir, len, now);
			return;
		}
		if (state == STATE_EMPTY) {
#pragma unroll
			for (int w = 0; w < 7; w++)
				slot->key.w[w] = key->w[w];
			slot->counters.sent[0].packets = !dir;
			slot->counters.sent[0].bytes = dir ? 0 : len;
			slot->counters.sent[1].packets = !!dir;
			slot->counters.sent[1].bytes = dir ? len : 0;
			slot->counters.first_ns = bpf_ktime_get_ns();
			slot->counters.last_ns = now;
			slot->state = tag;
			return;
		}
		if (++index == base + slots)
			index = base;
	}
	lose();
}
#endif

SEC("tcx/ingress")
int flow(struct __sk_buff *skb)
{
#if DESIGN != EMPTY_PROGRAM
	struct key key;
	int dir = parse(skb, &key);

	if (dir < 0)
		return TCX_NEXT;
#if DESIGN == PARSE_ONLY
	// Depends on every word of the key, so that none is optimised away.
	__u64 all = key.w[1] ^ key.w[3] ^ key.w[4] ^ key.w[5] ^ dir;
	asm volatile("" ::"r"(all));
#else
	count(&key, dir, skb->len);
#endif
#endif
	return TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
