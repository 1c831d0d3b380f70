// SPDX-License-Identifier: Apache-2.0
// What both measuring programs need: loading one design, test runs on pinned threads, CPU clocks.
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define CPUS 2
#define ARENA_BASE (1ull << 44)

struct counters {
	struct {
		uint64_t packets, bytes;
	} sent[2];
	uint64_t first_ns, last_ns, flags[2];
};
struct slot {
	uint32_t state, pad;
	uint64_t key[7];
	struct counters counters;
};

struct design {
	const char *name;
	struct bpf_object *object;
	int program;
	unsigned max_entries, slots; // slots of one table
};

static inline void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static inline double thread_cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static inline void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		die("sched_setaffinity");
}

static inline int map_fd(struct design *d, const char *name)
{
	return bpf_object__find_map_fd_by_name(d->object, name);
}

static inline bool per_cpu_table(const struct design *d)
{
	return !strcmp(d->name, "arena_percpu") || !strcmp(d->name, "array_percpu");
}

// A variable of the object's .bss, mapped into our memory.
static inline volatile void *variable(struct design *d, const char *name)
{
	size_t size;
	struct bpf_map *map;
	struct btf *btf = bpf_object__btf(d->object);
	int id = btf__find_by_name_kind(btf, ".bss", BTF_KIND_DATASEC);
	const struct btf_type *section = btf__type_by_id(btf, id);
	const struct btf_var_secinfo *var = btf_var_secinfos(section);

	bpf_object__for_each_map(map, d->object) if (strstr(bpf_map__name(map), ".bss")) break;
	for (int i = 0; map && i < btf_vlen(section); i++)
		if (!strcmp(btf__name_by_offset(btf, btf__type_by_id(btf, var[i].type)->name_off), name))
			return (char *)bpf_map__initial_value(map, &size) + var[i].offset;
	fprintf(stderr, "no variable %s in %s\n", name, d->name);
	exit(1);
}

static inline void set_rodata(struct design *d, const char *name, uint32_t value)
{
	size_t size;
	struct bpf_map *map;
	struct btf *btf = bpf_object__btf(d->object);
	int id = btf__find_by_name_kind(btf, ".rodata", BTF_KIND_DATASEC);
	if (id < 0)
		return;
	const struct btf_type *section = btf__type_by_id(btf, id);
	const struct btf_var_secinfo *var = btf_var_secinfos(section);

	bpf_object__for_each_map(map, d->object) if (strstr(bpf_map__name(map), ".rodata")) break;
	for (int i = 0; map && i < btf_vlen(section); i++)
		if (!strcmp(btf__name_by_offset(btf, btf__type_by_id(btf, var[i].type)->name_off), name))
			*(uint32_t *)((char *)bpf_map__initial_value(map, &size) + var[i].offset) = value;
}

static inline void load(struct design *d, unsigned max_entries, bool synthetic)
{
	char path[64];
	struct bpf_map *map;

	snprintf(path, sizeof path, "%s.bpf.o", d->name);
	d->object = bpf_object__open_file(path, NULL);
	if (!d->object)
		die(path);
	d->max_entries = max_entries;
	d->slots = max_entries / 2 * 3;
	set_rodata(d, "synthetic", synthetic);
	set_rodata(d, "slots", d->slots);
	bpf_object__for_each_map(map, d->object) {
		unsigned entries = max_entries;
		if (strncmp(bpf_map__name(map), "table", 5))
			continue;
		if (!strcmp(d->name, "array_shared"))
			entries = d->slots;
		else if (!strcmp(d->name, "array_percpu"))
			entries = d->slots * CPUS;
		else if (!strcmp(d->name, "arena_percpu"))
			entries = ((size_t)d->slots * CPUS * sizeof(struct slot) + 4095) / 4096;
		bpf_map__set_max_entries(map, entries);
	}
	if (bpf_object__load(d->object))
		die(path);
	d->program = bpf_program__fd(bpf_object__find_program_by_name(d->object, "flow"));
	if (!strcmp(d->name, "arena_percpu")) // have all pages: others are preallocated too
		memset((void *)ARENA_BASE, 0, (size_t)d->slots * CPUS * sizeof(struct slot));
}

static inline void unload(struct design *d)
{
	bpf_object__close(d->object);
	d->object = NULL;
}

