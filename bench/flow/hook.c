// SPDX-License-Identifier: Apache-2.0
// Attaches one tc program of an object file at tcx ingress of an interface, says so with one JSON
// line, and waits until SIGINT: a peer's program is measured like ours (the example `flow_hook`).
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what)
{
	fprintf(stderr, "hook: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int warnings_only(enum libbpf_print_level level, const char *format, va_list arguments)
{
	return level == LIBBPF_WARN ? vfprintf(stderr, format, arguments) : 0;
}

static void usage(void)
{
	fputs("usage: hook --dev IF --object FILE --program NAME [--map NAME=ENTRIES]...\n",
	      stderr);
	exit(2);
}

int main(int argc, char **argv)
{
	const char *dev = NULL, *path = NULL, *name = NULL, *maps[16];
	int map_count = 0, signal_number;
	struct bpf_program *program, *chosen = NULL;
	struct bpf_map *map;
	sigset_t signals;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--dev"))
			dev = argv[i + 1];
		else if (!strcmp(argv[i], "--object"))
			path = argv[i + 1];
		else if (!strcmp(argv[i], "--program"))
			name = argv[i + 1];
		else if (!strcmp(argv[i], "--map") && map_count < 16 && strchr(argv[i + 1], '='))
			maps[map_count++] = argv[i + 1];
		else
			usage();
	}
	if (!dev || !path || !name)
		usage();

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	libbpf_set_print(warnings_only);

	struct bpf_object *object = bpf_object__open_file(path, NULL);
	if (!object)
		fail(path);
	bpf_object__for_each_program(program, object)
	{
		bool wanted = !strcmp(bpf_program__name(program), name);
		bpf_program__set_autoload(program, wanted);
		if (wanted)
			chosen = program;
	}
	if (!chosen) {
		errno = ENOENT;
		fail(name);
	}
	bpf_program__set_type(chosen, BPF_PROG_TYPE_SCHED_CLS);
	bpf_object__for_each_map(map, object)
	{
		bpf_map__set_pin_path(map, NULL); // leave no trace
		for (int i = 0; i < map_count; i++) {
			size_t length = strchr(maps[i], '=') - maps[i];
			if (strlen(bpf_map__name(map)) == length &&
			    !strncmp(bpf_map__name(map), maps[i], length))
				bpf_map__set_max_entries(map,
							 strtoul(maps[i] + length + 1, NULL, 10));
		}
	}
	if (bpf_object__load(object))
		fail("load");

	int fd = bpf_program__fd(chosen);
	if (bpf_link_create(fd, if_nametoindex(dev), BPF_TCX_INGRESS, NULL) < 0)
		fail("attach");
	struct bpf_prog_info info = {0};
	__u32 length = sizeof info;
	if (bpf_prog_get_info_by_fd(fd, &info, &length))
		fail("program id");
	printf("{\"ready\":true,\"prog_id\":%u}\n", info.id);
	fflush(stdout);
	return sigwait(&signals, &signal_number);
}
