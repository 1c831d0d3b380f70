// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The rung for kernels without socket storage in tracing programs (5.4, 5.10; user space has a file
 * of types for those without BTF): raw tracepoints for TCP's states, kprobes for the rest. Nothing
 * here needs BTF inside the kernel.
 *
 * Snapshots of open sockets: user space has the kernel dump its sockets (sock_diag), which shows
 * each of them to socket_looked, in the requesting thread.
 */
#define SKUA_HASH
#include "lifecycle.h"
#include <linux/ptrace.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- listening sockets: who made them ---- */

struct listener_key {
	__u32 netns;
	__u16 port;
	__u16 pad;
};

/* Limited like the sockets; if a listener does not fit, only its connections lack its owner. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct listener_key);
	__type(value, struct socket_task);
} listeners SEC(".maps");

static __always_inline void listener_key(struct listener_key *key, struct sock *sk)
{
	key->netns = read_netns(sk);
	/* At its end the local port is in this field only. */
	key->port = bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
	key->pad = 0;
	if (!key->port)
		key->port = BPF_CORE_READ(sk, __sk_common.skc_num);
}

static __always_inline void listener_begins(struct sock *sk)
{
	struct socket_track *track = track_find(sk);
	struct listener_key key;

	if (!track || !track->task.pid)
		return;
	listener_key(&key, sk);
	bpf_map_update_elem(&listeners, &key, &track->task, BPF_ANY);
}

static __always_inline void listener_ends(struct sock *sk)
{
	struct socket_track *track = track_find(sk);
	struct listener_key key;
	struct socket_task *task;

	listener_key(&key, sk);
	task = bpf_map_lookup_elem(&listeners, &key);
	/* Of several listeners that share the port, only the noted one removes the note. */
	if (task && track && task->pid == track->task.pid)
		bpf_map_delete_elem(&listeners, &key);
}

/* An incoming connection is its listener's until a process accepts it. */
static __always_inline void inherit(struct sock *sk)
{
	struct socket_track *track = track_make(sk);
	struct listener_key key;
	struct socket_task *task;

	if (!track || track->self)
		return;
	listener_key(&key, sk);
	task = bpf_map_lookup_elem(&listeners, &key);
	if (task)
		__builtin_memcpy(&track->task, task, sizeof(*task));
}

/* ---- TCP ---- */

static __always_inline bool is_tcp(struct sock *sk)
{
	const __u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	return (family == AF_INET || family == AF_INET6) &&
	       READ_BITS(sk, sk_protocol) == TCP_PROTOCOL;
}

static __always_inline void state_changes(struct sock *sk, __u32 old, __u32 new)
{
	if (new == TCP_ESTABLISHED && old == TCP_SYN_RECV)
		inherit(sk);
	if (new == TCP_CLOSE && old == TCP_LISTEN)
		listener_ends(sk);
	tcp_state_changes(sk, (struct tcp_sock *)sk, old, new);
	if (new == TCP_LISTEN)
		listener_begins(sk);
}

SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(socket_state, struct sock *sk, int old, int new)
{
	if (state_matters(new) && is_tcp(sk))
		WITH_RECORD(ctx, state_changes(sk, old, new));
	return 0;
}

static __always_inline void destroyed(struct sock *sk)
{
	struct socket_track *track = track_find(sk);

	if (!track || track->state == TCP_CLOSE)
		return;
	tcp_ended(sk, (struct tcp_sock *)sk, track,
		  track->state == TCP_ESTABLISHED ? TCP_LAST_ACK : track->state);
	track_drop(sk);
}

/* An end that was missed. */
SEC("raw_tp/tcp_destroy_sock")
int BPF_PROG(socket_destroyed, struct sock *sk)
{
	WITH_RECORD(ctx, destroyed(sk));
	return 0;
}

SEC("raw_tp/tcp_send_reset")
int BPF_PROG(socket_reset, struct sock *sk)
{
	/* NULL, request sockets and those in TIME-WAIT have no track. */
	struct socket_track *track = track_find(sk);

	if (track)
		track->flags |= TRACK_RESET_SENT;
	return 0;
}

static __always_inline void accepted(struct sock *sk)
{
	struct socket_track *track;

	if (!sk || !is_tcp(sk) || BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_CLOSE)
		return;
	track = track_make(sk);
	if (!track)
		return;
	if (!track_is_of(track, sk)) { /* established before our time, or TCP fast open */
		track_accepted(track, sk);
		if (BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_SYN_RECV) {
			track->start_ns = 0;
			track->state = TCP_ESTABLISHED;
		}
	}
	track_owner(track, RULE_ACCEPT);
}