struct run {
	int program, cpu;
	unsigned repeat, flags, ifindex;
	double ns; // CPU time per packet
	pthread_barrier_t *start;
};

// 64 bytes on the wire with FCS; UDP to 10.1.0.2:9000, to a MAC address that nobody has.
static const unsigned char packet[60] = {
	2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0,
	11, 1, 0, 1, 10, 1, 0, 2, 4, 0, 0x23, 0x28, 0, 26, 0, 0
};

static void *run_thread(void *argument)
{
	struct run *r = argument;
	struct xdp_md md = { .data_end = sizeof packet, .ingress_ifindex = r->ifindex };
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = packet, .data_size_in = sizeof packet,
		    .repeat = r->repeat, .flags = r->flags);

	pin(r->cpu);
	if (r->flags) {
		opts.ctx_in = &md;
		opts.ctx_size_in = sizeof md;
	}
	if (r->start)
		pthread_barrier_wait(r->start);
	double before = thread_cpu();
	if (bpf_prog_test_run_opts(r->program, &opts))
		die("test run");
	r->ns = (thread_cpu() - before) / r->repeat;
	return NULL;
}

// ns of CPU per packet (mean of the CPUs) when `cpus` CPUs do `repeat` packets each.
static inline double run(struct run settings, int cpus)
{
	pthread_t threads[CPUS];
	struct run runs[CPUS];
	pthread_barrier_t start;
	double sum = 0;

	pthread_barrier_init(&start, NULL, cpus);
	for (int i = 0; i < cpus; i++) {
		runs[i] = settings;
		if (cpus > 1)
			runs[i].cpu = i;
		runs[i].start = &start;
		pthread_create(&threads[i], NULL, run_thread, &runs[i]);
	}
	for (int i = 0; i < cpus; i++) {
		pthread_join(threads[i], NULL);
		sum += runs[i].ns;
	}
	return sum / cpus;
}

static inline void walk(struct design *d, bool random, unsigned flows, unsigned step)
{
	*(volatile uint32_t *)variable(d, "random_walk") = random;
	*(volatile uint32_t *)variable(d, "flows") = flows;
	*(volatile uint32_t *)variable(d, "step") = step;
	memset((void *)variable(d, "walk"), 0, 128);
}

static inline uint64_t lost(struct design *d)
{
	volatile uint64_t *l = variable(d, "losses");
	return l[0] + l[8];
}

// Packets in the table, for the check that every packet sent is in a flow or counted as lost.
static inline uint64_t packets_in_flows(struct design *d, uint64_t *entries)
{
	uint64_t sum = 0;
	*entries = 0;
	if (strstr(d->name, "arra") || strstr(d->name, "arena")) {
		size_t n = (size_t)d->slots * (per_cpu_table(d) ? CPUS : 1);
		struct slot *s = (void *)ARENA_BASE;
		if (!strstr(d->name, "arena"))
			s = mmap(NULL, n * sizeof *s, PROT_READ, MAP_SHARED, map_fd(d, "table"), 0);
		if (s == MAP_FAILED)
			die("mmap");
		for (size_t i = 0; i < n; i++)
			if (s[i].state > 3) {
				sum += s[i].counters.sent[0].packets + s[i].counters.sent[1].packets;
				++*entries;
			}
		if (!strstr(d->name, "arena"))
			munmap(s, n * sizeof *s);
		return sum;
	}
	enum { BATCH = 65536 };
	int values = strstr(d->name, "percpu") ? libbpf_num_possible_cpus() : 1;
	uint64_t (*keys)[7] = malloc(BATCH * sizeof *keys);
	struct counters *c = malloc(BATCH * sizeof *c * values);
	uint32_t cursor;
	bool first = true, more = true;
	while (more) {
		uint32_t n = BATCH;
		more = !bpf_map_lookup_batch(map_fd(d, "table"), first ? NULL : &cursor, &cursor, keys, c,
					     &n, NULL);
		if (!more && errno != ENOENT)
			die("batch");
		first = false;
		for (uint32_t i = 0; i < n * values; i++)
			sum += c[i].sent[0].packets + c[i].sent[1].packets;
		*entries += n;
	}
	free(keys);
	free(c);
	return sum;
}
