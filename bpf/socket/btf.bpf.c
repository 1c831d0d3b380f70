// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The rung for kernels with BTF and socket storage in tracing programs (5.15): BTF tracepoints for
 * TCP's states, iterators for what is open.
 */
#define SKUA_DIRECT
#include "lifecycle.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(socket_state, struct sock *sk, int old, int new)
{
	struct tcp_sock *tp;

	if (!state_matters(new))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp)
		tcp_state_changes(sk, tp, old, new);
	return 0;
}

/*
 * The kernel skips a tracing program while the same program is running on the CPU: it then misses
 * events of interrupts, and on newer kernels (7.2) of other tasks. This separate program makes sure
 * that no end is missed.
 */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(socket_destroyed, struct sock *sk)
{
	struct socket_track *track = track_find(sk);
	struct tcp_sock *tp;
	__u32 state;

	if (!track || (track_is_of(track, sk) && track->flags & TRACK_ENDED))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	if (!track_is_of(track, sk)) {
		/* The listener was full, or its owner is unknown. */
		if (!tp->bytes_received && !tp->bytes_acked)
			return 0;
		track_accepted(track, sk);
	}
	/* No connection was begun on it. */
	if (!tp->segs_out && track->state != TCP_LISTEN)
		return 0;
	track->flags |= TRACK_ENDED;
	/* The state in which it ended is lost. Most end by both FINs. */
	state = track->state;
	if (state != TCP_LISTEN && tp->segs_in && sk->sk_err != ECONNREFUSED)
		state = TCP_LAST_ACK;
	else if (state == TCP_CLOSE)
		state = TCP_SYN_SENT;
	tcp_ended(sk, tp, track, state);
	return 0;
}

SEC("tp_btf/tcp_send_reset")
int BPF_PROG(socket_reset, struct sock *sk)
{
	/* It may be NULL or a request socket; the helper handles both. */
	struct socket_track *track = track_find(sk);

	if (track)
		track->flags |= TRACK_RESET_SENT;
	return 0;
}

/*
 * Whether the task's files are another's: a child of vfork(2) or posix_spawn(3) has copies of its
 * parent's until it executes, and execve(2) closes what is marked so only after it has changed the
 * memory. The parent has them, too; what stays open after all is found when the walk comes again.
 */
static __always_inline bool is_between_programs(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;

	if (bpf_core_field_exists(task->in_execve) && BPF_CORE_READ_BITFIELD(task, in_execve))
		return true;
	return leader->mm && leader->mm == leader->real_parent->mm;
}

/* Walks the file tables: finds sockets that are older than we are, and who has them now. */
SEC("iter/task_file")
int socket_files(struct bpf_iter__task_file *context)
{
	const __u32 pass = (__u32)context->meta->session_id;
	struct task_struct *task = context->task;
	struct file *file = context->file;
	struct socket_track *track;
	struct socket *socket;
	struct tcp_sock *tp;
	struct sock *sk;
	__u64 start;
	__u16 family;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk)
		return 0;
	family = sk->__sk_common.skc_family;
	if (family != AF_INET && family != AF_INET6)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp && sk->sk_protocol != UDP_PROTOCOL)
		return 0;
	track = track_make(sk);
	if (!track) {
		count_loss(LOSS_TABLE_FULL);
		return 0;
	}
	if (!track_is_of(track, sk)) {
		track_adopt(track, sk);
		track->self = (__u64)(unsigned long)sk;
		track->start_ns = 0;
		track->established_ns = 0;
		track->flags = 0;
		track->opener = OPENER_UNKNOWN;
		track->state = sk->__sk_common.skc_state;
	}
	if (tp && track->opener == OPENER_UNKNOWN)
		track->opener = guess_opener(tp, sk->__sk_common.skc_state);
	if (track->rule < RULE_FILE || is_between_programs(task))
		return 0;
	start = task->group_leader->start_boottime;
	if (track->rule == RULE_FILE && track->pass == pass && track->task.start_ns >= start)
		return 0;
	track->pass = pass;
	if (track->rule == RULE_FILE && track->task.start_ns == start &&
	    track->task.pid == task->tgid)
		return 0;
	read_task(&track->task, task);
	track->rule = RULE_FILE;
	return 0;
}

/* Shows the sockets that are open. */
SEC("iter/bpf_sk_storage_map")
int socket_open(struct bpf_iter__bpf_sk_storage_map *context)
{
	struct socket_track *track = context->value;
	struct sock *sk = context->sk;
	struct socket_record record;
	struct tcp_sock *tp;
	__u32 state;

	if (!track || !sk || !track_is_of(track, sk))
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp) {
		state = sk->__sk_common.skc_state;
		if (state == TCP_CLOSE || track->flags & TRACK_ENDED)
			return 0;
		fill_tcp(&record, sk, tp, track, state);
		record.end = END_NONE;
		record.error = 0;
	} else if (sk->sk_protocol == UDP_PROTOCOL) {
		if (!sk->__sk_common.skc_num)
			return 0;
		fill_udp(&record, sk, track);
	} else {
		return 0;
	}
	record.id = track_id(track, sk);
	bpf_seq_write(context->meta->seq, &record, sizeof(record));
	return 0;
}
