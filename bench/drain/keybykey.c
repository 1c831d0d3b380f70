// SPDX-License-Identifier: Apache-2.0
// How peers drain: a BPF_MAP_TYPE_HASH of 56-byte keys and 64-byte values, read and deleted key by
// key, and in batches. Prints CPU time (user + system) per entry as JSON.
#include <bpf/bpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 4096, KEY = 56, VALUE = 64 };

static unsigned char keys[BATCH][KEY], values[BATCH][VALUE];

static void fail(const char *what)
{
	fprintf(stderr, "keybykey: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void fill(int fd, uint32_t entries)
{
	for (uint32_t done = 0; done < entries;) {
		uint32_t n = entries - done < BATCH ? entries - done : BATCH;
		for (uint32_t i = 0; i < n; i++) {
			uint32_t address = done + i;
			memcpy(keys[i] + 12, &address, 4);
		}
		if (bpf_map_update_batch(fd, keys, values, &n, NULL))
			fail("fill");
		done += n;
	}
}

// A key is deleted only after the step to the next one, or the walk would start over.
static uint32_t key_by_key(int fd)
{
	unsigned char current[KEY], next[KEY], value[VALUE];
	bool have = false;
	uint32_t n = 0;

	while (!bpf_map_get_next_key(fd, have ? current : NULL, next)) {
		if (have)
			bpf_map_delete_elem(fd, current);
		if (bpf_map_lookup_elem(fd, next, value))
			fail("lookup");
		memcpy(current, next, KEY);
		have = true;
		n++;
	}
	if (have)
		bpf_map_delete_elem(fd, current);
	return n;
}

static uint32_t in_batches(int fd)
{
	uint32_t cursor, total = 0;
	bool more = true;

	for (bool first = true; more; first = false) {
		uint32_t n = BATCH;
		more = !bpf_map_lookup_and_delete_batch(fd, first ? NULL : &cursor, &cursor, keys,
							values, &n, NULL);
		if (!more && errno != ENOENT)
			fail("batch");
		total += n;
	}
	memset(keys, 0, sizeof keys);
	return total;
}

int main(int argc, char **argv)
{
	uint32_t entries = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;

	if (!entries) {
		fputs("usage: keybykey ENTRIES\n", stderr);
		return 2;
	}
	int fd = bpf_map_create(BPF_MAP_TYPE_HASH, "bench_drain", KEY, VALUE, entries, NULL);
	if (fd < 0)
		fail("map");
	fill(fd, entries);
	double before = cpu_ns();
	uint32_t first = key_by_key(fd);
	double middle = cpu_ns();
	fill(fd, entries);
	double again = cpu_ns();
	uint32_t second = in_batches(fd);
	double after = cpu_ns();
	if (first != entries || second != entries) {
		fprintf(stderr, "keybykey: drained %u and %u of %u\n", first, second, entries);
		return 1;
	}
	printf("{\"entries\":%u,\"key_by_key_ns\":%.1f,\"batch_ns\":%.1f}\n", entries,
	       (middle - before) / entries, (after - again) / entries);
	return 0;
}
