//! This very process, by the host's own `/proc`.

use std::env;
use std::process;

use super::*;

#[test]
fn this_process_is_known_wholly() {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = &stat[stat.rfind(')').unwrap() + 2..];
    let ticks: u64 = fields.split(' ').nth(19).unwrap().parse().unwrap();
    let exe = env::current_exe().unwrap();
    let name = exe.file_name().unwrap().to_str().unwrap();
    let me = Task {
        pid: process::id(),
        uid: rustix::process::geteuid().as_raw(),
        start_ns: ticks * TICK,
        cgroup: 0,
        comm: padded(&name.as_bytes()[..15]),
        exe: padded(&name.as_bytes()[..name.len().min(31)]),
    };
    let mut owners = Owners::new(OwnersConfig::default());
    let owner = intern(&mut owners, &me);
    assert_eq!(owner.executable.as_deref(), exe.to_str());
    assert!(owner.cgroup.as_ref().unwrap().starts_with('/'));
    assert!(name.starts_with(&owner.process) && owner.process.len() > 15);

    let other = Task {
        start_ns: (ticks + 1) * TICK,
        ..me
    };
    assert_eq!(intern(&mut owners, &other).cgroup, None);
    assert_eq!(owners.counters().pids_reused, 1);
}
