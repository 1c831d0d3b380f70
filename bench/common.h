// SPDX-License-Identifier: Apache-2.0
// What the programs of the benchmarks share.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline _Noreturn void fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

static inline double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static inline void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		fail("cannot run on that CPU");
}

// Puts the calling thread into a named network namespace.
static inline void enter(const char *netns)
{
	char path[256];

	snprintf(path, sizeof path, "/run/netns/%s", netns);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		fail(path);
	close(fd);
}

// Of an IPv4 header without options.
static inline uint16_t ip_checksum(const void *header)
{
	const uint16_t *words = header;
	uint32_t sum = 0;

	for (int i = 0; i < 10; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}
