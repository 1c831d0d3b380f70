//! Metrics of sockets.

use skua_process::metrics::Exposition;

use skua_state::sockets::Sockets;

skua_process::metrics! { "Sockets"
    OPEN gauge "skua_sockets_open" [] "Open sockets at the last drain.";
    SEEN counter "skua_sockets_seen_total" [] "Sockets seen, open or ended.";
    ENDED counter "skua_sockets_ended_total" [] "Sockets that have ended.";
    VANISHED counter "skua_sockets_vanished_total" [] "Ended sockets of which no end was seen: their numbers are those of the drain before.";
    NOT_KEPT counter "skua_sockets_not_kept_total" [] "Open sockets beyond the table's limit, at each drain.";
    AMBIGUOUS counter "skua_flows_ambiguous_total" [] "Conversations without a process of their own because several sockets fit.";
    OWNERS_FULL counter "skua_socket_owners_full_total" [] "Sockets without a process, at each drain, because too many processes have open ones.";
    OWNERS_FORGOTTEN counter "skua_socket_owners_forgotten_total" [] "Processes of nothing but ended sockets and flows that were removed for others.";
    EVICTED counter "skua_sockets_history_evicted_total" [] "Ended sockets that were removed from the history for others.";
    OWNERS gauge "skua_socket_owners" [] "Processes that are known.";
    MEMORY gauge "skua_socket_memory_bytes" [] "Memory for sockets and their owners.";
    LOST counter "skua_sockets_lost_total" ["cause"] "Sockets that became no record, by cause.";
    MAPS gauge "skua_socket_map_bytes" ["map"] "Kernel memory of a map of the socket programs.";
}

pub fn write(out: &mut Exposition, sockets: &Sockets) {
    let counts = sockets.store.counts();
    let owners = sockets.owners.counters();
    out.single(&OPEN, sockets.store.open_count());
    out.single(&SEEN, counts.seen);
    out.single(&ENDED, counts.ended);
    out.single(&VANISHED, counts.vanished);
    out.single(&NOT_KEPT, counts.not_kept);
    out.single(&AMBIGUOUS, counts.ambiguous);
    out.single(&OWNERS_FULL, owners.owners_full);
    out.single(&OWNERS_FORGOTTEN, owners.owners_forgotten);
    out.single(&EVICTED, counts.evicted);
    out.single(&OWNERS, sockets.owners.len());
    out.single(&MEMORY, sockets.store.memory() + sockets.owners.memory());
    let mut lost = out.family(&LOST);
    for (cause, sockets) in sockets.losses.by_cause() {
        lost.value([cause], sockets);
    }
    let mut maps = out.family(&MAPS);
    for (map, bytes) in &sockets.map_memory {
        maps.value([map], *bytes);
    }
}