/*
 * accept ties the connection to the new descriptor. This call returns at once. A return probe of
 * inet_csk_accept would be occupied by every process that waits there, and there are few instances.
 */
SEC("kprobe/security_sock_graft")
int BPF_KPROBE(socket_grafted, struct sock *sk)
{
	accepted(sk);
	return 0;
}

/* Where the kernel has no security modules. */
SEC("kretprobe/inet_csk_accept")
int BPF_KRETPROBE(socket_accept, struct sock *sk)
{
	accepted(sk);
	return 0;
}

/* ---- both: the last descriptor is closed ---- */

static __always_inline void closes(struct sock *sk)
{
	struct socket_track *track = track_find(sk);

	if (track)
		track_owner(track, RULE_CLOSE);
}

SEC("kprobe/tcp_close")
int BPF_KPROBE(socket_tcp_close, struct sock *sk)
{
	closes(sk);
	return 0;
}

SEC("kprobe/tcp_shutdown")
int BPF_KPROBE(socket_tcp_shutdown, struct sock *sk)
{
	closes(sk);
	return 0;
}

/* ---- UDP ---- */

static __always_inline bool is_udp(struct sock *sk)
{
	return READ_BITS(sk, sk_protocol) == UDP_PROTOCOL;
}

static __always_inline struct socket_track *udp_begins(struct sock *sk, __u8 rule)
{
	struct socket_track *track = track_make(sk);

	if (!track) {
		track_refused();
		return NULL;
	}
	if (!track_is_of(track, sk)) {
		track_adopt(track, sk);
		track_begin(track, sk, OPENER_LOCAL);
	}
	track_owner(track, rule);
	return track;
}

/* Sockets in connect, by thread: the result is known when it returns. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} connecting SEC(".maps");

SEC("kprobe/ip4_datagram_connect")
int BPF_KPROBE(socket_udp_connect, struct sock *sk)
{
	__u64 thread = bpf_get_current_pid_tgid(), key = (__u64)(unsigned long)sk;

	if (is_udp(sk))
		bpf_map_update_elem(&connecting, &thread, &key, BPF_ANY);
	return 0;
}

SEC("kretprobe/ip4_datagram_connect")
int BPF_KRETPROBE(socket_udp_connected, int failed)
{
	__u64 thread = bpf_get_current_pid_tgid();
	__u64 *key = bpf_map_lookup_elem(&connecting, &thread);
	struct sock *sk;

	if (!key)
		return 0;
	sk = (struct sock *)(unsigned long)*key;
	bpf_map_delete_elem(&connecting, &thread);
	if (!failed)
		udp_begins(sk, RULE_CONNECT);
	return 0;
}

/* A sockaddr_in or sockaddr_in6, that the kernel has copied already. */
static __always_inline void read_destination(struct socket_track *track, struct msghdr *message)
{
	void *name = BPF_CORE_READ(message, msg_name);
	struct {
		__u16 family;
		__be16 port;
		__be32 address;
	} start = {};

	if (!name || BPF_CORE_READ(message, msg_namelen) < (int)sizeof(start))
		return;
	bpf_probe_read_kernel(&start, sizeof(start), name);
	if (start.family == AF_INET6)
		bpf_probe_read_kernel(track->remote, sizeof(track->remote), name + 8);
	else
		put_ipv4(track->remote, start.address);
	track->remote_port = bpf_ntohs(start.port);
}

/* Runs for each datagram: returns early for all but the first. */
static __always_inline void sends(struct sock *sk, struct msghdr *message)
{
	struct socket_track *track = track_find(sk);

	if (track && (track->remote_port || track->rule <= RULE_CONNECT))
		return;
	if (!is_udp(sk))
		return;
	track = udp_begins(sk, RULE_SEND);
	if (!track)
		return;
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_ESTABLISHED) {
		/* Connected before Skua started: there is nothing to read from the datagram. */
		track->remote_port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
		return;
	}
	/* A socket that was bound to its port explicitly may be a server that answers. */
	if (READ_BITS(sk, sk_userlocks) & SOCK_BINDPORT_LOCK)
		track->opener = OPENER_UNKNOWN;
	read_destination(track, message);
}

SEC("kprobe/udp_sendmsg")
int BPF_KPROBE(socket_udp_send, struct sock *sk, struct msghdr *message)
{
	sends(sk, message);
	return 0;
}

