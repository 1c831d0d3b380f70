// SPDX-License-Identifier: Apache-2.0
// Opens TCP connections on loopback at a rate, exactly as many as asked, and prints as JSON what
// both sides did and what CPU time they took. With --idle it keeps them open until SIGINT.
#define _GNU_SOURCE // accept4
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	MOST_PROCESSES = 16,
	MOST_DESCRIPTORS = 20000, // what a process may have open at least, mostly
	MOST_BYTES = 1 << 20,
	BATCH = 256,
	FIRST_PORT = 1024,
	PORTS = 64000,
};

enum closing { CLIENT_FIN, SERVER_FIN, CLIENT_RST };

static struct {
	double rate;
	long count;
	double seconds;
	int bytes, reply, clients, servers, sources, port;
	enum closing closing;
	bool idle;
} options = {.count = 10000,
	     .seconds = 60,
	     .bytes = 100,
	     .clients = 1,
	     .servers = 2,
	     .sources = 16,
	     .port = 7070};

// One for each process, in shared memory.
struct side {
	pid_t pid;
	bool ready, done;
	uint64_t connections, failed, reset, bytes_sent, bytes_received;
	double cpu_user, cpu_system, seconds;
};

static struct shared {
	bool stopping;
	struct side clients[MOST_PROCESSES], servers[MOST_PROCESSES];
} *shared;

static char payload[MOST_BYTES];

static void fail(const char *what)
{
	fprintf(stderr, "connections: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void count_cpu(struct side *side)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	side->cpu_user = usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6;
	side->cpu_system = usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
}

// ---- the server's side ----

static long taken[MOST_DESCRIPTORS]; // bytes of each open connection

static void end(struct side *side, int fd, bool reset)
{
	close(fd);
	if (reset)
		side->reset++;
	__atomic_fetch_add(&side->connections, 1, __ATOMIC_RELEASE);
}

// Reads what is there; whether the connection goes on.
static bool serve(struct side *side, int fd)
{
	static char buffer[MOST_BYTES];

	for (;;) {
		ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n <= 0) {
			end(side, fd, n < 0);
			return false;
		}
		side->bytes_received += n;
		bool complete = taken[fd] < options.bytes && taken[fd] + n >= options.bytes;
		taken[fd] += n;
		if (!complete)
			continue;
		if (options.reply) {
			n = send(fd, payload, options.reply, MSG_NOSIGNAL);
			if (n > 0)
				side->bytes_sent += n;
		}
		if (options.closing == SERVER_FIN && !options.idle) {
			end(side, fd, false);
			return false;
		}
	}
}

static int listener(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(options.port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    bind(fd, (struct sockaddr *)&to, sizeof to) || listen(fd, 65535))
		fail("listen");
	return fd;
}

static void server(struct side *side)
{
	struct epoll_event events[BATCH], event = {.events = EPOLLIN};
	int listening = listener(), poll = epoll_create1(0);

	event.data.fd = listening;
	epoll_ctl(poll, EPOLL_CTL_ADD, listening, &event);
	__atomic_store_n(&side->ready, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&shared->stopping, __ATOMIC_ACQUIRE)) {
		int n = epoll_wait(poll, events, BATCH, 50);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd != listening) {
				serve(side, fd);
				continue;
			}
			while ((fd = accept4(listening, NULL, NULL, 0)) >= 0) {
				if (fd >= MOST_DESCRIPTORS) {
					errno = EMFILE;
					fail("accept");
				}
				taken[fd] = 0;
				// Most are complete by now and never get into the epoll.
				if (!serve(side, fd))
					continue;
				event = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
				epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
				if (options.idle)
					__atomic_fetch_add(&side->connections, 1, __ATOMIC_RELEASE);
			}
			if (errno != EAGAIN && errno != ECONNABORTED)
				fail("accept");
		}
	}
	count_cpu(side);
	__atomic_store_n(&side->done, true, __ATOMIC_RELEASE);
}

// ---- the client's side ----

// The nth connection of a client: its own addresses, so that ports last.
static int open_one(struct side *side, int number, long n)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(options.port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	uint32_t source = n % options.sources;
	struct sockaddr_in from = {
		.sin_family = AF_INET,
		.sin_port = htons(FIRST_PORT + (n / options.sources + getpid() * 977) % PORTS),
		.sin_addr.s_addr = htonl(127u << 24 | (64 + number) << 16 | (source + 1))};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	struct linger linger = {.l_onoff = 1};

	if (fd < 0)
		fail("socket");
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    (options.closing == CLIENT_RST &&
	     setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger)) ||
	    bind(fd, (struct sockaddr *)&from, sizeof from) ||
	    connect(fd, (struct sockaddr *)&to, sizeof to)) {
		side->failed++;
		close(fd);
		return -1;
	}
	if (options.bytes) {
		ssize_t sent = send(fd, payload, options.bytes, MSG_NOSIGNAL);
		if (sent > 0)
			side->bytes_sent += sent;
	}
	side->connections++;
	return fd;
}

