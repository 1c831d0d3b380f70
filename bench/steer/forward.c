// SPDX-License-Identifier: Apache-2.0
// The detector in user space: receives UDP by recvmmsg, judges each datagram as the preset ewma-64
// does, and sends it on to pod A or pod B by sendmmsg. Two buffers of datagrams, no copies between.
// Says in one JSON line what it took when it gets SIGINT.
#define _GNU_SOURCE
#include "../common.h"
#include "ewma.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { BATCH = 64, BYTES = 256 };

int main(int argc, char **argv)
{
	static unsigned char data[BATCH][BYTES];
	static struct mmsghdr messages[BATCH];
	static struct iovec parts[BATCH];
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(9000)};
	struct sockaddr_in pods[2];
	struct sums sums = {0};
	uint64_t last = 0;
	int buffer = 4 << 20;

	if (argc != 4) {
		fputs("usage: forward CPU ADDRESS-OF-A ADDRESS-OF-B\n", stderr);
		return 2;
	}
	pin(atoi(argv[1]));
	for (int i = 0; i < 2; i++)
		pods[i] = (struct sockaddr_in){.sin_family = AF_INET,
					       .sin_port = htons(9000),
					       .sin_addr.s_addr = inet_addr(argv[2 + i])};
	until_interrupted();
	int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
	if (in < 0 || out < 0 || bind(in, (void *)&own, sizeof own))
		fail("socket");
	setsockopt(in, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
	setsockopt(out, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
	puts("{\"ready\":true}");
	fflush(stdout);
	sums.cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
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
		if (!sums.first)
			sums.first = seconds(CLOCK_MONOTONIC);
		sums.received += n;
		for (int i = 0; i < n; i++) {
			bool b = judge(data[i], messages[i].msg_len, last);

			sums.to_b += b;
			parts[i].iov_len = messages[i].msg_len;
			messages[i].msg_hdr.msg_name = &pods[b];
			messages[i].msg_hdr.msg_namelen = sizeof pods[b];
		}
		for (int done = 0; done < n;) {
			int some = sendmmsg(out, messages + done, n - done, 0);

			if (some <= 0) {
				sums.refused++;
				some = 1;
			} else
				sums.sent += some;
			done += some;
		}
		sums.latest = seconds(CLOCK_MONOTONIC);
	}
	say(&sums);
}
