// SPDX-License-Identifier: Apache-2.0
// Cost of the steering program, alone by test run, or on packets that are injected as if an
// interface had received them. One measurement a run; prints one JSON object.
#define _GNU_SOURCE
#include "../common.h"
#include "../../bpf/steer/steer.h"
#include "steer.h"
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <getopt.h>
#include <linux/if_link.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { MAX_CPUS = 16, BATCH = 64 };

static struct options {
	const char *feed, *object, *program, *value;
	const char *netns, *dev, *pod_a, *pod_b, *target, *to, *looks;
	bool live, fire, apart, out, xdp;
	uint64_t packets;
	int cpus[MAX_CPUS], cpu_count;
} options = {.program = "empty", .value = "decimal", .packets = 1000000, .cpu_count = 1};

static void usage(FILE *to)
{
	fputs("usage: steer --feed feed.bpf.o [options]\n"
	      "  --object FILE    with the program `steer`; else the --program of the feed\n"
	      "  --program NAME   empty, discard or discard_xdp\n"
	      "  --value KIND     decimal, unsigned or double\n"
	      "  --looks FILE     with the program `find`: it looks whether its target is up\n"
	      "  --fire           every packet is steered; else none\n"
	      "  --packets N      on each CPU\n"
	      "  --cpus LIST      as 0,1\n"
	      "  --apart          each CPU has a channel of its own; else one for all\n"
	      " on packets that an interface receives:\n"
	      "  --live --netns HOST --dev IF --to MAC,ADDRESS --target IF\n"
	      "  --pod-a NETNS --pod-b NETNS, in each an interface eth0\n"
	      "  --xdp            the program is one at XDP\n"
	      "  --out            out of IF, whose other end must have XDP, and no program\n",
	      to);
}

static void make_frame(unsigned char *frame)
{
	struct ether_header *eth = (void *)frame;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	unsigned mac[6] = {2, 0, 0, 0, 0, 9};
	char address[64] = "10.1.0.2";

	if (options.to && sscanf(options.to, "%x:%x:%x:%x:%x:%x,%63s", &mac[0], &mac[1], &mac[2],
				 &mac[3], &mac[4], &mac[5], address) != 7)
		fail("--to");
	for (int i = 0; i < 6; i++)
		eth->ether_dhost[i] = mac[i];
	memcpy(eth->ether_shost, "\x02\0\0\0\0\x01", 6);
	eth->ether_type = htons(ETHERTYPE_IP);
	*ip = (struct iphdr){.version = 4,
			     .ihl = 5,
			     .ttl = 64,
			     .protocol = IPPROTO_UDP,
			     .tot_len = htons(FRAME - sizeof *eth),
			     .saddr = inet_addr("10.1.0.1"),
			     .daddr = inet_addr(address)};
	ip->check = ip_checksum(ip);
	*udp = (struct udphdr){.source = htons(1024),
			       .dest = htons(9000),
			       .len = htons(FRAME - sizeof *eth - sizeof *ip)};
	unsigned char *payload = frame + PAYLOAD;
	if (!strcmp(options.value, "decimal")) {
		memcpy(payload + 2, "00001234.56;      ", 18);
	} else if (!strcmp(options.value, "double")) {
		double value = 1234.56;
		uint64_t bits;

		memcpy(&bits, &value, 8);
		for (int i = 0; i < 8; i++)
			payload[2 + i] = bits >> (56 - 8 * i);
	} else {
		uint32_t value = htonl(123456);

		memcpy(payload + 2, &value, 4);
	}
}

static struct steer_settings settings(void)
{
	struct steer_settings s = {.channels = CHANNELS,
				   .depth = 10,
				   .value_offset = 2,
				   .threshold = 3,
				   .release = 3,
				   .ethernet = 1,
				   .channel_width = 2,
				   .value_width = 20,
				   .value_encoding = STEER_DECIMAL,
				   .fraction = 8,
				   .smoothing = 3,
				   .action = STEER_REDIRECT,
				   .rewrite = STEER_REWRITE_MACS,
				   .looks = options.looks != NULL};

	if (!strcmp(options.value, "unsigned")) {
		s.value_encoding = STEER_UNSIGNED;
		s.value_width = 4;
	} else if (!strcmp(options.value, "double")) {
		s.value_encoding = STEER_DOUBLE;
		s.value_width = 8;
	}
	if (options.fire) {
		/* The first sample behind the ring fires, and then it holds. */
		s.depth = 10;
		s.hold = 3600ULL * 1000000000;
	}
	return s;
}

static int map_of(struct bpf_object *object, const char *name)
{
	int fd = bpf_object__find_map_fd_by_name(object, name);

	if (fd < 0)
		fail(name);
	return fd;
}

static struct bpf_object *load(const char *file)
{
	struct bpf_object *object = bpf_object__open_file(file, NULL);
	struct steer_settings s = settings();
	struct bpf_map *map;

