// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * At a source: selects packets and copies them. The original is neither changed nor delayed, and
 * the verdict always lets it pass, whether the copy succeeded or not.
 *
 * A program compiled from a pcap expression may run before it, which ends in a tail call to this.
 */
#include "parties.h"
#include "send.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* By index of the interface in the namespace that the programs are loaded for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SOURCES);
	__type(key, __u32);
	__type(value, struct tap_source);
} sources SEC(".maps");

/* Two for each source: received, sent. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * MAX_SOURCES);
	__type(key, __u32);
	__type(value, struct tap_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OUTPUTS);
	__type(key, __u32);
	__type(value, struct tap_output);
} outputs SEC(".maps");

/* How far ahead of time the tap is (generic cell rate algorithm, ITU-T I.371). */
struct bucket {
	struct bpf_spin_lock lock;
	__u32 pad;
	__u64 packets;
	__u64 bits;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

#ifdef SKUA_STREAM
/* Packets for user space. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} packets SEC(".maps");

static __always_inline void fill_head(struct __sk_buff *skb, struct tap_packet *head, __u32 source,
				      __u32 bytes)
{
	head->time = bpf_ktime_get_ns();
	head->length = skb->len;
	head->captured = bytes;
	head->source = source;
	head->tag_protocol = skb->vlan_present ? bpf_ntohs(skb->vlan_proto) : 0;
	head->tag = skb->vlan_tci;
}

#define SEND_HEAD	     struct tap_packet
#define SEND_FILL(head)	     fill_head(skb, head, source, bytes)
#define SEND_LOAD(to, bytes) bpf_skb_load_bytes(skb, 0, to, bytes)
#define SEND_FLAGS	     0

/* As bpf_clone_redirect(): 0, or positive when the queue is full, or negative. */
__noinline int send_packet(struct __sk_buff *skb, __u32 source)
{
	__u64 bytes = skb->len;

	if (settings.cut && bytes > settings.cut)
		bytes = settings.cut;
	if (bytes > PACKET_MOST)
		bytes = PACKET_MOST;
	SEND();
full:
	return 1;
failed:
	return -1;
}
#endif

static __always_inline bool within_rate(__u64 packets, __u64 bytes)
{
	const __u64 now = bpf_ktime_get_ns() << 10;
	const __u64 packet_cost = packets * settings.packet_time;
	const __u64 bit_cost = bytes * 8 * settings.bit_time;
	__u64 packet_time, bit_time;
	struct bucket *bucket;
	bool within = false;
	__u32 key = 0;

	bucket = bpf_map_lookup_elem(&buckets, &key);
	if (!bucket)
		return true;
	bpf_spin_lock(&bucket->lock);
	packet_time = bucket->packets > now ? bucket->packets : now;
	bit_time = bucket->bits > now ? bucket->bits : now;
	if (packet_time - now <= settings.burst && bit_time - now <= settings.burst) {
		bucket->packets = packet_time + packet_cost;
		bucket->bits = bit_time + bit_cost;
		within = true;
	}
	bpf_spin_unlock(&bucket->lock);
	return within;
}

/* Whether this interface sees the packet for the second time. */
static __always_inline bool was_copied(struct __sk_buff *skb)
{
	const __u32 ifindex = skb->ingress_ifindex;
	struct tap_source *in;

	if (!ifindex || ifindex == skb->ifindex)
		return false;
	in = bpf_map_lookup_elem(&sources, &ifindex);
	return in && (in->tapped & 1);
}

static __always_inline void tap(struct __sk_buff *skb, bool ethernet, bool egress)
{
	const __u64 bytes = skb->len, packets = skb->gso_segs > 1 ? skb->gso_segs : 1;
	__u32 ifindex = skb->ifindex;
#ifndef SKUA_STREAM
	struct tap_output *to;
	__u32 place = 0, saved[4];
#endif
	struct tap_counters *c;
	struct tap_source *s;
	enum tap_cause cause;
	long result;

	if (settings.flags & (TAP_PARTIES | TAP_SOCKETS | TAP_BALANCE)) {
		struct ends e = {};

		read_ends(skb, &e, ethernet, settings.flags & (TAP_SOCKETS | TAP_BALANCE));
		if ((settings.flags & TAP_PARTIES) && !parties_match(&e))
			return;
		if ((settings.flags & TAP_SOCKETS) && !sockets_match(&e))
			return;
#ifndef SKUA_STREAM
		if (settings.flags & TAP_BALANCE)
			place = flow_hash_of(&e) % OUTPUTS;
#endif
	}
	s = bpf_map_lookup_elem(&sources, &ifindex);
	if (!s)
		return;
	ifindex = 2 * s->number + egress;
	c = bpf_map_lookup_elem(&counters, &ifindex);
	if (!c)
		return;
	cause = TAP_COPY;
	if (is_copy(skb))
		goto dropped;
	count(&c->matched, packets, bytes);
	cause = TAP_DUPLICATE;
	if (egress && (settings.flags & TAP_DEDUP) && was_copied(skb))
		goto dropped;
	cause = TAP_SAMPLED;
	if (settings.sampling && bpf_get_prandom_u32() >= settings.sampling)
		goto dropped;
#ifndef SKUA_STREAM
	cause = TAP_NO_MONITOR;
	to = bpf_map_lookup_elem(&outputs, &place);
	if (!to || !to->ifindex)
		goto dropped;
	cause = TAP_TOO_BIG;
	if (to->mtu && !skb->gso_size && bytes > to->mtu + 14)
		goto dropped;
#endif
	cause = TAP_RATE_LIMIT;
	if ((settings.flags & TAP_RATE) && !within_rate(packets, bytes))
		goto dropped;
#ifdef SKUA_STREAM
	result = send_packet(skb, s->number | (egress ? FROM_EGRESS : 0));
#else
	/* Saved for the original: other programs may use its control block. */
	saved[0] = skb->cb[0];
	saved[1] = skb->cb[1];
	saved[2] = skb->cb[2];
	saved[3] = skb->cb[3];
	skb->cb[0] = settings.process;
	skb->cb[1] = settings.tap;
	skb->cb[2] = s->number | (egress ? FROM_EGRESS : 0);
	skb->cb[3] = to->monitor;
	result = bpf_clone_redirect(skb, to->ifindex, 0);
	skb->cb[0] = saved[0];
	skb->cb[1] = saved[1];
	skb->cb[2] = saved[2];
	skb->cb[3] = saved[3];
#endif
	if (!result) {
		count(&c->copied, packets, bytes);
		return;
	}
	/* Results of a queue are positive. */
	cause = result > 0 ? TAP_FULL : TAP_FAILED;
dropped:
	if (cause < TAP_CAUSES)
		count(&c->dropped[cause], packets, bytes);
}

SEC("tc")
int tap_ingress(struct __sk_buff *skb)
{
	tap(skb, true, false);
	return GO_ON;
}

SEC("tc")
int tap_egress(struct __sk_buff *skb)
{
	tap(skb, true, true);
	return GO_ON;
}

#ifdef SKUA_STREAM
/* Of interfaces without Ethernet header: such packets cannot be cloned to one that has it. */
SEC("tc")
int tap_ingress_ip(struct __sk_buff *skb)
{
	tap(skb, false, false);
	return GO_ON;
}

SEC("tc")
int tap_egress_ip(struct __sk_buff *skb)
{
	tap(skb, false, true);
	return GO_ON;
}
#endif
