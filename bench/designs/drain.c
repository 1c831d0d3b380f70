// SPDX-License-Identifier: Apache-2.0
// drain ENTRIES ROUNDS: CPU time (user + system) to read or empty a table of ENTRIES live flows in
// each of the ways a design allows. Every way adds up packets, and the sum must equal what was put in.
#include "common.h"
#include <sys/syscall.h>

enum { BATCH = 4096, WINDOW = 4 << 20 };

static unsigned entries;
static uint64_t key[BATCH][7];
static struct counters value[BATCH];

static double cpu_time(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static long status_kib(const char *field)
{
	char line[256];
	long kib = 0;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, field, strlen(field)))
			kib = atol(line + strlen(field) + 1);
	if (f)
		fclose(f);
	return kib;
}

static uint64_t batch(int fd, int (*read_batch)(int, void *, void *, void *, void *, __u32 *,
						const struct bpf_map_batch_opts *))
{
	uint32_t cursor, n;
	uint64_t packets = 0;
	bool first = true, more = true;

	while (more) {
		n = BATCH;
		more = !read_batch(fd, first ? NULL : &cursor, &cursor, key, value, &n, NULL);
		if (!more && errno != ENOENT)
			die("batch");
		first = false;
		for (uint32_t i = 0; i < n; i++)
			packets += value[i].sent[0].packets + value[i].sent[1].packets;
	}
	return packets;
}

static uint64_t batch_lookup(struct design *d)
{
	return batch(map_fd(d, "table"), bpf_map_lookup_batch);
}

static uint64_t batch_lookup_and_delete(struct design *d)
{
	return batch(map_fd(d, "table"), bpf_map_lookup_and_delete_batch);
}

// The key is deleted only after the step to the next one, or the walk would start over.
static uint64_t key_by_key(struct design *d)
{
	int fd = map_fd(d, "table");
	uint64_t packets = 0, current[7], next[7];
	struct counters c;
	bool have = false;

	while (!bpf_map_get_next_key(fd, have ? current : NULL, next)) {
		if (have)
			bpf_map_delete_elem(fd, current);
		if (bpf_map_lookup_elem(fd, next, &c))
			die("lookup");
		packets += c.sent[0].packets + c.sent[1].packets;
		memcpy(current, next, sizeof next);
		have = true;
	}
	if (have)
		bpf_map_delete_elem(fd, current);
	return packets;
}

// Replacing the inner map waits until no program can still hold the old one.
static uint64_t flip_and_batch(struct design *d)
{
	int zero = 0, second = map_fd(d, "table2");

	if (bpf_map_update_elem(map_fd(d, "active"), &zero, &second, BPF_ANY))
		die("flip");
	return batch(map_fd(d, "table"), bpf_map_lookup_and_delete_batch);
}

static uint64_t take(struct slot *s, size_t n)
{
	uint64_t packets = 0, bytes = 0;

	for (size_t i = 0; i < n; i++) {
		if (s[i].state < 4)
			continue;
		for (int dir = 0; dir < 2; dir++) {
			if (!*(volatile uint64_t *)&s[i].counters.sent[dir].packets)
				continue;
			packets += __atomic_exchange_n(&s[i].counters.sent[dir].packets, 0, __ATOMIC_RELAXED);
			bytes += __atomic_exchange_n(&s[i].counters.sent[dir].bytes, 0, __ATOMIC_RELAXED);
		}
		// what a record needs besides: key and times
		key[i % BATCH][0] = s[i].key[1] ^ s[i].key[3] ^ s[i].key[4];
		bytes ^= s[i].counters.last_ns;
	}
	asm volatile("" ::"r"(bytes));
	return packets;
}

static uint64_t windows(struct design *d, size_t window)
{
	size_t size = (size_t)d->slots * sizeof(struct slot), page = sysconf(_SC_PAGESIZE);
	uint64_t packets = 0;

	size = (size + page - 1) / page * page;
	for (size_t at = 0; at < size; at += window) {
		size_t length = size - at < window ? size - at : window;
		struct slot *s = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd(d, "table"), at);
		if (s == MAP_FAILED)
			die("mmap");
		packets += take(s, length / sizeof *s);
		munmap(s, length);
	}
	return packets;
}

static uint64_t mmap_windows_xchg(struct design *d)
{
	return windows(d, WINDOW);
}

static uint64_t mmap_all_xchg(struct design *d)
{
	return windows(d, (size_t)d->slots * sizeof(struct slot) + 4096);
}

static struct slot *kept;

static uint64_t mmap_kept_xchg(struct design *d)
{
	return take(kept, d->slots);
}

static uint64_t array_batch_lookup(struct design *d)
{
	static struct slot slots[BATCH];
	uint32_t cursor, n, index[BATCH];
	uint64_t packets = 0;
	bool first = true, more = true;

	while (more) {
		n = BATCH;
		more = !bpf_map_lookup_batch(map_fd(d, "table"), first ? NULL : &cursor, &cursor, index, slots, &n,
					     NULL);
		if (!more && errno != ENOENT)
			die("batch");
		first = false;
		for (uint32_t i = 0; i < n; i++)
			if (slots[i].state > 3)
				packets += slots[i].counters.sent[0].packets + slots[i].counters.sent[1].packets;
	}
	return packets;
}

