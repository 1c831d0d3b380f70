// SPDX-License-Identifier: Apache-2.0
// designs test ROUNDS FLOWS...   one flow table design after the other by test run
// designs live ROUNDS FLOWS...   the same end to end: packets injected into a veth interface
// Prints one JSON object per measurement; summary.py makes the table. Runs in a network namespace
// of its own that ends with the process.
#include "common.h"
#include <linux/if_link.h>
#include <net/if.h>

static struct design designs[] = {
	{ .name = "empty" },	   { .name = "parse" },	       { .name = "hash" },
	{ .name = "two_generations" }, { .name = "lru_hash" },     { .name = "percpu_hash" },
	{ .name = "arena_percpu" }, { .name = "array_shared" }, { .name = "array_percpu" },
};
enum { COUNT = sizeof designs / sizeof *designs };

static void print(const char *mode, struct design *d, unsigned flows, const char *what, int cpus, double ns)
{
	printf("{\"mode\":\"%s\",\"design\":\"%s\",\"flows\":%u,\"what\":\"%s\",\"cpus\":%d,\"ns\":%.1f}\n", mode,
	       d->name, flows, what, cpus, ns);
	fflush(stdout);
}

// Shows what a table of `max_entries` could not take or keep; exits when packets are unaccounted
// for in a design that promises to lose none.
static void check(const char *mode, struct design *d, unsigned flows, uint64_t sent)
{
	uint64_t entries, in_flows = packets_in_flows(d, &entries), missing;

	missing = sent - in_flows - lost(d);
	printf("{\"mode\":\"%s\",\"design\":\"%s\",\"flows\":%u,\"what\":\"check\",\"max_entries\":%u,\"sent\":%lu,"
	       "\"entries\":%lu,\"lost\":%lu,\"missing\":%ld}\n", mode, d->name, flows, d->max_entries, sent, entries,
	       lost(d), (long)missing);
	fflush(stdout);
}

static unsigned capacity(unsigned flows)
{
	return flows > 500000 ? 1000000 : 500000;
}

static void test(unsigned flows)
{
	for (int i = 0; i < COUNT; i++) {
		struct design *d = &designs[i];
		bool table = i > 1;
		uint64_t sent = 0;
		unsigned repeat = 1500000;

		load(d, capacity(flows), true);
		struct run r = { .program = d->program, .repeat = flows };
		if (i > 0)
			walk(d, false, flows, 1);
		double ns = run(r, 1);
		sent += flows;
		if (flows >= 10000)
			print("test", d, flows, "insert", 1, ns);
		if (table && per_cpu_table(d)) { // the other CPU's table too
			walk(d, false, flows, 1);
			r.cpu = 1;
			run(r, 1);
			sent += flows;
			r.cpu = 0;
		}
		if (i > 0)
			walk(d, true, flows, 1);
		r.repeat = repeat;
		run((struct run){ .program = d->program, .repeat = repeat / 10 }, 1);
		print("test", d, flows, "hit", 1, run(r, 1));
		print("test", d, flows, "hit", 2, run(r, 2));
		sent += repeat / 10 + 3 * repeat;
		if (table)
			check("test", d, flows, sent);
		unload(d);

		if (flows < 10000)
			continue;
		load(d, capacity(flows), true); // insert by both CPUs, other flows each
		if (i > 0)
			walk(d, false, flows, 2);
		print("test", d, flows, "insert",  2,
		      run((struct run){ .program = d->program, .repeat = flows / 2 }, 2));
		if (table && flows >= 500000)
			check("test insert", d, flows, flows / 2 * 2);
		unload(d);
		if (flows != 1000000)
			continue;
		load(d, 500000, true); // twice as many flows as the table is made for
		if (i > 0)
			walk(d, false, flows, 1);
		print("test", d, flows, "overload", 1, run((struct run){ .program = d->program, .repeat = flows }, 1));
		if (table)
			check("test overload", d, flows, flows);
		unload(d);
	}
}

static void shell(const char *command)
{
	if (system(command))
		die(command);
}

static void live(int rounds, unsigned flows, struct design *feed, unsigned ifindex)
{
	unsigned repeat = 1000000;
	uint64_t sent[COUNT] = { 0 };

	*(volatile uint32_t *)variable(feed, "flows") = flows;
	for (int i = 0; i < COUNT; i++)
		load(&designs[i], capacity(flows), false);
	for (int round = -1 - (int)(flows / 500000) * 2; round < rounds; round++) // the first ones fill the tables
		for (int i = 0; i < COUNT; i++) {
			struct design *d = &designs[i];
			struct run r = { .program = feed->program, .repeat = repeat, .ifindex = ifindex,
					 .flags = BPF_F_TEST_XDP_LIVE_FRAMES };
			int link = bpf_link_create(d->program, ifindex, BPF_TCX_INGRESS, NULL);
			if (link < 0)
				die("attach");
			double one = run(r, 1), two = run(r, 2);
			close(link);
			sent[i] += 3 * repeat;
			if (round < 0)
				continue;
			print("live", d, flows, "hit", 1, one);
			print("live", d, flows, "hit", 2, two);
		}
	for (int i = 0; i < COUNT; i++) {
		if (i > 1)
			check("live", &designs[i], flows, sent[i]);
		unload(&designs[i]);
	}
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "designs test|live ROUNDS FLOWS...\n");
		return 2;
	}
	int rounds = atoi(argv[2]);
	if (unshare(CLONE_NEWNET))
		die("unshare");
	if (!strcmp(argv[1], "test")) {
		for (int i = 3; i < argc; i++)
			for (int round = 0; round < rounds; round++)
				test(atoi(argv[i]));
		return 0;
	}
	shell("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 && "
	      "ip link add bn-a type veth peer name bn-b && ip link set bn-a up && ip link set bn-b up");
	struct design feed = { .name = "feed" };
	feed.object = bpf_object__open_file("feed.bpf.o", NULL);
	if (!feed.object || bpf_object__load(feed.object))
		die("feed.bpf.o");
	feed.program = bpf_program__fd(bpf_object__find_program_by_name(feed.object, "feed"));
	unsigned ifindex = if_nametoindex("bn-a");
	// Test runs on behalf of an interface need one that has its receive queues set up for XDP.
	if (bpf_xdp_attach(ifindex, bpf_program__fd(bpf_object__find_program_by_name(feed.object, "pass")),
			   XDP_FLAGS_DRV_MODE, NULL))
		die("attach XDP");
	for (int i = 3; i < argc; i++)
		live(rounds, atoi(argv[i]), &feed, ifindex);
	return 0;
}
