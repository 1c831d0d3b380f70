// SPDX-License-Identifier: Apache-2.0
// A plain AF_PACKET flow meter: TPACKET_V3 ring, IPv4 5-tuple, open-addressing table in user space.
// The least that a probe in user space has to do, to compare with one in the kernel.
// Prints {"ready":true}, counts until SIGINT, then prints packets counted, dropped, and flows.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { BLOCK = 1 << 20, BLOCKS = 64, SLOTS = 1 << 21 };

struct flow {
	uint64_t addresses, ports; // ports, protocol and a bit that says "in use"
	uint64_t packets, bytes, first, last;
};

static struct flow *flows;
static uint64_t flow_count, packet_count, refused;
static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static void fail(const char *what)
{
	fprintf(stderr, "afpacket: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void count(const unsigned char *data, uint32_t captured, uint32_t length, uint64_t now)
{
	const struct iphdr *ip = (const void *)(data + sizeof(struct ether_header));
	uint16_t type, ports[2] = {0};
	uint32_t addresses[2];

	if (captured < sizeof(struct ether_header) + sizeof *ip)
		return;
	memcpy(&type, data + 12, 2);
	if (type != htons(ETHERTYPE_IP) || ip->ihl < 5)
		return;
	memcpy(addresses, &ip->saddr, 8);
	if (captured >= sizeof(struct ether_header) + ip->ihl * 4u + 4)
		memcpy(ports, (const unsigned char *)ip + ip->ihl * 4, 4);

	uint64_t a = (uint64_t)addresses[0] << 32 | addresses[1];
	uint64_t b = (uint64_t)ports[0] << 32 | (uint64_t)ports[1] << 16 | ip->protocol << 8 | 1;
	uint64_t hash = (a ^ b * 0x9e3779b97f4a7c15) * 0xc2b2ae3d27d4eb4f;
	for (uint32_t i = 0, slot = hash >> 43; i < 64; i++, slot = (slot + 1) % SLOTS) {
		struct flow *f = &flows[slot];
		if (!f->ports) {
			*f = (struct flow){.addresses = a, .ports = b, .first = now};
			flow_count++;
		} else if (f->addresses != a || f->ports != b)
			continue;
		f->packets++;
		f->bytes += length;
		f->last = now;
		packet_count++;
		return;
	}
	refused++;
}

static void read_block(struct tpacket_block_desc *block)
{
	struct tpacket3_hdr *p = (void *)((char *)block + block->hdr.bh1.offset_to_first_pkt);

	for (uint32_t i = 0; i < block->hdr.bh1.num_pkts; i++) {
		count((unsigned char *)p + p->tp_mac, p->tp_snaplen, p->tp_len,
		      p->tp_sec * 1000000000ull + p->tp_nsec);
		p = (void *)((char *)p + p->tp_next_offset);
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct tpacket_req3 ring = {.tp_block_size = BLOCK,
				    .tp_block_nr = BLOCKS,
				    .tp_frame_size = 2048,
				    .tp_frame_nr = BLOCK / 2048 * BLOCKS,
				    .tp_retire_blk_tov = 20};
	struct tpacket_stats_v3 stats = {0};
	socklen_t length = sizeof stats;
	int version = TPACKET_V3;

	if (argc != 3 || strcmp(argv[1], "--dev")) {
		fputs("usage: afpacket --dev IF\n", stderr);
		return 2;
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	int fd = socket(AF_PACKET, SOCK_RAW, 0);
	struct sockaddr_ll address = {.sll_family = AF_PACKET,
				      .sll_protocol = htons(ETH_P_ALL),
				      .sll_ifindex = if_nametoindex(argv[2])};
	if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
	    setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring))
		fail("ring");
	char *blocks =
		mmap(NULL, (size_t)BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	flows = mmap(NULL, sizeof *flows * SLOTS, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (blocks == MAP_FAILED || flows == MAP_FAILED)
		fail("memory");
	if (bind(fd, (void *)&address, sizeof address))
		fail(argv[2]);
	puts("{\"ready\":true}");
	fflush(stdout);

	for (int next = 0; !stop;) {
		struct tpacket_block_desc *block = (void *)(blocks + (size_t)next * BLOCK);
		if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) &
		      TP_STATUS_USER)) {
			struct pollfd wait = {.fd = fd, .events = POLLIN};
			poll(&wait, 1, 1000);
			continue;
		}
		read_block(block);
		__atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
		next = (next + 1) % BLOCKS;
	}
	getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length);
	printf("{\"packets\":%lu,\"dropped\":%u,\"table_full\":%lu,\"flows\":%lu}\n", packet_count,
	       stats.tp_drops, refused, flow_count);
	return 0;
}