static void finish_one(struct side *side, int fd)
{
	static char buffer[MOST_BYTES];
	long got = 0;
	ssize_t n = 1;

	// A server that closes first is waited for to its FIN.
	while (n > 0 && (got < options.reply || options.closing == SERVER_FIN)) {
		n = recv(fd, buffer, sizeof buffer, 0);
		if (n > 0)
			got += n;
		else if (n < 0)
			side->reset++;
	}
	side->bytes_received += got;
	close(fd);
}

static void client(struct side *side, int number)
{
	const double rate = options.rate / options.clients, begin = now();
	const long count =
		options.count / options.clients + (number < options.count % options.clients);
	int open[BATCH], waiting = 0;
	long done = 0;

	while (done < count && now() - begin < options.seconds) {
		double due = rate ? (now() - begin) * rate + 1 : count;
		while (done < count && done < due) {
			int fd = open_one(side, number, done++);
			if (fd < 0 || options.idle)
				continue;
			open[waiting++] = fd;
			if (waiting == BATCH)
				break;
		}
		for (int i = 0; i < waiting; i++)
			finish_one(side, open[i]);
		waiting = 0;
		if (rate && done >= (now() - begin) * rate)
			usleep(1000);
	}
	side->seconds = now() - begin;
	count_cpu(side);
	__atomic_store_n(&side->done, true, __ATOMIC_RELEASE);
	while (options.idle)
		pause();
}

// ---- both ----

static pid_t start(struct side *side, void (*run)(struct side *, int), int number, const char *name)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		fail("fork");
	if (pid)
		return side->pid = pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	signal(SIGINT, SIG_IGN); // the parent's, which then ends us
	prctl(PR_SET_NAME, name);
	run(side, number);
	_exit(0);
}

static void run_server(struct side *side, int number)
{
	(void)number;
	server(side);
}

// Waits for a flag of all sides; whether they all had it in time.
static bool wait_for(struct side *sides, int count, size_t flag, double seconds)
{
	const double deadline = now() + seconds;

	for (int i = 0; i < count; i++) {
		while (!__atomic_load_n((bool *)((char *)&sides[i] + flag), __ATOMIC_ACQUIRE)) {
			if (now() > deadline ||
			    waitpid(sides[i].pid, NULL, WNOHANG) == sides[i].pid)
				return false;
			usleep(1000);
		}
	}
	return true;
}

static uint64_t connections(const struct side *sides, int count)
{
	uint64_t sum = 0;

	for (int i = 0; i < count; i++)
		sum += __atomic_load_n(&sides[i].connections, __ATOMIC_ACQUIRE);
	return sum;
}

static void print_sides(const char *name, const struct side *sides, int count)
{
	struct side sum = {0};

	for (int i = 0; i < count; i++) {
		sum.connections += sides[i].connections;
		sum.failed += sides[i].failed;
		sum.reset += sides[i].reset;
		sum.bytes_sent += sides[i].bytes_sent;
		sum.bytes_received += sides[i].bytes_received;
		sum.cpu_user += sides[i].cpu_user;
		sum.cpu_system += sides[i].cpu_system;
		if (sides[i].seconds > sum.seconds)
			sum.seconds = sides[i].seconds;
	}
	printf("\"%s\":{\"connections\":%lu,\"failed\":%lu,\"reset\":%lu,\"bytes_sent\":%lu,"
	       "\"bytes_received\":%lu,\"cpu_user\":%.6f,\"cpu_system\":%.6f,\"seconds\":%.6f,"
	       "\"pids\":[",
	       name, sum.connections, sum.failed, sum.reset, sum.bytes_sent, sum.bytes_received,
	       sum.cpu_user, sum.cpu_system, sum.seconds);
	for (int i = 0; i < count; i++)
		printf("%s%d", i ? "," : "", sides[i].pid);
	printf("]}");
}

static void kill_all(struct side *sides, int count)
{
	for (int i = 0; i < count; i++) {
		if (sides[i].pid > 0) {
			kill(sides[i].pid, SIGKILL);
			waitpid(sides[i].pid, NULL, 0);
		}
	}
}

