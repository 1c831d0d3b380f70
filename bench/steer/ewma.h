// SPDX-License-Identifier: Apache-2.0
// The preset ewma-64 in user space, for the forwarders that the kernel is compared with.
#pragma once
#include "../common.h"
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { CHANNELS = 64, DEPTH = 10, FRACTION = 8, SHIFT = 3 };

struct channel {
	struct {
		uint64_t time;
		int64_t value;
	} ring[DEPTH];
	uint32_t next;
	uint64_t count;
	int64_t ewma;
};

static struct channel channels[CHANNELS];
static volatile sig_atomic_t stop;

static void end(int signal)
{
	(void)signal;
	stop = 1;
}

struct sums {
	uint64_t received, sent, refused, to_b;
	// CPU time at the begin; when the first and the last packet came.
	double cpu, first, latest;
};

// One JSON line, at the end.
static void say(const struct sums *s)
{
	double cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - s->cpu;

	printf("{\"received\":%lu,\"sent\":%lu,\"refused\":%lu,\"to_b\":%lu,"
	       "\"cpu_ns_per_packet\":%.1f,\"packets_per_second\":%.0f}\n",
	       s->received, s->sent, s->refused, s->to_b, s->received ? cpu * 1e9 / s->received : 0,
	       s->latest > s->first ? s->received / (s->latest - s->first) : 0);
}

// Until Ctrl-C.
static void until_interrupted(void)
{
	struct sigaction action = {.sa_handler = end};

	sigaction(SIGINT, &action, NULL);
}

static bool decimal(const char *text, int length, int64_t *value)
{
	uint64_t whole = 0, part = 0, scale = 1;
	bool negative = false, point = false, digits = false;

	for (int i = 0; i < length; i++) {
		unsigned digit = (unsigned char)text[i] - '0';

		if (digit <= 9) {
			digits = true;
			if (!point)
				whole = whole * 10 + digit;
			else if (scale < 1000000000) {
				part = part * 10 + digit;
				scale *= 10;
			}
		} else if (text[i] == '.' && !point)
			point = true;
		else if (text[i] == '-' && !i)
			negative = true;
		else
			break;
	}
	if (!digits || whole >> (56 - FRACTION))
		return false;
	*value = (whole << FRACTION) + (part << FRACTION) / scale;
	if (negative)
		*value = -*value;
	return true;
}

static uint64_t size_of(int64_t value)
{
	return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

/* Whether it goes to pod B. */
static bool judge(const unsigned char *data, int length, uint64_t now)
{
	struct channel *c;
	int64_t value, before;

	if (length < 3)
		return false;
	unsigned number = data[0] << 8 | data[1];
	if (number >= CHANNELS || !decimal((const char *)data + 2, length - 2, &value))
		return false;
	c = &channels[number];
	if (c->next >= DEPTH)
		c->next = 0;
	c->ring[c->next].time = now;
	c->ring[c->next++].value = value;
	if (++c->count < DEPTH) {
		c->ewma += value;
		return false;
	}
	if (c->count == DEPTH) {
		c->ewma = (c->ewma + value) / DEPTH;
		return false;
	}
	before = c->ewma;
	c->ewma += (value - before) >> SHIFT;
	return size_of(c->ewma - before) > size_of(before) >> SHIFT;
}
