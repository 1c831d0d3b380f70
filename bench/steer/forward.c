// SPDX-License-Identifier: Apache-2.0
// The detector in user space: receives UDP by recvmmsg, judges each datagram as the preset ewma-64
// does, and sends it on to pod A or pod B by sendmmsg. Two buffers of datagrams, no copies between.
// Says in one JSON line what it took when it gets SIGINT.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 64, BYTES = 256, CHANNELS = 64, DEPTH = 10, FRACTION = 8, SHIFT = 3 };

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

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
	fprintf(stderr, "forward: %s: %s\n", what, strerror(errno));
	exit(1);
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

int main(int argc, char **argv)
{
	static unsigned char data[BATCH][BYTES];
	static struct mmsghdr messages[BATCH];
	static struct iovec parts[BATCH];
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(9000)};
	struct sockaddr_in pods[2];
	uint64_t received = 0, sent = 0, refused = 0, to_b = 0, last = 0;
	int buffer = 4 << 20;
	cpu_set_t set;

	if (argc != 4) {
		fputs("usage: forward CPU ADDRESS-OF-A ADDRESS-OF-B\n", stderr);
		return 2;
	}
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[1]), &set);
	if (sched_setaffinity(0, sizeof set, &set))
		fail("CPU");
	for (int i = 0; i < 2; i++)
		pods[i] = (struct sockaddr_in){.sin_family = AF_INET,
					       .sin_port = htons(9000),
					       .sin_addr.s_addr = inet_addr(argv[2 + i])};
	struct sigaction action = {.sa_handler = end};
	sigaction(SIGINT, &action, NULL);
	int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
	if (in < 0 || out < 0 || bind(in, (void *)&own, sizeof own))
		fail("socket");
	setsockopt(in, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
	setsockopt(out, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
	puts("{\"ready\":true}");
	fflush(stdout);
	double cpu = seconds(CLOCK_THREAD_CPUTIME_ID), first = 0, latest = 0;
	while (!stop) {
		for (int i = 0; i < BATCH; i++) {
			parts[i] = (struct iovec){data[i], BYTES};
			messages[i].msg_hdr =
				(struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
		}
		int n = recvmmsg(in, messages, BATCH, MSG_WAITFORONE, NULL);
		if (n <= 0)
			continue;
		struct timespec t;
		clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
		last = t.tv_sec * 1000000000ULL + t.tv_nsec;
		if (!first)
			first = seconds(CLOCK_MONOTONIC);
		received += n;
		for (int i = 0; i < n; i++) {
			bool b = judge(data[i], messages[i].msg_len, last);

			to_b += b;
			parts[i].iov_len = messages[i].msg_len;
			messages[i].msg_hdr.msg_name = &pods[b];
			messages[i].msg_hdr.msg_namelen = sizeof pods[b];
		}
		for (int done = 0; done < n;) {
			int some = sendmmsg(out, messages + done, n - done, 0);

			if (some <= 0) {
				refused++;
				some = 1;
			} else
				sent += some;
			done += some;
		}
		latest = seconds(CLOCK_MONOTONIC);
	}
	cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
	printf("{\"received\":%lu,\"sent\":%lu,\"refused\":%lu,\"to_b\":%lu,"
	       "\"cpu_ns_per_packet\":%.1f,\"packets_per_second\":%.0f}\n",
	       received, sent, refused, to_b, received ? cpu * 1e9 / received : 0,
	       latest > first ? received / (latest - first) : 0);
}
