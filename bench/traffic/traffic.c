// SPDX-License-Identifier: Apache-2.0
// Packet generator with exact counts: see usage() below and bench/README.md.
#define _GNU_SOURCE
#include "../common.h"
#include "traffic.h"
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { MAX_CPUS = 64, MAX_FRAME = 1514, BATCH = 64 };

// The compiled programs, inside this binary.
asm(".section .rodata\n"
    ".balign 16\n"
    "traffic_object: .incbin \"traffic.bpf.o\"\n"
    "traffic_object_end:\n"
    ".previous\n");
extern const unsigned char traffic_object[], traffic_object_end[];

static void usage(FILE *to)
{
	fputs("usage: traffic --dev IF [options]\n"
	      "  --netns NAME     named network namespace of IF\n"
	      "  --mode MODE      send: XDP frames out of IF (default); a veth peer takes them "
	      "only with\n"
	      "                     XDP attached or `ethtool -K PEER gro on`\n"
	      "                   inject: as if received by IF (not in the interface's own "
	      "counters)\n"
	      "                   socket: AF_PACKET, out of IF, the only mode with --rate\n"
	      "                   testrun: hand packets to the tc program --prog-id, nothing is "
	      "sent\n"
	      "  --flows N        UDP flows, chosen at random (default 1)\n"
	      "  --packets M      in all, on all CPUs (default 1000000)\n"
	      "  --walk           each flow as often as the other, instead of at random\n"
	      "  --new-flows      every packet begins a flow of its own\n"
	      "  --first-flow F   number of the first flow (default 0)\n"
	      "  --size BYTES     frame without FCS (default 60)\n"
	      "  --rate PPS       packets per second, mode socket (default 0: as fast as it goes)\n"
	      "  --cpus LIST      CPUs that send, as 0,1 (default 0)\n"
	      "  --prog-id ID     mode testrun\n"
	      "Prints one JSON object: packets and bytes sent, seconds, CPU time per packet.\n",
	      to);
}

static struct settings {
	const char *netns, *dev;
	enum { SEND, INJECT, SOCKET, TESTRUN } mode;
	uint32_t flows, first, prog_id, size;
	uint64_t packets;
	double rate;
	bool walk, new_flows;
	int cpus[MAX_CPUS], cpu_count;
} settings = {.flows = 1, .packets = 1000000, .size = 60, .cpu_count = 1};

static const char *const modes[] = {"send", "inject", "socket", "testrun"};

static unsigned char frame[MAX_FRAME];
static unsigned ifindex;
static int program; // that test runs run

// To a MAC address that nobody has, so that the stack drops it as early as it can.
static void make_frame(void)
{
	struct ether_header *eth = (void *)frame;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);

	memcpy(eth->ether_dhost, "\x02\0\0\0\0\x99", 6);
	memcpy(eth->ether_shost, "\x02\0\0\0\0\x01", 6);
	eth->ether_type = htons(ETHERTYPE_IP);
	*ip = (struct iphdr){.version = 4,
			     .ihl = 5,
			     .ttl = 64,
			     .protocol = IPPROTO_UDP,
			     .tot_len = htons(settings.size - sizeof *eth),
			     .saddr = htonl(FLOW_ADDRESS(settings.first)),
			     .daddr = htonl(0x0a010002)};
	ip->check = ip_checksum(ip);
	*udp = (struct udphdr){.source = htons(FLOW_PORT(settings.first)),
			       .dest = htons(9000),
			       .len = htons(settings.size - sizeof *eth - sizeof *ip)};
	for (uint32_t i = sizeof *eth + sizeof *ip + sizeof *udp; i < settings.size; i++)
		frame[i] = 'a' + i % 26;
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
	return b ? gcd(b, a % b) : a;
}

// A step that gets to every flow before it comes to one again, and leaps about on the way.
static uint32_t leap(uint32_t flows)
{
	uint32_t step = flows * 0.6180339887;

	if (!step)
		return 1;
	while (gcd(step, flows) != 1)
		step++;
	return step;
}

static struct order make_order(void)
{
	struct order order = {.first = settings.first,
			      .flows = settings.flows,
			      .verdict = settings.mode == INJECT ? XDP_PASS : XDP_REDIRECT};

