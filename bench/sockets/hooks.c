// SPDX-License-Identifier: Apache-2.0
// Attaches all programs of an object file, those of control groups to the unified hierarchy's root,
// says so with one JSON line, and waits until SIGINT.
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

static void fail(const char *what)
{
	fprintf(stderr, "hooks: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int warnings_only(enum libbpf_print_level level, const char *format, va_list arguments)
{
	return level == LIBBPF_WARN ? vfprintf(stderr, format, arguments) : 0;
}

// A mount of our own, for nobody else may have the root mounted.
static int root_of_groups(void)
{
	int context = syscall(SYS_fsopen, "cgroup2", 0), root;

	if (context < 0 || syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		fail("cgroup2");
	root = syscall(SYS_fsmount, context, 0, 0);
	if (root < 0)
		fail("cgroup2");
	return root;
}

int main(int argc, char **argv)
{
	struct bpf_program *program;
	struct bpf_object *object;
	int signal_number, root;
	sigset_t signals;

	if (argc != 2) {
		fputs("usage: hooks OBJECT\n", stderr);
		return 2;
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	libbpf_set_print(warnings_only);

	object = bpf_object__open_file(argv[1], NULL);
	if (!object)
		fail(argv[1]);
	if (bpf_object__load(object))
		fail("load");
	root = root_of_groups();
	bpf_object__for_each_program(program, object)
	{
		int of_groups = !strncmp(bpf_program__section_name(program), "cgroup/", 7);
		if (of_groups ? !bpf_program__attach_cgroup(program, root)
			      : !bpf_program__attach(program))
			fail(bpf_program__name(program));
	}
	puts("{\"ready\":true}");
	fflush(stdout);
	return sigwait(&signals, &signal_number);
}