static __always_inline void udp_ends(struct sock *sk)
{
	struct socket_track *track = track_find(sk);

	if (!track) {
		/* One without a port was never used. */
		if (track_was_refused() && BPF_CORE_READ(sk, __sk_common.skc_num))
			count_loss(LOSS_TABLE_FULL);
		return;
	}
	track_owner(track, RULE_CLOSE);
	udp_ended(sk, track, track->id);
	track_drop(sk);
}

SEC("kprobe/udp_destroy_sock")
int BPF_KPROBE(socket_udp_destroy, struct sock *sk)
{
	if (is_udp(sk))
		WITH_RECORD(ctx, udp_ends(sk));
	return 0;
}

/* ---- snapshots ---- */

#define LOOKED_AT_ONCE 1024
#define OWNED_AT_ONCE  16

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct look_control);
} look_control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOOKED_AT_ONCE);
	__type(key, __u32);
	__type(value, struct look);
} looks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWNED_AT_ONCE);
	__type(key, __u32);
	__type(value, __u64);
} owned SEC(".maps");

/* The process that has the sockets in `owned` open. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct socket_task);
} owner_task SEC(".maps");

static __always_inline struct look_control *our_look(void)
{
	__u32 zero = 0;
	struct look_control *control = bpf_map_lookup_elem(&look_control, &zero);

	if (!control || control->thread != (__u32)bpf_get_current_pid_tgid())
		return NULL;
	return control;
}

/* A socket that is older than Skua. */
static __always_inline struct socket_track *found(struct sock *sk, bool tcp, __u32 state)
{
	struct socket_track *track = track_make(sk);

	if (!track) {
		track_refused();
		return NULL;
	}
	if (!track_is_of(track, sk)) {
		track_adopt(track, sk);
		track->self = (__u64)(unsigned long)sk;
		track->state = state;
		track->opener = tcp ? guess_opener((struct tcp_sock *)sk, state) : OPENER_UNKNOWN;
	}
	return track;
}

static __always_inline void looked_at(struct sock *sk)
{
	const __u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	const __u32 state = BPF_CORE_READ(sk, __sk_common.skc_state);
	struct look_control *control = our_look();
	struct socket_alloc *socket;
	struct socket_track *track;
	struct look *look;
	__u32 place;
	bool tcp;

	if (!control || (family != AF_INET && family != AF_INET6))
		return;
	/* Sockets that are not full ones have no protocol there. */
	if (state == TCP_TIME_WAIT || state > TCP_CLOSING)
		return;
	tcp = READ_BITS(sk, sk_protocol) == TCP_PROTOCOL;
	if (tcp ? state == TCP_CLOSE : !is_udp(sk))
		return;
	place = control->looked;
	look = bpf_map_lookup_elem(&looks, &place);
	if (!look)
		return;
	track = found(sk, tcp, state);
	if (!track)
		return;
	if (tcp)
		fill_tcp(&look->record, sk, (struct tcp_sock *)sk, track, state);
	else
		fill_udp(&look->record, sk, track);
	look->record.id = track->id;
	look->record.end = END_NONE;
	look->record.error = 0;
	look->sk = (__u64)(unsigned long)sk;
	socket = (struct socket_alloc *)BPF_CORE_READ(sk, sk_socket);
	look->inode = socket ? BPF_CORE_READ(socket, vfs_inode.i_ino) : 0;
	control->looked = place + 1;
}

SEC("kprobe/sock_diag_save_cookie")
int BPF_KPROBE(socket_looked, struct sock *sk)
{
	looked_at(sk);
	return 0;
}

/*
 * User space reads /proc/PID/stat of the process that has these sockets open; this runs with its
 * task.
 */
SEC("kprobe/proc_tgid_stat")
int BPF_KPROBE(socket_owner, void *file, void *namespace, void *pid, struct task_struct *task)
{
	struct look_control *control = our_look();
	struct socket_track *track;
	struct socket_task *owner;
	__u32 zero = 0;
	__u64 *sk;

	owner = bpf_map_lookup_elem(&owner_task, &zero);
	if (!control || !owner)
		return 0;
	read_task(owner, task);
	/* Old verifiers consider the loop endless. */
#pragma unroll
	for (int i = 0; i < OWNED_AT_ONCE; i++) {
		const __u32 place = i;

		if (place >= control->owned)
			break;
		sk = bpf_map_lookup_elem(&owned, &place);
		if (!sk)
			break;
		track = bpf_map_lookup_elem(&tracks, sk);
		if (!track || track->rule < RULE_FILE)
			continue;
		__builtin_memcpy(&track->task, owner, sizeof(*owner));
		track->rule = RULE_FILE;
	}
	return 0;
}