	if (settings.new_flows) {
		order.flows = 0;
		order.step = settings.cpu_count;
	} else if (settings.walk)
		order.step = leap(settings.flows);
	return order;
}

static uint32_t start_of(int cpu_number)
{
	return settings.new_flows ? (uint32_t)cpu_number
				  : (uint64_t)settings.flows * cpu_number / settings.cpu_count;
}

// Tail calls work between programs of one attach type only, and which one a loaded program has
// cannot be asked for: try both.
static struct bpf_object *load_programs(int subject)
{
	static const enum bpf_attach_type types[] = {BPF_TCX_INGRESS, 0};
	uint32_t zero = 0;

	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		struct bpf_object *object = bpf_object__open_mem(
			traffic_object, traffic_object_end - traffic_object, NULL);
		if (!object)
			fail("programs");
		struct bpf_program *vary = bpf_object__find_program_by_name(object, "vary");
		bpf_program__set_expected_attach_type(vary, types[i]);
		bpf_program__set_autoload(vary, settings.mode == TESTRUN);
		if (bpf_object__load(object))
			fail("load programs (root?)");
		if (settings.mode != TESTRUN ||
		    !bpf_map_update_elem(bpf_object__find_map_fd_by_name(object, "subject"), &zero,
					 &subject, 0))
			return object;
		bpf_object__close(object);
	}
	fail("that program cannot be called");
	return NULL;
}

static void prepare_programs(void)
{
	int subject = settings.mode == TESTRUN ? bpf_prog_get_fd_by_id(settings.prog_id) : -1;
	uint32_t zero = 0;

	if (settings.mode == TESTRUN && subject < 0)
		fail("--prog-id");
	struct bpf_object *object = load_programs(subject);
	struct order order = make_order();
	int possible = libbpf_num_possible_cpus();
	struct position *positions = calloc(possible, sizeof *positions);

	if (!positions)
		fail("memory");
	for (int i = 0; i < settings.cpu_count; i++)
		if (settings.cpus[i] < possible)
			positions[settings.cpus[i]].flow = start_of(i);
	if (bpf_map_update_elem(bpf_object__find_map_fd_by_name(object, "orders"), &zero, &order,
				0) ||
	    bpf_map_update_elem(bpf_object__find_map_fd_by_name(object, "positions"), &zero,
				positions, 0))
		fail("settings");
	free(positions);
	if (settings.mode == SEND &&
	    bpf_map_update_elem(bpf_object__find_map_fd_by_name(object, "out"), &zero, &ifindex, 0))
		fail("devmap");
	program = bpf_program__fd(bpf_object__find_program_by_name(
		object, settings.mode == TESTRUN ? "vary" : "feed"));
	if (settings.mode == INJECT) {
		int pass = bpf_program__fd(bpf_object__find_program_by_name(object, "pass"));
		LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = XDP_FLAGS_DRV_MODE);
		// Ends with this process. That another program is there already is as good.
		if (bpf_link_create(pass, ifindex, BPF_XDP, &opts) < 0 && errno != EBUSY &&
		    errno != EEXIST)
			fail("attach XDP");
	}
}

struct sender {
	pthread_t thread;
	pthread_barrier_t *start;
	int number;
	uint64_t packets;
	double seconds, cpu_seconds; // of sending, without setting up
};

static void test_runs(struct sender *s)
{
	struct xdp_md md = {.data_end = settings.size,
			    .ingress_ifindex = settings.mode == INJECT ? ifindex : 0};
	struct __sk_buff skb = {.ifindex = ifindex};

	pthread_barrier_wait(s->start);
	double begin = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
	for (uint64_t left = s->packets; left;) {
		// One call cannot be stopped half-way: not too many at once.
		uint32_t now = left > 2000000 ? 1500000 : left;
		LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame,
			    .data_size_in = settings.size, .repeat = now);

		if (settings.mode == TESTRUN) {
			opts.ctx_in = &skb;
			opts.ctx_size_in = sizeof skb;
		} else {
			opts.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
			opts.batch_size = BATCH;
			if (md.ingress_ifindex) {
				opts.ctx_in = &md;
				opts.ctx_size_in = sizeof md;
			}
		}
		if (bpf_prog_test_run_opts(program, &opts))
			fail("test run");
		left -= now;
	}
	s->seconds = seconds(CLOCK_MONOTONIC) - begin;
	s->cpu_seconds = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
}

