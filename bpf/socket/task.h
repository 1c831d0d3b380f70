/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The identity of a task. */
#pragma once
#include "read.h"

/* A group's id is its directory's inode number. */
static __always_inline __u64 read_node_id(struct kernfs_node *node)
{
#if !defined(SKUA_DIRECT) && !defined(SKUA_DIRECT_TASK)
	if (!bpf_core_field_exists(node->id))
		return (__u32)BPF_CORE_READ((struct kernfs_node___old *)node, id.id);
#endif
	return READ_TASK(node, id);
}

static __always_inline __u64 read_start(struct task_struct *task)
{
#if !defined(SKUA_DIRECT) && !defined(SKUA_DIRECT_TASK)
	if (!bpf_core_field_exists(task->start_boottime))
		return BPF_CORE_READ((struct task_struct___old *)task, real_start_time);
#endif
	return READ_TASK(task, start_boottime);
}

/* The task's control group in the hierarchy that has the controller. */
static __always_inline struct cgroup *read_cgroup_of(struct css_set *set, __u32 controller)
{
	struct cgroup_subsys_state *state = NULL;
	void *place = (void *)set + bpf_core_field_offset(set->subsys) + controller * sizeof(state);

#if defined(SKUA_DIRECT) || defined(SKUA_DIRECT_TASK)
	state = *(struct cgroup_subsys_state **)place;
#else
	bpf_probe_read_kernel(&state, sizeof(state), place);
#endif
	return READ_TASK(state, cgroup);
}

/* Number of its hierarchy: 0 is the unified one, all others are version 1's. */
static __always_inline int read_hierarchy(struct cgroup *cgroup)
{
	struct cgroup_root *root = READ_TASK(cgroup, root);

	return READ_TASK(root, hierarchy_id);
}

/*
 * The control group in the hierarchy of version 1 that separates containers and services; 0: none,
 * or the task is in its root. User space selects the hierarchy by the same rule: that of `pids`,
 * and that of `memory` only where `pids` is not version 1's.
 */
static __always_inline __u64 read_v1_cgroup(struct css_set *set)
{
	struct cgroup *cgroup = NULL;
	struct kernfs_node *node;

	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, pids_cgrp_id))
		cgroup = read_cgroup_of(set,
					bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id));
	if (!read_hierarchy(cgroup) &&
	    bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		cgroup = read_cgroup_of(set,
					bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));
	if (!read_hierarchy(cgroup) || READ_TASK(cgroup, level) < 1)
		return 0;
	node = READ_TASK(cgroup, kn);
	return read_node_id(node) | CGROUP_V1;
}

/* The unified hierarchy's, unless the task is in its root and version 1 knows better. */
static __always_inline __u64 read_cgroup(struct task_struct *task)
{
	struct css_set *set = READ_TASK(task, cgroups);
	struct cgroup *cgroup = READ_TASK(set, dfl_cgrp);
	struct kernfs_node *node;
	__u64 id = 0;

	if (READ_TASK(cgroup, level) < 1)
		id = read_v1_cgroup(set);
	if (id)
		return id;
	node = READ_TASK(cgroup, kn);
	return read_node_id(node);
}

/* Whether `to` already identifies the task's process. */
static __always_inline bool is_task(struct socket_task *to, struct task_struct *task)
{
	struct task_struct *leader;

	if (to->pid != READ_TASK(task, tgid))
		return false;
	leader = READ_TASK(task, group_leader);
	return to->start_ns == read_start(leader);
}

/* The process's name and executable, not the calling thread's. */
static __always_inline void read_task(struct socket_task *to, struct task_struct *task)
{
	struct task_struct *leader = READ_TASK(task, group_leader);
	const struct cred *cred = READ_TASK(task, cred);
	struct mm_struct *mm = READ_TASK(task, mm);
	struct file *exe;
	struct dentry *dentry;
	__u32 length;

	to->pid = READ_TASK(task, tgid);
	to->uid = READ_TASK(cred, euid.val);
	to->start_ns = read_start(leader);
	to->cgroup = read_cgroup(task);
	/* As strings into zeros: the bytes after a NUL may be of a longer name before. */
	__builtin_memset(to->comm, 0, sizeof(to->comm));
	bpf_core_read_str(to->comm, sizeof(to->comm), &leader->comm);
	__builtin_memset(to->exe, 0, sizeof(to->exe));
	/* Kernel threads have neither. */
	if (!mm)
		return;
	exe = READ_TASK(mm, exe_file);
	if (!exe)
		return;
	dentry = READ_TASK(exe, f_path.dentry);
	length = READ_TASK(dentry, d_name.len);
	if (length > sizeof(to->exe))
		length = sizeof(to->exe);
	bpf_probe_read_kernel(to->exe, length, READ_TASK(dentry, d_name.name));
}