	if (!object)
		fail(file);
	bpf_object__for_each_map(map, object)
	{
		const char *name = bpf_map__name(map);
		size_t size;

		if (strstr(name, ".rodata") && options.object == file)
			memcpy(bpf_map__initial_value(map, &size), &s, sizeof s);
		if (!strcmp(name, "rings"))
			bpf_map__set_value_size(map, s.depth * sizeof(struct steer_sample));
	}
	if (bpf_object__load(object))
		fail("load (root?)");
	return object;
}

/* Lets every channel stand fired from the begin. */
static void fire(struct bpf_object *object)
{
	/* See ../../bpf/steer/judge.h. */
	uint64_t channel[8] = {(uint64_t)(1234 << 8) << 7 | 65, 1000, 0, UINT64_MAX};

	for (uint32_t i = 0; i < CHANNELS; i++)
		if (bpf_map_update_elem(map_of(object, "channels"), &i, channel, 0))
			fail("channels");
}

static int program_of(struct bpf_object *object, const char *name)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, name);

	if (!program)
		fail(name);
	return bpf_program__fd(program);
}

/* Where the kernel has the state of an interface; the calling thread is in its namespace. */
static void find(unsigned ifindex, struct steer_control *control)
{
	struct steer_device device = {.ifindex = ifindex, .veth = ifindex != 1};
	struct bpf_object *object = load(options.looks);
	int found = map_of(object, "found");
	unsigned char packet[64] = {0};
	uint32_t zero = 0;
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = packet, .data_size_in = sizeof packet,
		    .repeat = 1);

	if (bpf_map_update_elem(found, &zero, &device, 0) ||
	    bpf_prog_test_run_opts(program_of(object, "find"), &opts) ||
	    bpf_map_lookup_elem(found, &zero, &device) || !device.flags[0] ||
	    !device.flags[1] != !device.veth)
		fail("state of the target");
	/* By peer redirect only the other end counts. */
	control->flags[0] = device.flags[device.veth];
	if (options.xdp)
		memcpy(control->flags, device.flags, sizeof device.flags);
}

static void set_target(struct bpf_object *object, unsigned ifindex)
{
	static const uint8_t macs[] = {2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a};
	struct steer_control control = {.target = ifindex, .peer = 1};
	uint32_t zero = 0;

	_Static_assert(sizeof macs == sizeof control.macs, "the new Ethernet addresses");
	memcpy(control.macs, macs, sizeof macs);
	if (options.looks)
		find(ifindex, &control);
	if (bpf_map_update_elem(map_of(object, "control"), &zero, &control, 0))
		fail("control");
}

struct runner {
	pthread_t thread;
	pthread_barrier_t *start;
	int number, program;
	unsigned ifindex;
	double cpu_seconds, seconds;
};

static void *run(void *argument)
{
	struct runner *r = argument;
	unsigned char frame[64] = {0};
	struct xdp_md md = {.data_end = FRAME, .ingress_ifindex = r->ifindex};

	make_frame(frame);
	frame[PAYLOAD + 1] = options.apart ? r->number * 8 : 1;
	pin(options.cpus[r->number]);
	pthread_barrier_wait(r->start);
	double cpu = seconds(CLOCK_THREAD_CPUTIME_ID), begin = seconds(CLOCK_MONOTONIC);
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = FRAME,
		    .repeat = options.packets);
	if (options.live) {
		opts.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
		opts.batch_size = BATCH;
		opts.ctx_in = &md;
		opts.ctx_size_in = sizeof md;
	}
	if (bpf_prog_test_run_opts(r->program, &opts))
		fail("test run");
	r->cpu_seconds = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
	r->seconds = seconds(CLOCK_MONOTONIC) - begin;
	return NULL;
}

static void attach(int program, unsigned ifindex, enum bpf_attach_type type)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = type == BPF_XDP ? XDP_FLAGS_DRV_MODE : 0);

	if (!ifindex || bpf_link_create(program, ifindex, type, &opts) < 0)
		fail("attach");
}

static uint64_t sunk(struct bpf_object *feed, uint32_t which)
{
	uint64_t counts[256] = {0}, sum = 0;

	if (libbpf_num_possible_cpus() > 256 ||
	    bpf_map_lookup_elem(map_of(feed, "sunk"), &which, counts))
		fail("sunk");
	for (int i = 0; i < libbpf_num_possible_cpus(); i++)
		sum += counts[i];
	return sum;
}

static void read_cpus(char *list)
{
	options.cpu_count = 0;
	for (char *part = strtok(list, ","); part; part = strtok(NULL, ","))
		if (options.cpu_count < MAX_CPUS)
			options.cpus[options.cpu_count++] = atoi(part);
}