static void wait_until(double when)
{
	double left = when - seconds(CLOCK_MONOTONIC);

	if (left > 0) {
		struct timespec pause = {.tv_sec = left, .tv_nsec = (left - (time_t)left) * 1e9};
		nanosleep(&pause, NULL);
	}
}

static void send_by_socket(struct sender *s)
{
	struct order order = make_order();
	uint32_t flow = start_of(s->number), chosen, random = 2463534242u + s->number;
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET, .sll_ifindex = ifindex, .sll_protocol = htons(ETH_P_IP)};
	unsigned char(*frames)[MAX_FRAME] = malloc(sizeof(*frames) * BATCH);
	struct mmsghdr messages[BATCH];
	struct iovec parts[BATCH];
	int yes = 1, fd = socket(AF_PACKET, SOCK_RAW, 0);
	uint64_t sent = 0;

	if (!frames || fd < 0 || bind(fd, (void *)&to, sizeof to) ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof yes))
		fail("packet socket");
	memset(messages, 0, sizeof messages);
	for (int i = 0; i < BATCH; i++) {
		memcpy(frames[i], frame, settings.size);
		parts[i] = (struct iovec){frames[i], settings.size};
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	pthread_barrier_wait(s->start);
	double begin = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
	while (sent < s->packets) {
		int batch = s->packets - sent < BATCH ? s->packets - sent : BATCH, done = 0;

		for (int i = 0; i < batch; i++) {
			struct iphdr *ip = (void *)(frames[i] + sizeof(struct ether_header));
			struct udphdr *udp = (void *)(ip + 1);

			if (order.step) {
				chosen = flow;
				flow += order.step;
				if (order.flows && flow >= order.flows)
					flow -= order.flows;
			} else { // xorshift32
				random ^= random << 13;
				random ^= random >> 17;
				random ^= random << 5;
				chosen = ((uint64_t)random * order.flows) >> 32;
			}
			ip->saddr = htonl(FLOW_ADDRESS(order.first + chosen));
			udp->source = htons(FLOW_PORT(order.first + chosen));
			ip->check = 0;
			ip->check = ip_checksum(ip);
		}
		if (settings.rate > 0)
			wait_until(begin + sent / (settings.rate / settings.cpu_count));
		while (done < batch) {
			int n = sendmmsg(fd, messages + done, batch - done, 0);
			if (n < 0 && errno != ENOBUFS && errno != EAGAIN && errno != EINTR)
				fail("send");
			if (n > 0)
				done += n;
		}
		sent += batch;
	}
	s->seconds = seconds(CLOCK_MONOTONIC) - begin;
	s->cpu_seconds = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
	free(frames);
	close(fd);
}

static void *run_sender(void *argument)
{
	struct sender *s = argument;

	pin(settings.cpus[s->number]);
	if (settings.mode == SOCKET)
		send_by_socket(s);
	else
		test_runs(s);
	return NULL;
}

// Packets and bytes that the interface itself says it has sent.
static void interface_counters(uint64_t *packets, uint64_t *bytes)
{
	char line[512], name[64];
	FILE *f = fopen("/proc/thread-self/net/dev", "r");

	*packets = *bytes = 0;
	while (f && fgets(line, sizeof line, f)) {
		uint64_t tx_bytes, tx_packets;
		if (sscanf(line, " %63[^:]: %*u %*u %*u %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
			   name, &tx_bytes, &tx_packets) == 3 &&
		    !strcmp(name, settings.dev)) {
			*packets = tx_packets;
			*bytes = tx_bytes;
		}
	}
	if (f)
		fclose(f);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (end == text || *end || value < least || value > most) {
		fprintf(stderr, "traffic: %s is not a number between %" PRIu64 " and %" PRIu64 "\n",
			text, least, most);
		exit(2);
	}
	return value;
}