static uint64_t arena_read(struct design *d)
{
	struct slot *s = (void *)ARENA_BASE;
	uint64_t packets = 0;

	for (size_t i = 0; i < (size_t)d->slots * CPUS; i++)
		if (s[i].state > 3)
			packets += s[i].counters.sent[0].packets + s[i].counters.sent[1].packets +
				   (s[i].key[1] ^ s[i].key[3] ^ s[i].key[4]) * 0;
	return packets;
}

// Idle slots: half of the table goes to dying, one grace period, then to empty.
static uint64_t delete_half(struct design *d)
{
	size_t window = WINDOW, size = (size_t)d->slots * sizeof(struct slot) / 4096 * 4096;
	int zero = 0;
	uint64_t deleted = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (size_t at = 0; at < size; at += window) {
			size_t length = size - at < window ? size - at : window;
			struct slot *s = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd(d, "table"), at);
			if (s == MAP_FAILED)
				die("mmap");
			for (size_t i = 0; i < length / sizeof *s; i += 2)
				if (pass == 0 && s[i].state > 3)
					__atomic_store_n(&s[i].state, 2, __ATOMIC_RELEASE);
				else if (pass == 1 && s[i].state == 2) {
					memset(&s[i].key, 0, sizeof s[i] - 8);
					__atomic_store_n(&s[i].state, 0, __ATOMIC_RELEASE);
					deleted++;
				}
			munmap(s, length);
		}
		if (pass == 0) { // any map-in-map update waits for a grace period
			static int outer = -1, inner;
			if (outer < 0) {
				inner = bpf_map_create(BPF_MAP_TYPE_ARRAY, "i", 4, 4, 1, NULL);
				LIBBPF_OPTS(bpf_map_create_opts, o, .inner_map_fd = inner);
				outer = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "o", 4, 4, 1, &o);
			}
			if (bpf_map_update_elem(outer, &zero, &inner, BPF_ANY))
				die("grace period");
		}
	}
	fprintf(stderr, "deleted %lu\n", deleted);
	return entries;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *design, *way;
		uint64_t (*drain)(struct design *);
	} ways[] = {
		{ "hash", "next key + lookup + delete", key_by_key },
		{ "hash", "batch lookup (kept)", batch_lookup },
		{ "hash", "batch lookup and delete", batch_lookup_and_delete },
		{ "lru_hash", "batch lookup and delete", batch_lookup_and_delete },
		{ "two_generations", "flip + batch lookup and delete", flip_and_batch },
		{ "array_shared", "mmap 4 MiB windows, exchange", mmap_windows_xchg },
		{ "array_shared", "mmap whole, exchange", mmap_all_xchg },
		{ "array_shared", "mapped for good, exchange", mmap_kept_xchg },
		{ "array_shared", "batch lookup (kept)", array_batch_lookup },
		{ "array_shared", "delete every second slot, 4 MiB windows", delete_half },
		{ "arena_percpu", "read both tables (kept)", arena_read },
	};
	if (argc != 3)
		return 2;
	entries = atoi(argv[1]);
	pin(1);
	for (int round = 0; round < atoi(argv[2]); round++)
		for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
			struct design d = { .name = ways[w].design };
			struct rusage before, after;

			load(&d, 500000, true);
			walk(&d, false, entries, 1);
			run((struct run){ .program = d.program, .repeat = entries }, 1);
			if (ways[w].drain == mmap_kept_xchg)
				kept = mmap(NULL, (size_t)d.slots * sizeof *kept, PROT_READ | PROT_WRITE, MAP_SHARED,
					    map_fd(&d, "table"), 0);
			FILE *clear = fopen("/proc/self/clear_refs", "w"); // resets VmHWM
			if (clear) {
				fputs("5", clear);
				fclose(clear);
			}
			long resident = status_kib("VmRSS:");
			double wall = cpu_time(CLOCK_MONOTONIC), cpu = cpu_time(CLOCK_THREAD_CPUTIME_ID);
			getrusage(RUSAGE_THREAD, &before);
			uint64_t packets = ways[w].drain(&d);
			getrusage(RUSAGE_THREAD, &after);
			cpu = cpu_time(CLOCK_THREAD_CPUTIME_ID) - cpu;
			wall = cpu_time(CLOCK_MONOTONIC) - wall;
			long peak = status_kib("VmHWM:") - resident;
			if (packets + lost(&d) != entries)
				fprintf(stderr, "%s, %s: %lu packets of %u\n", d.name, ways[w].way, packets, entries);
			printf("{\"mode\":\"drain\",\"design\":\"%s\",\"way\":\"%s\",\"entries\":%u,\"cpu_ns\":%.1f,"
			       "\"wall_ns\":%.1f,\"user_us\":%ld,\"resident_kib\":%ld}\n", d.name, ways[w].way, entries,
			       cpu * 1e9 / entries, wall * 1e9 / entries,
			       (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 + after.ru_utime.tv_usec -
				       before.ru_utime.tv_usec, peak);
			fflush(stdout);
			if (kept) {
				munmap(kept, (size_t)d.slots * sizeof *kept);
				kept = NULL;
			}
			unload(&d);
			usleep(100000);
		}
	return 0;
}
