// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * On the monitor's side, where only copies pass: tags, cuts and encapsulates them. Nothing here can
 * affect the originals.
 */
#include "parse.h"
#include "tap.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OUTPUTS);
	__type(key, __u32);
	__type(value, struct tap_monitor);
} monitors SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUTPUTS);
	__type(key, __u32);
	__type(value, struct tap_monitor_counters);
} monitor_counters SEC(".maps");

/* Sequence number of the next ERSPAN copy. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sequence SEC(".maps");

static __always_inline struct tap_monitor_counters *counters_of(__u32 monitor)
{
	return bpf_map_lookup_elem(&monitor_counters, &monitor);
}

static __always_inline int tag(struct __sk_buff *skb)
{
	const __u32 source = skb->cb[2] & ~FROM_EGRESS;

	if (!settings.vlan)
		return 0;
	return bpf_skb_vlan_push(skb, bpf_htons(ETHERTYPE_VLAN), (settings.vlan + source) & 0xfff);
}

struct outer_ethernet {
	__u8 destination[6], source[6];
	__be16 type;
};

struct outer_ipv4 {
	struct outer_ethernet ethernet;
	__u8 version_length, tos;
	__be16 length, id, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__u8 source[4], destination[4];
} __attribute__((packed));

struct outer_ipv6 {
	struct outer_ethernet ethernet;
	__be32 version;
	__be16 length;
	__u8 next, hops;
	__u8 source[16], destination[16];
} __attribute__((packed));

/* RFC 7348; RFC 8926 without options has its fields at the same places. */
struct outer_udp {
	__be16 source, destination, length, checksum;
	__u8 flags, reserved;
	__be16 protocol;
	__be32 id;
};

/* GRE with a sequence number (RFC 2890) and ERSPAN type III (draft-foschiano-erspan-03). */
struct outer_erspan {
	__be16 flags, protocol;
	__be32 sequence;
	__be16 version_vlan, session;
	__be32 timestamp;
	__be16 group, bits;
};

#define VXLAN_HAS_ID	  0x08
#define PROTOCOL_ETHERNET 0x6558
#define PROTOCOL_ERSPAN	  0x22eb
#define GRE_SEQUENCE	  0x1000
#define ERSPAN_VERSION	  (2 << 12)
#define ERSPAN_CUT	  (1 << 10)
#define ERSPAN_SENT	  (1 << 3)
#define ERSPAN_TICK	  100000 /* ns */
#define PROTO_UDP	  17
#define PROTO_GRE	  47
#define MOST_TAGS	  3
#define TAG_BYTES	  4
#define LEAST		  64 /* minimum number of bytes left of a packet */

struct tag {
	__be16 protocol, control;
};

/* Takes the tags off that the kernel holds beside the packet, and puts ours before them. */
static __always_inline int take_tags(struct __sk_buff *skb, struct tag *tags, __u32 *count)
{
	int i;

	if (settings.vlan) {
		tags[0].protocol = bpf_htons(ETHERTYPE_VLAN);
		tags[0].control = bpf_htons((settings.vlan + (skb->cb[2] & ~FROM_EGRESS)) & 0xfff);
		*count = 1;
	}
	for (i = 0; i < 2; i++) {
		if (!skb->vlan_present)
			return 0;
		if (*count >= MOST_TAGS)
			return -1;
		tags[*count].protocol = skb->vlan_proto;
		tags[*count].control = bpf_htons(skb->vlan_tci);
		*count += 1;
		if (bpf_skb_vlan_pop(skb))
			return -1;
	}
	return skb->vlan_present ? -1 : 0;
}

