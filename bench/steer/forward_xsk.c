// SPDX-License-Identifier: Apache-2.0
// The detector in user space by AF_XDP: takes frames of one interface, judges them as the preset
// ewma-64 does, and sends them out of that of pod A or pod B, from the memory that they came in.
// Says in one JSON line what it took when it gets SIGINT.
#define _GNU_SOURCE
#include "../common.h"
#include "ewma.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { FRAMES = 4096, FRAME_BYTES = 2048, RING = 2048, BATCH = 64, PAYLOAD = 42 };

struct ring {
	uint32_t *producer, *consumer;
	void *entries;
};

struct port {
	int fd;
	struct ring fill, done, rx, tx;
	unsigned waiting;
};

static unsigned char *memory;

static struct ring map_ring(int fd, const struct xdp_ring_offset *at, size_t entry, off_t page)
{
	char *base = mmap(NULL, at->desc + RING * entry, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, fd, page);

	if (base == MAP_FAILED)
		fail("ring");
	return (struct ring){(void *)(base + at->producer), (void *)(base + at->consumer),
			     base + at->desc};
}

// `first`: whose memory the others share; it receives, they send.
static struct port open_port(const char *interface, const struct port *first)
{
	struct port port = {.fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0)};
	struct xdp_umem_reg region = {
		.addr = (uintptr_t)memory, .len = FRAMES * FRAME_BYTES, .chunk_size = FRAME_BYTES};
	struct sockaddr_xdp address = {.sxdp_family = AF_XDP,
				       .sxdp_flags = first ? XDP_SHARED_UMEM : XDP_COPY,
				       .sxdp_ifindex = if_nametoindex(interface),
				       .sxdp_shared_umem_fd = first ? first->fd : 0};
	struct xdp_mmap_offsets at;
	socklen_t size = sizeof at;
	int entries = RING;

	if (port.fd < 0 ||
	    (!first && setsockopt(port.fd, SOL_XDP, XDP_UMEM_REG, &region, sizeof region)) ||
	    setsockopt(port.fd, SOL_XDP, XDP_UMEM_FILL_RING, &entries, sizeof entries) ||
	    setsockopt(port.fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &entries, sizeof entries) ||
	    setsockopt(port.fd, SOL_XDP, first ? XDP_TX_RING : XDP_RX_RING, &entries,
		       sizeof entries) ||
	    getsockopt(port.fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &size))
		fail("AF_XDP");
	port.fill = map_ring(port.fd, &at.fr, sizeof(uint64_t), XDP_UMEM_PGOFF_FILL_RING);
	port.done = map_ring(port.fd, &at.cr, sizeof(uint64_t), XDP_UMEM_PGOFF_COMPLETION_RING);
	if (first)
		port.tx = map_ring(port.fd, &at.tx, sizeof(struct xdp_desc), XDP_PGOFF_TX_RING);
	else
		port.rx = map_ring(port.fd, &at.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING);
	if (bind(port.fd, (void *)&address, sizeof address))
		fail(interface);
	return port;
}

static uint32_t there(const uint32_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static void advance(uint32_t *counter, uint32_t by)
{
	__atomic_store_n(counter, *counter + by, __ATOMIC_RELEASE);
}

// Frames that were sent can take what comes.
static void take_back(struct port *in, struct port *out)
{
	uint32_t count = there(out->done.producer) - *out->done.consumer;
	uint64_t *done = out->done.entries, *fill = in->fill.entries;

	for (uint32_t i = 0; i < count; i++)
		fill[(*in->fill.producer + i) % RING] =
			done[(*out->done.consumer + i) % RING] / FRAME_BYTES * FRAME_BYTES;
	advance(in->fill.producer, count);
	advance(out->done.consumer, count);
}

static void read_mac(const char *text, unsigned char *mac)
{
	if (sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1], &mac[2], &mac[3],
		   &mac[4], &mac[5]) != 6)
		fail("MAC address");
}

static void attach(const char *object, const char *interface, const struct port *port)
{
	LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
	struct bpf_object *feed = bpf_object__open_file(object, NULL);
	uint32_t queue = 0;

	if (!feed || bpf_object__load(feed))
		fail("load (root?)");
	int map = bpf_object__find_map_fd_by_name(feed, "to_sockets");
	struct bpf_program *program = bpf_object__find_program_by_name(feed, "to_user");
	if (map < 0 || !program || bpf_map_update_elem(map, &queue, &port->fd, 0) ||
	    bpf_link_create(bpf_program__fd(program), if_nametoindex(interface), BPF_XDP,
			    &options) < 0)
		fail("attach");
}

int main(int argc, char **argv)
{
	unsigned char macs[2][6];
	struct port in, out[2];
	struct sums sums = {0};

	if (argc != 8) {
		fputs("usage: forward_xsk CPU FEED.bpf.o IN OUT-A MAC-OF-A OUT-B MAC-OF-B\n",
		      stderr);
		return 2;
	}
	pin(atoi(argv[1]));
	libbpf_set_print(NULL);
	memory = mmap(NULL, FRAMES * FRAME_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		fail("memory");
	in = open_port(argv[3], NULL);
	for (int i = 0; i < 2; i++) {
		out[i] = open_port(argv[4 + 2 * i], &in);
		read_mac(argv[5 + 2 * i], macs[i]);
	}
	attach(argv[2], argv[3], &in);
	for (uint32_t i = 0; i < RING; i++)
		((uint64_t *)in.fill.entries)[i] = (uint64_t)i * FRAME_BYTES;
	advance(in.fill.producer, RING);
	until_interrupted();
	puts("{\"ready\":true}");
	fflush(stdout);
	sums.cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
	while (!stop) {
		struct pollfd poll_in = {in.fd, POLLIN, 0};
		uint32_t n = there(in.rx.producer) - *in.rx.consumer;

		if (!n) {
			poll(&poll_in, 1, 100);
			continue;
		}
		if (n > BATCH)
			n = BATCH;
		struct timespec t;
		clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
		if (!sums.first)
			sums.first = seconds(CLOCK_MONOTONIC);
		for (uint32_t i = 0; i < n; i++) {
			struct xdp_desc *frame = in.rx.entries;

			frame += (*in.rx.consumer + i) % RING;
			unsigned char *data = memory + frame->addr;
			bool b = judge(data + PAYLOAD, (int)frame->len - PAYLOAD,
				       t.tv_sec * 1000000000ULL + t.tv_nsec);
			struct port *to = &out[b];
			struct xdp_desc *next = to->tx.entries;

			sums.to_b += b;
			memcpy(data, macs[b], sizeof macs[b]);
			next[(*to->tx.producer + to->waiting++) % RING] =
				(struct xdp_desc){.addr = frame->addr, .len = frame->len};
		}
		advance(in.rx.consumer, n);
		sums.received += n;
		for (int i = 0; i < 2; i++) {
			struct port *to = &out[i];

			if (to->waiting) {
				advance(to->tx.producer, to->waiting);
				sums.sent += to->waiting;
				to->waiting = 0;
			}
			// One call sends 32 at most.
			while (there(to->tx.consumer) != *to->tx.producer)
				if (sendto(to->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 &&
				    errno != EAGAIN && errno != EBUSY && errno != ENOBUFS) {
					sums.refused++;
					break;
				}
			take_back(&in, to);
		}
		sums.latest = seconds(CLOCK_MONOTONIC);
	}
	say(&sums);
}