static void parse(int argc, char **argv)
{
	static const struct option names[] = {{"feed", 1, 0, 'f'},
					      {"object", 1, 0, 'o'},
					      {"program", 1, 0, 'p'},
					      {"value", 1, 0, 'v'},
					      {"fire", 0, 0, 'F'},
					      {"packets", 1, 0, 'n'},
					      {"cpus", 1, 0, 'c'},
					      {"apart", 0, 0, 'a'},
					      {"live", 0, 0, 'l'},
					      {"out", 0, 0, 'O'},
					      {"xdp", 0, 0, 'x'},
					      {"looks", 1, 0, 'L'},
					      {"netns", 1, 0, 'N'},
					      {"dev", 1, 0, 'd'},
					      {"to", 1, 0, 't'},
					      {"target", 1, 0, 'T'},
					      {"pod-a", 1, 0, 'A'},
					      {"pod-b", 1, 0, 'B'},
					      {"help", 0, 0, 'h'},
					      {0}};
	int o;

	while ((o = getopt_long(argc, argv, "", names, NULL)) >= 0)
		switch (o) {
		case 'f':
			options.feed = optarg;
			break;
		case 'o':
			options.object = optarg;
			break;
		case 'p':
			options.program = optarg;
			break;
		case 'v':
			options.value = optarg;
			break;
		case 'F':
			options.fire = true;
			break;
		case 'n':
			options.packets = strtoull(optarg, NULL, 10);
			break;
		case 'c':
			read_cpus(optarg);
			break;
		case 'a':
			options.apart = true;
			break;
		case 'l':
			options.live = true;
			break;
		case 'O':
			options.out = true;
			break;
		case 'x':
			options.xdp = true;
			break;
		case 'L':
			options.looks = optarg;
			break;
		case 'N':
			options.netns = optarg;
			break;
		case 'd':
			options.dev = optarg;
			break;
		case 't':
			options.to = optarg;
			break;
		case 'T':
			options.target = optarg;
			break;
		case 'A':
			options.pod_a = optarg;
			break;
		case 'B':
			options.pod_b = optarg;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	if (!options.feed) {
		usage(stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct runner runners[MAX_CPUS] = {0};
	pthread_barrier_t start;
	unsigned ifindex = 0;
	double cpu = 0, longest = 0;

	libbpf_set_print(NULL);
	parse(argc, argv);
	struct bpf_object *feed = load(options.feed), *object = feed;
	int program = -1;
	if (options.object)
		object = load(options.object);
	if (options.object || strcmp(options.program, "none"))
		program = program_of(object, options.object ? "steer" : options.program);
	if (options.object && options.fire)
		fire(object);
	if (options.live) {
		struct generator g = {0};
		uint32_t zero = 0;

		enter(options.pod_a);
		attach(program_of(feed, "sink_a"), if_nametoindex("eth0"), BPF_TCX_INGRESS);
		enter(options.pod_b);
		attach(program_of(feed, "sink_b"), if_nametoindex("eth0"), BPF_TCX_INGRESS);
		/* A veth takes frames from XDP only when its other end has it, too. */
		if (options.xdp)
			attach(program_of(feed, "pass"), if_nametoindex("eth0"), BPF_XDP);
		enter(options.netns);
		ifindex = if_nametoindex(options.dev);
		attach(program_of(feed, "pass"), ifindex, BPF_XDP);
		make_frame(g.frame);
		g.out = options.out ? ifindex : 0;
		if (bpf_map_update_elem(map_of(feed, "generators"), &zero, &g, 0))
			fail("generators");
		if (options.xdp) {
			if (bpf_map_update_elem(map_of(feed, "behind"), &zero, &program, 0))
				fail("behind");
		} else if (program >= 0 && !options.out) {
			attach(program, ifindex, BPF_TCX_INGRESS);
		}
		program = program_of(feed, "feed");
	}
	if (options.object)
		set_target(object, options.target ? if_nametoindex(options.target) : 1);
	pthread_barrier_init(&start, NULL, options.cpu_count);
	for (int i = 0; i < options.cpu_count; i++) {
		runners[i] = (struct runner){
			.start = &start, .number = i, .program = program, .ifindex = ifindex};
		if (pthread_create(&runners[i].thread, NULL, run, &runners[i]))
			fail("thread");
	}
	for (int i = 0; i < options.cpu_count; i++) {
		pthread_join(runners[i].thread, NULL);
		cpu += runners[i].cpu_seconds;
		if (runners[i].seconds > longest)
			longest = runners[i].seconds;
	}
	usleep(20000);
	printf("{\"packets\":%lu,\"seconds\":%.3f,\"cpu_ns_per_packet\":%.2f,\"a\":%lu,\"b\":%lu}"
	       "\n",
	       options.packets * options.cpu_count, longest,
	       cpu * 1e9 / (options.packets * options.cpu_count), sunk(feed, 0), sunk(feed, 1));
}