static __always_inline __u16 checksum_of(const void *header, __u32 words)
{
	const __u16 *word = header;
	__u32 sum = 0, i;

	for (i = 0; i < words; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline int store_outer(struct __sk_buff *skb, const struct tap_monitor *m,
				       __u8 protocol)
{
	const __u32 length = skb->len;

	if (m->ipv6) {
		struct outer_ipv6 h = {
			.ethernet.type = bpf_htons(0x86dd),
			.version = bpf_htonl(6 << 28),
			.length = bpf_htons(length - sizeof(h)),
			.next = protocol,
			.hops = m->ttl,
		};

		__builtin_memcpy(h.ethernet.destination, m->remote_mac, 6);
		__builtin_memcpy(h.ethernet.source, m->local_mac, 6);
		__builtin_memcpy(h.source, m->local, 16);
		__builtin_memcpy(h.destination, m->remote, 16);
		return bpf_skb_store_bytes(skb, 0, &h, sizeof(h), 0);
	} else {
		struct outer_ipv4 h = {
			.ethernet.type = bpf_htons(0x0800),
			.version_length = 0x45,
			.length = bpf_htons(length - sizeof(struct outer_ethernet)),
			.ttl = m->ttl,
			.protocol = protocol,
		};

		__builtin_memcpy(h.ethernet.destination, m->remote_mac, 6);
		__builtin_memcpy(h.ethernet.source, m->local_mac, 6);
		__builtin_memcpy(h.source, m->local, 4);
		__builtin_memcpy(h.destination, m->remote, 4);
		h.checksum = checksum_of(&h.version_length, 10);
		return bpf_skb_store_bytes(skb, 0, &h, sizeof(h), 0);
	}
}

static __always_inline int store_tunnel(struct __sk_buff *skb, const struct tap_monitor *m,
					__u32 at, __u32 hash, bool cut)
{
	if (m->encapsulation == TAP_ERSPAN) {
		const __u32 number = skb->cb[2] & 0x3f;
		struct outer_erspan h = {
			.flags = bpf_htons(GRE_SEQUENCE),
			.protocol = bpf_htons(PROTOCOL_ERSPAN),
			.version_vlan = bpf_htons(ERSPAN_VERSION),
			.session = bpf_htons((m->id & 0x3ff) | (cut ? ERSPAN_CUT : 0)),
			.timestamp = bpf_htonl(bpf_ktime_get_ns() / ERSPAN_TICK),
			/* Frame type Ethernet, the source as hardware, times of 100 us. */
			.bits = bpf_htons(number << 4 |
					  (skb->cb[2] & FROM_EGRESS ? ERSPAN_SENT : 0)),
		};
		__u32 zero = 0, *next = bpf_map_lookup_elem(&sequence, &zero);

		if (next)
			h.sequence = bpf_htonl(__sync_fetch_and_add(next, 1));
		return bpf_skb_store_bytes(skb, at, &h, sizeof(h), 0);
	} else {
		const bool geneve = m->encapsulation == TAP_GENEVE;
		struct outer_udp h = {
			.source = bpf_htons(0xc000 | (hash & 0x3fff)),
			.destination = bpf_htons(m->port),
			.length = bpf_htons(skb->len - at),
			.flags = geneve ? 0 : VXLAN_HAS_ID,
			.protocol = geneve ? bpf_htons(PROTOCOL_ETHERNET) : 0,
			.id = bpf_htonl(m->id << 8),
		};

		return bpf_skb_store_bytes(skb, at, &h, sizeof(h), 0);
	}
}

/*
 * Encapsulates the copy in a tunnel, tags included. A copy that would exceed the interface's MTU is
 * cut: a dropped one would show less, and fragments are lost on the way.
 */
static __always_inline int encapsulate(struct __sk_buff *skb, const struct tap_monitor *m,
				       bool *cut)
{
	const __u32 hash = bpf_get_hash_recalc(skb);
	const __u32 ip = m->ipv6 ? sizeof(struct outer_ipv6) : sizeof(struct outer_ipv4);
	const bool erspan = m->encapsulation == TAP_ERSPAN;
	struct tag tags[MOST_TAGS] = {};
	__u32 outer, tag_bytes, count = 0, i;
	__u8 macs[12];

	if (take_tags(skb, tags, &count))
		return -1;
	tag_bytes = count * TAG_BYTES;
	outer = ip + (erspan ? sizeof(struct outer_erspan) : sizeof(struct outer_udp));
	if (skb->len + outer + tag_bytes > m->mtu + 14) {
		if (m->mtu + 14 < outer + tag_bytes + LEAST ||
		    bpf_skb_change_tail(skb, m->mtu + 14 - outer - tag_bytes, 0))
			return -1;
		*cut = true;
	}
	if (bpf_skb_change_head(skb, outer + tag_bytes, 0))
		return -1;
	if (count) {
		if (bpf_skb_load_bytes(skb, outer + tag_bytes, macs, 12) ||
		    bpf_skb_store_bytes(skb, outer, macs, 12, 0))
			return -1;
		for (i = 0; i < MOST_TAGS && i < count; i++)
			if (bpf_skb_store_bytes(skb, outer + 12 + i * TAG_BYTES, &tags[i],
						TAG_BYTES, 0))
				return -1;
	}
	if (store_outer(skb, m, erspan ? PROTO_GRE : PROTO_UDP))
		return -1;
	return store_tunnel(skb, m, ip, hash, *cut);
}

/* On ingress of our end of a veth pair, by which segments come with whole checksums. */
SEC("tc")
int tap_deliver(struct __sk_buff *skb)
{
	const __u32 bytes = skb->len;
	struct tap_monitor_counters *c;
	__u32 number = skb->cb[3];
	struct tap_monitor *m;
	bool cut = false;

	if (!is_our_copy(skb)) {
		c = counters_of(0);
		if (c)
			count(&c->strange, 1, bytes);
		return DROP;
	}
	c = counters_of(number);
	m = bpf_map_lookup_elem(&monitors, &number);
	if (!c)
		return DROP;
	if (!m)
		goto failed;
	if (settings.cut && skb->len > settings.cut) {
		if (bpf_skb_change_tail(skb, settings.cut, 0))
			goto failed;
		cut = true;
	}
	if (m->encapsulation != TAP_PLAIN) {
		if (encapsulate(skb, m, &cut))
			goto failed;
	} else {
		if (skb->len > m->mtu + 14) {
			count(&c->too_big, 1, bytes);
			return DROP;
		}
		if (tag(skb))
			goto failed;
	}
	if (cut)
		count(&c->cut, 1, bytes);
	count(&c->sent, 1, skb->len);
	return bpf_redirect(m->ifindex, 0);
failed:
	count(&c->failed, 1, bytes);
	return DROP;
}

/* On egress of a monitor that copies reach directly: packets that are not copies pass unchanged. */
SEC("tc")
int tap_finish(struct __sk_buff *skb)
{
	struct tap_monitor_counters *c;

	if (!is_our_copy(skb))
		return GO_ON;
	c = counters_of(skb->cb[3]);
	if (!c)
		return GO_ON;
	if (tag(skb)) {
		count(&c->failed, 1, skb->len);
		return DROP;
	}
	count(&c->sent, 1, skb->len);
	return GO_ON;
}
