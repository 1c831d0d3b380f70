// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Paths of control groups as they are made: some end before user space can read them. */
/* SKUA_RAW: without bpf_get_current_task_btf (before 5.11), or without types of tracepoints. */
#ifdef SKUA_PERF
#define SKUA_RAW
#endif
#ifndef SKUA_RAW
#define SKUA_DIRECT
#endif
#include "task.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PATH_SIZE 4096

#ifdef SKUA_PERF
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} paths SEC(".maps");
#else
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} paths SEC(".maps");
#endif

struct path_message {
	struct cgroup_made made;
	char path[PATH_SIZE];
};

/* A message is built here. Groups are made in system calls, under a lock of the whole host. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_message);
} message SEC(".maps");

/* Whether the group's hierarchy has the controller. */
static __always_inline bool has_controller(struct cgroup *cgroup, __u32 controller)
{
	struct cgroup_subsys_state *state = NULL;
	void *place =
		(void *)cgroup + bpf_core_field_offset(cgroup->subsys) + controller * sizeof(state);

	bpf_probe_read_kernel(&state, sizeof(state), place);
	return state != NULL;
}

/*
 * Whether it is of version 1's hierarchy whose ids stand in struct socket_task. When a group of
 * `memory` is made the maker's own groups show whether `pids` is version 1's, too.
 */
static __always_inline bool names_tasks(struct cgroup *cgroup)
{
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, pids_cgrp_id)) {
		const __u32 pids = bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id);
		struct css_set *set;

		if (has_controller(cgroup, pids))
			return true;
		set = READ_TASK(CURRENT_TASK(), cgroups);
		if (read_hierarchy(read_cgroup_of(set, pids)))
			return false;
	}
	return bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id) &&
	       has_controller(cgroup, bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));
}

#ifdef SKUA_RAW
SEC("raw_tp/cgroup_mkdir")
#else
SEC("tp_btf/cgroup_mkdir")
#endif
int BPF_PROG(socket_cgroup_made, struct cgroup *cgroup, const char *path)
{
	struct kernfs_node *node;
	struct path_message *to;
	__u32 zero = 0;
	bool version_1;
	long size;

	version_1 = read_hierarchy(cgroup) != 0;
	if (version_1 && !names_tasks(cgroup))
		return 0;
	to = bpf_map_lookup_elem(&message, &zero);
	if (!to)
		return 0;
	size = bpf_probe_read_kernel_str(to->path, sizeof(to->path), path);
	if (size <= 1 || size > PATH_SIZE)
		return 0;
	node = READ(cgroup, kn);
	to->made.id = read_node_id(node) | (version_1 ? CGROUP_V1 : 0);
	to->made.length = size - 1;
	to->made.pad = 0;
	/* Dropped if the ring is full: user space can still read the mounted hierarchy. */
#ifdef SKUA_PERF
	bpf_perf_event_output(ctx, &paths, BPF_F_CURRENT_CPU, to, sizeof(to->made) + size);
#else
	bpf_ringbuf_output(&paths, to, sizeof(to->made) + size, BPF_RB_NO_WAKEUP);
#endif
	return 0;
}