static void usage(void)
{
	fputs("usage: connections [--rate PER_SECOND] [--count N] [--seconds MOST]\n"
	      "  [--bytes N] [--reply N] [--close client|server|rst] [--sources N]\n"
	      "  [--clients PROCESSES] [--servers PROCESSES] [--port N] [--idle]\n"
	      "Without a rate as fast as it goes. Each client has addresses of its own of 127/8.\n",
	      stderr);
	exit(2);
}

static void parse(int argc, char **argv)
{
	static const struct option names[] = {
		{"rate", 1, 0, 'r'},	{"count", 1, 0, 'n'},	{"seconds", 1, 0, 's'},
		{"bytes", 1, 0, 'b'},	{"reply", 1, 0, 'a'},	{"close", 1, 0, 'c'},
		{"clients", 1, 0, 'C'}, {"servers", 1, 0, 'S'}, {"sources", 1, 0, 'o'},
		{"port", 1, 0, 'p'},	{"idle", 0, 0, 'i'},	{0}};

	for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
		switch (option) {
		case 'r':
			options.rate = atof(optarg);
			break;
		case 'n':
			options.count = atol(optarg);
			break;
		case 's':
			options.seconds = atof(optarg);
			break;
		case 'b':
			options.bytes = atoi(optarg);
			break;
		case 'a':
			options.reply = atoi(optarg);
			break;
		case 'C':
			options.clients = atoi(optarg);
			break;
		case 'S':
			options.servers = atoi(optarg);
			break;
		case 'o':
			options.sources = atoi(optarg);
			break;
		case 'p':
			options.port = atoi(optarg);
			break;
		case 'i':
			options.idle = true;
			break;
		case 'c':
			if (!strcmp(optarg, "client"))
				options.closing = CLIENT_FIN;
			else if (!strcmp(optarg, "server"))
				options.closing = SERVER_FIN;
			else if (!strcmp(optarg, "rst"))
				options.closing = CLIENT_RST;
			else
				usage();
			break;
		default:
			usage();
		}
	}
	if (optind != argc || options.count < 0 || options.rate < 0 || options.bytes < 0 ||
	    options.bytes > MOST_BYTES || options.reply < 0 || options.reply > MOST_BYTES ||
	    options.clients < 1 || options.clients > MOST_PROCESSES || options.servers < 1 ||
	    options.servers > MOST_PROCESSES || options.sources < 1 || options.sources > 250 ||
	    options.port < 1 || options.port > 65535)
		usage();
	// The server knows by the bytes when to answer or close.
	if ((options.closing == SERVER_FIN || options.reply) && !options.bytes)
		usage();
}

int main(int argc, char **argv)
{
	struct rlimit limit;
	sigset_t signals;
	int ignored;

	parse(argc, argv);
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	memset(payload, 'x', sizeof payload);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		fail("mmap");
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	if (options.idle)
		sigprocmask(SIG_BLOCK, &signals, NULL);

	bool complete = true;
	for (int i = 0; i < options.servers; i++)
		start(&shared->servers[i], run_server, i, "conn-server");
	complete &= wait_for(shared->servers, options.servers, offsetof(struct side, ready), 10);
	for (int i = 0; complete && i < options.clients; i++)
		start(&shared->clients[i], client, i, "conn-client");
	complete = complete && wait_for(shared->clients, options.clients,
					offsetof(struct side, done), options.seconds + 10);
	// Servers are through with what clients began within moments.
	const double deadline = now() + 5;
	while (now() < deadline && connections(shared->servers, options.servers) <
					   connections(shared->clients, options.clients))
		usleep(1000);
	if (options.idle && complete) {
		printf("{\"ready\":true,\"open\":%lu}\n",
		       connections(shared->servers, options.servers));
		fflush(stdout);
		sigwait(&signals, &ignored);
	}
	__atomic_store_n(&shared->stopping, true, __ATOMIC_RELEASE);
	complete = complete &&
		   wait_for(shared->servers, options.servers, offsetof(struct side, done), 5);
	printf("{");
	print_sides("clients", shared->clients, options.clients);
	printf(",");
	print_sides("servers", shared->servers, options.servers);
	printf("}\n");
	kill_all(shared->clients, options.clients);
	kill_all(shared->servers, options.servers);
	if (!complete) {
		fputs("connections: a process ended early, or took too long\n", stderr);
		return 1;
	}
	return 0;
}