static void read_options(int argc, char **argv)
{
	static const struct option options[] = {
		{"netns", 1, 0, 'n'},	  {"dev", 1, 0, 'd'},
		{"mode", 1, 0, 'm'},	  {"flows", 1, 0, 'f'},
		{"packets", 1, 0, 'p'},	  {"walk", 0, 0, 'w'},
		{"new-flows", 0, 0, 'N'}, {"first-flow", 1, 0, 'F'},
		{"size", 1, 0, 's'},	  {"rate", 1, 0, 'r'},
		{"cpus", 1, 0, 'c'},	  {"prog-id", 1, 0, 'i'},
		{"help", 0, 0, 'h'},	  {0},
	};
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (o) {
		case 'n':
			settings.netns = optarg;
			break;
		case 'd':
			settings.dev = optarg;
			break;
		case 'm':
			for (settings.mode = SEND; strcmp(optarg, modes[settings.mode]);
			     settings.mode++)
				if (settings.mode == TESTRUN) {
					usage(stderr);
					exit(2);
				}
			break;
		case 'f':
			settings.flows = number(optarg, 1, 1u << 30);
			break;
		case 'p':
			settings.packets = number(optarg, 1, 1ull << 40);
			break;
		case 'w':
			settings.walk = true;
			break;
		case 'N':
			settings.new_flows = true;
			break;
		case 'F':
			settings.first = number(optarg, 0, UINT32_MAX);
			break;
		case 's':
			settings.size = number(optarg, 60, MAX_FRAME);
			break;
		case 'r':
			settings.rate = number(optarg, 0, 1u << 30);
			break;
		case 'i':
			settings.prog_id = number(optarg, 1, UINT32_MAX);
			break;
		case 'c':
			settings.cpu_count = 0;
			for (char *cpu = strtok(optarg, ","); cpu && settings.cpu_count < MAX_CPUS;
			     cpu = strtok(NULL, ","))
				settings.cpus[settings.cpu_count++] = number(cpu, 0, 4095);
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	if (!settings.dev || optind < argc || !settings.cpu_count ||
	    (settings.rate > 0 && settings.mode != SOCKET) ||
	    (settings.mode == TESTRUN) != (settings.prog_id != 0)) {
		usage(stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct sender senders[MAX_CPUS] = {0};
	pthread_barrier_t start;
	uint64_t before[2], after[2];
	double cpu = 0, wall = 0;

	read_options(argc, argv);
	if (settings.netns)
		enter(settings.netns);
	ifindex = if_nametoindex(settings.dev);
	if (!ifindex)
		fail(settings.dev);
	make_frame();
	if (settings.mode != SOCKET)
		prepare_programs();

	interface_counters(&before[0], &before[1]);
	pthread_barrier_init(&start, NULL, settings.cpu_count);
	for (int i = 0; i < settings.cpu_count; i++) {
		senders[i].number = i;
		senders[i].start = &start;
		senders[i].packets = settings.packets / settings.cpu_count +
				     (i < (int)(settings.packets % settings.cpu_count));
		if (pthread_create(&senders[i].thread, NULL, run_sender, &senders[i]))
			fail("thread");
	}
	for (int i = 0; i < settings.cpu_count; i++) {
		pthread_join(senders[i].thread, NULL);
		cpu += senders[i].cpu_seconds;
		if (senders[i].seconds > wall)
			wall = senders[i].seconds;
	}
	interface_counters(&after[0], &after[1]);
	printf("{\"mode\":\"%s\",\"dev\":\"%s\",\"flows\":%" PRIu64 ",\"packets\":%" PRIu64
	       ",\"bytes\":%" PRIu64 ",\"interface_packets\":%" PRIu64
	       ",\"interface_bytes\":%" PRIu64 ",\"seconds\":%.4f,\"cpu_ns_per_packet\":%.2f}\n",
	       modes[settings.mode], settings.dev,
	       settings.new_flows ? settings.packets : settings.flows, settings.packets,
	       settings.packets * settings.size, after[0] - before[0], after[1] - before[1], wall,
	       cpu * 1e9 / settings.packets);
	return 0;
}
