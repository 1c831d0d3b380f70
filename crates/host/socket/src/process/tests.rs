//! Tests of reading `/proc`.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use super::*;

const TICK: u64 = 10_000_000;

/// A `/proc` of our own with one process.
fn fake(pid: u32, stat: &[u8]) -> (tempfile::TempDir, Proc) {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join(pid.to_string());
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("stat"), stat).unwrap();
    fs::write(folder.join("cgroup"), "0::/system.slice/x.service\n").unwrap();
    symlink("/usr/bin/x", folder.join("exe")).unwrap();
    let proc = Proc::new(root.path());
    (root, proc)
}

fn stat(name: &str, start: u64) -> Vec<u8> {
    format!("7 ({name}) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {start} 4096 1\n")
        .into_bytes()
}

#[test]
fn the_process_that_is_meant_is_read() {
    let (_root, proc) = fake(7, &stat("a) R (b c) d", 1234));
    let process = proc.read(7, 1234 * TICK + 5, true).unwrap();
    assert_eq!(process.executable.unwrap(), b"/usr/bin/x");
    assert_eq!(process.cgroup.unwrap(), b"0::/system.slice/x.service\n");
    let process = proc.read(7, 1234 * TICK, false).unwrap();
    assert_eq!((process.executable.is_some(), process.cgroup), (true, None));
}

#[test]
fn the_number_in_its_own_namespace_is_the_last() {
    let (root, proc) = fake(7, &stat("x", 1));
    let folder = root.path().join("7");
    let ns_pid = |status: &str| {
        fs::write(folder.join("status"), status).unwrap();
        proc.read(7, TICK, false).unwrap().ns_pid
    };
    assert_eq!(ns_pid("Name:\tx\nNSpid:\t7\t31\t2\n"), 2);
    for same in ["", "NSpid:\t7\n", "NSpid:\n", "NSpid:\t7\tx\n"] {
        assert_eq!(ns_pid(same), 0, "{same}");
    }
    // In the initial namespace there is no other.
    fs::create_dir(folder.join("ns")).unwrap();
    symlink("pid:[4026531836]", folder.join("ns/pid")).unwrap();
    assert_eq!(ns_pid("NSpid:\t7\t2\n"), 0);
}

#[test]
fn whose_numbers_proc_has_is_known() {
    let root = tempfile::tempdir().unwrap();
    let link = |process: &str, to: &str| {
        let folder = root.path().join(process).join("ns");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        symlink(to, folder.join("pid")).unwrap();
    };
    let status = |text: &str| fs::write(root.path().join("self/status"), text).unwrap();
    assert!(is_of_host(root.path()), "nothing is said otherwise");
    link("self", "pid:[4026531836]");
    assert!(is_of_host(root.path()));
    // A container that does not see more than itself.
    link("self", "pid:[4026532456]");
    status("NSpid:\t12\n");
    assert!(!is_of_host(root.path()));
    // A container with the host's /proc.
    status("NSpid:\t4711\t12\n");
    assert!(is_of_host(root.path()));
    link("1", "pid:[4026532456]");
    assert!(!is_of_host(root.path()));
    link("1", "pid:[4026531836]");
    assert!(is_of_host(root.path()));
}

#[test]
fn another_start_time_is_another_process() {
    let (_root, proc) = fake(7, &stat("x", 1234));
    assert_eq!(proc.read(7, 1235 * TICK, true), Err(ProcError::Another));
    assert_eq!(proc.read(7, 1233 * TICK, true), Err(ProcError::Another));
    assert_eq!(proc.read(7, 0, true), Err(ProcError::Gone));
    assert_eq!(proc.read(8, 1234 * TICK, true), Err(ProcError::Gone));
}

#[test]
fn rubbish_is_unreadable() {
    for bytes in [
        &b""[..],
        b"7",
        b"7 (x",
        b"7 (x) S",
        b"7 (x) \xff\xff",
        &[b')'; 100_000],
    ] {
        let (_root, proc) = fake(7, bytes);
        assert_eq!(
            proc.read(7, TICK, true),
            Err(ProcError::Unreadable),
            "{bytes:?}"
        );
    }
}

#[test]
fn a_living_process_is_found_by_its_start_time() {
    let proc = Proc::new(Path::new("/proc"));
    let mut child = Command::new("sleep")
        .arg("1000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let stat = fs::read(format!("/proc/{}/stat", child.id())).unwrap();
    let start_ns = start_ticks(&stat).unwrap() * TICK;
    let process = proc.read(child.id(), start_ns, true);
    let other = proc.read(child.id(), start_ns + TICK, true);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(process.unwrap().cgroup.is_some());
    assert_eq!(other, Err(ProcError::Another));
    assert_eq!(proc.read(child.id(), start_ns, true), Err(ProcError::Gone));
}

#[test]
fn executables_are_compared_by_their_last_component() {
    let same = |link: &[u8], event: &[u8]| executable(link, event) == Some(link);
    assert!(same(b"/usr/bin/curl", b"curl"));
    assert!(same(b"/usr/bin/curl", b""));
    let long = [b'a'; 40];
    assert!(same(&long, &long[..31]));
    assert!(same(&long, &long[..32]));
    assert_eq!(executable(b"/usr/bin/curl", b"sh"), None);
    assert_eq!(executable(b"/usr/bin/curlew", b"curl"), None);
    assert_eq!(executable(&long, &long[..30]), None);
    assert_eq!(
        executable(b"/usr/bin/x (deleted)", b"x"),
        Some(&b"/usr/bin/x"[..])
    );
    assert!(same(b"/usr/bin/x (deleted)", b"x (deleted)"));
    assert_eq!(base_name(b"/usr/bin/\xff"), b"\xff");
}

#[test]
fn a_name_that_was_cut_is_completed() {
    assert_eq!(
        name(b"systemd-resolve", b"systemd-resolved"),
        b"systemd-resolved"
    );
    assert_eq!(name(b"gunicorn", b"python3.11"), b"gunicorn");
    assert_eq!(name(b"", b"x"), b"x");
    assert_eq!(name(b"kworker/0:1", b""), b"kworker/0:1");
}
