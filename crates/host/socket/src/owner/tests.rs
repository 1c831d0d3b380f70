//! Owners in hosts of our own, and this very process.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::thread;

use tempfile::TempDir;

use super::*;

mod live;

const TICK: u64 = 10_000_000;
const ID: &str = "2227daf62df6694645fee5df53c1f91271546a9560e8600a525690ae252b7f63";

/// A host with `/proc`, users and a unified hierarchy of control groups.
struct Host {
    folder: TempDir,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        fs::create_dir(folder.path().join("cgroup")).unwrap();
        let mounted = folder.path().join("cgroup");
        let mount = format!("1 1 0:1 / {} rw - cgroup2 cgroup2 rw\n", mounted.display());
        fs::write(folder.path().join("mountinfo"), mount).unwrap();
        fs::write(
            folder.path().join("passwd"),
            "root:x:0:0::/:\nwww:x:33:33::/:\n",
        )
        .unwrap();
        Self { folder }
    }

    fn config(&self) -> OwnersConfig {
        let path = |name: &str| self.folder.path().join(name);
        OwnersConfig {
            cgroup_rescan: Duration::ZERO,
            proc: path("proc"),
            mountinfo: path("mountinfo"),
            passwd: path("passwd"),
            runtimes: RuntimeConfig {
                docker: vec![path("docker.sock")],
                podman: Vec::new(),
                containerd: Vec::new(),
                crio: Vec::new(),
                users: None,
                ..RuntimeConfig::default()
            },
            ..OwnersConfig::default()
        }
    }

    fn process(&self, pid: u32, start: u64, exe: &str, cgroup: &str) {
        let folder = self.folder.path().join("proc").join(pid.to_string());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let stat = format!("{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0\n");
        fs::write(folder.join("stat"), stat).unwrap();
        fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        symlink(exe, folder.join("exe")).unwrap();
    }

    /// Makes a control group; its id.
    fn cgroup(&self, path: &str) -> u64 {
        let folder = self.folder.path().join("cgroup").join(path);
        fs::create_dir_all(&folder).unwrap();
        fs::metadata(&folder).unwrap().ino()
    }

    /// Docker that knows the container by this name.
    fn docker(&self, name: &str) {
        let listener = UnixListener::bind(self.folder.path().join("docker.sock")).unwrap();
        let body = format!(r#"{{"Id":"{ID}","Name":"/{name}","Config":{{"Image":"nginx"}}}}"#);
        thread::spawn(move || {
            use std::io::{Read, Write};
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(format!("{head}{body}").as_bytes());
            }
        });
    }
}

fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text);
    bytes
}

fn task(pid: u32, start: u64, name: &str) -> Task {
    Task {
        pid,
        uid: 33,
        start_ns: start * TICK + 1234,
        cgroup: 0,
        comm: padded(name.as_bytes()),
        exe: padded(name.as_bytes()),
    }
}

fn intern<'a>(owners: &'a mut Owners, task: &Task) -> &'a Owner {
    let id = owners.intern(task).unwrap();
    owners.get(id).unwrap()
}

/// Bytes of owners and containers, counted again.
fn counted(owners: &Owners) -> usize {
    let owned = owners.slots.values().map(Slot::memory);
    let contained = owners
        .containers
        .values()
        .map(|kept| kept.container.memory());
    owned.sum::<usize>() + contained.sum::<usize>()
}

#[test]
fn a_living_process_is_known_wholly() {
    let host = Host::new();
    host.process(7, 100, "/usr/sbin/nginx", "/system.slice/nginx.service");
    let mut owners = Owners::new(host.config());
    let owner = intern(&mut owners, &task(7, 100, "nginx")).clone();
    let expected = Owner {
        pid: 7,
        ns_pid: 0,
        start_ns: 100 * TICK + 1234,
        process: "nginx".into(),
        executable: Some("/usr/sbin/nginx".into()),
        uid: 33,
        user: Some("www".into()),
        cgroup: Some("/system.slice/nginx.service".into()),
        container: None,
        unit: Some("nginx.service".into()),
    };
    assert_eq!(owner, expected);
    assert_eq!(owner.service(), "nginx.service");
    assert_eq!(owners.counters(), OwnerCounters::default());
}

#[test]
fn numbers_of_another_namespace_are_not_the_hosts() {
    let host = Host::new();
    host.process(7, 100, "/usr/bin/x", "/");
    let config = |pids| OwnersConfig {
        pids,
        ..host.config()
    };
    // The kernel means another process 7 than this /proc, even if that began in the same tick.
    let mut owners = Owners::new(config(Pids::Kernel));
    let owner = intern(&mut owners, &task(7, 100, "x"));
    assert_eq!((owner.pid, owner.ns_pid), (7, 0));
    assert_eq!(owner.executable.as_deref(), Some("x"), "by the kernel only");
    assert_eq!(owners.counters().processes_gone, 1);
    // Numbers of this /proc are no numbers of the host.
    let mut owners = Owners::new(config(Pids::Proc));
    let owner = intern(&mut owners, &task(7, 100, "x"));
    assert_eq!((owner.pid, owner.ns_pid), (0, 7));
    assert_eq!(owner.executable.as_deref(), Some("/usr/bin/x"));
    let status = host.folder.path().join("proc/7/status");
    fs::write(status, "NSpid:\t7\t3\n").unwrap();
    for (pids, numbers) in [(Pids::Proc, (0, 3)), (Pids::Host, (7, 3))] {
        let mut owners = Owners::new(config(pids));
        let owner = intern(&mut owners, &task(7, 100, "x"));
        assert_eq!((owner.pid, owner.ns_pid), numbers);
    }
}

#[test]
fn a_process_is_kept_once() {
    let host = Host::new();
    let mut owners = Owners::new(host.config());
    let first = owners.intern(&task(7, 100, "a")).unwrap();
    assert_eq!(owners.intern(&task(7, 100, "a")), Some(first));
    // Pid used again.
    let again = owners.intern(&task(7, 101, "a")).unwrap();
    assert_ne!(first, again);
    assert_eq!(owners.len(), 2);
    assert_eq!(owners.get(first).unwrap().start_ns, 100 * TICK + 1234);
    assert_eq!(owners.intern(&Task::default()), None);
    assert_eq!(size_of::<Option<OwnerId>>(), 4);
}

#[test]
fn a_reused_pid_never_gives_anothers_data() {
    let host = Host::new();
    host.process(7, 200, "/usr/bin/other", "/system.slice/other.service");
    let mut owners = Owners::new(host.config());
    let owner = intern(&mut owners, &task(7, 100, "curl"));
    assert_eq!(owner.executable.as_deref(), Some("curl"));
    assert_eq!((&owner.cgroup, &owner.unit), (&None, &None));
    assert_eq!(owner.service(), "curl");
    assert_eq!(owners.counters().pids_reused, 1);
    // Without a start time reuse cannot be detected.
    let unknown = Task {
        start_ns: 0,
        ..task(7, 0, "curl")
    };
    assert_eq!(
        intern(&mut owners, &unknown).executable.as_deref(),
        Some("curl")
    );
    let another = Task {
        comm: padded(b"wget"),
        ..unknown
    };
    assert_eq!(intern(&mut owners, &another).process, "wget");
    assert_eq!(owners.len(), 3);
}

#[test]
fn a_process_that_runs_something_else_by_now_is_not_mixed_up() {
    let host = Host::new();
    host.process(7, 100, "/usr/bin/curl", "/a.service");
    let mut owners = Owners::new(host.config());
    let before = intern(&mut owners, &task(7, 100, "sh")).clone();
    assert_eq!(before.executable.as_deref(), Some("sh"));
    assert_eq!(owners.counters().executed, 1);
    let after = intern(&mut owners, &task(7, 100, "curl"));
    assert_eq!(after.executable.as_deref(), Some("/usr/bin/curl"));
    assert_eq!(owners.len(), 2);
}

#[test]
fn a_deleted_executable_is_still_the_one() {
    let host = Host::new();
    host.process(7, 100, "/usr/bin/curl (deleted)", "/");
    let mut owners = Owners::new(host.config());
    let owner = intern(&mut owners, &task(7, 100, "curl"));
    assert_eq!(owner.executable.as_deref(), Some("/usr/bin/curl"));
}

#[test]
fn a_process_that_is_gone_is_known_by_the_kernels_event() {
    let host = Host::new();
    let id = host.cgroup("system.slice/cron.service");
    let mut owners = Owners::new(host.config());
    let gone = Task {
        cgroup: id,
        ..task(7, 100, "curl")
    };
    let owner = intern(&mut owners, &gone);
    assert_eq!(owner.unit.as_deref(), Some("cron.service"));
    assert_eq!(owner.user.as_deref(), Some("www"));
    assert_eq!(owner.executable.as_deref(), Some("curl"));
    assert_eq!(owners.counters().processes_gone, 1);
    assert_eq!(owners.counters().cgroups_unknown, 0);
}

#[test]
fn groups_are_learned_from_the_kernel_and_by_listing() {
    let host = Host::new();
    let mut owners = Owners::new(host.config());
    owners.note_cgroup(1 << 40, b"/system.slice/task.service");
    let noted = Task {
        cgroup: 1 << 40,
        ..task(7, 100, "a")
    };
    assert_eq!(
        intern(&mut owners, &noted).unit.as_deref(),
        Some("task.service")
    );

    let made = host.cgroup("system.slice/made.service");
    let late = Task {
        cgroup: made,
        ..task(8, 100, "b")
    };
    assert_eq!(intern(&mut owners, &late).unit, None);
    assert_eq!(owners.counters().cgroups_unknown, 1);
    while intern(&mut owners, &late).unit.is_none() {
        owners.refresh();
    }
    assert_eq!(
        intern(&mut owners, &late).unit.as_deref(),
        Some("made.service")
    );

    assert_eq!(owners.memory, counted(&owners));

    // An unknown group is searched once.
    intern(
        &mut owners,
        &Task {
            cgroup: 1 << 50,
            ..task(9, 100, "c")
        },
    );
    while !owners.pending.is_empty() {
        owners.refresh();
    }
}

#[test]
fn names_of_containers_come_later() {
    let host = Host::new();
    host.process(
        7,
        100,
        "/nginx",
        &format!("/system.slice/docker-{ID}.scope"),
    );
    let mut owners = Owners::new(host.config());
    host.docker("web");
    let owner = intern(&mut owners, &task(7, 100, "nginx"));
    assert_eq!(owner.service(), &ID[..12]);
    assert_eq!((&owner.unit, &owner.user), (&None, &None));
    let container = owner.container.clone().unwrap();
    assert_eq!((container.runtime, &*container.id), (Runtime::Docker, ID));
    while owners.counters().runtimes.answered == 0 {
        owners.refresh();
        thread::yield_now();
    }
    let owner = intern(&mut owners, &task(7, 100, "nginx"));
    assert_eq!(owner.service(), "web");
    assert_eq!(
        owner.container.as_ref().unwrap().image.as_deref(),
        Some("nginx")
    );
    assert_eq!(owners.memory, counted(&owners));
    // The next one in it has the names at once, without another query.
    host.process(8, 100, "/sh", &format!("/system.slice/docker-{ID}.scope"));
    assert_eq!(intern(&mut owners, &task(8, 100, "sh")).service(), "web");
    owners.refresh();
    assert_eq!(owners.counters().runtimes.answered, 1);
    let root = Task {
        uid: 0,
        ..task(8, 100, "sh")
    };
    assert_eq!(intern(&mut owners, &root).user.as_deref(), Some("root"));
}

#[test]
fn without_a_runtime_the_id_remains() {
    let host = Host::new();
    host.process(7, 100, "/nginx", &format!("/docker/{ID}"));
    let mut owners = Owners::new(host.config());
    intern(&mut owners, &task(7, 100, "nginx"));
    while owners.counters().runtimes.unreachable == 0 {
        owners.refresh();
        thread::yield_now();
    }
    assert_eq!(
        intern(&mut owners, &task(7, 100, "nginx")).service(),
        &ID[..12]
    );
}

#[test]
fn services_have_the_best_name() {
    let found = |id: &str| Found {
        runtime: Runtime::Containerd,
        id: id.into(),
        namespace: None,
        user: None,
    };
    let names = crate::runtime::Names {
        runtime: Some(Runtime::CriO),
        name: Some("app".into()),
        pod_name: Some("web-1".into()),
        pod_namespace: Some("shop".into()),
        ..Default::default()
    };
    let mut containment = Containment {
        outer: found(ID),
        inner: None,
        pod: Some("uid".into()),
    };
    let container = Container::new(&containment, Some(&names));
    assert_eq!(
        (container.label(), container.runtime),
        ("shop/web-1/app", Runtime::CriO)
    );
    let pod = container.pod.unwrap();
    assert_eq!(pod.uid.as_deref(), Some("uid"));
    assert_eq!(
        (pod.name.as_deref(), pod.namespace.as_deref()),
        (Some("web-1"), Some("shop"))
    );

    // The host's runtime says nothing about what runs in its container.
    containment.inner = Some(found(&ID.replace('2', "3")));
    let container = Container::new(&containment, Some(&names));
    assert_eq!((container.name, container.image), (None, None));
    assert_eq!(container.outer.as_deref(), Some("app"));
    assert_eq!(container.label, "shop/web-1/3337daf63df6");
    assert_eq!(container.pod.unwrap().name.as_deref(), Some("web-1"));

    let host = Host::new();
    let mut owners = Owners::new(host.config());
    let cases = [
        ("/user.slice/user-1000.slice/session-3.scope", "curl"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope",
            "curl",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/sync.service",
            "sync.service",
        ),
        ("/user.slice/user-1000.slice/user@1000.service", "curl"),
        ("/lxc.payload.web/system.slice/ssh.service", "web"),
        ("/", "curl"),
    ];
    for (pid, (cgroup, service)) in (10..).zip(cases) {
        host.process(pid, 100, "/usr/bin/curl", cgroup);
        assert_eq!(
            intern(&mut owners, &task(pid, 100, "curl")).service(),
            service,
            "{cgroup}"
        );
    }
}

#[test]
fn no_name_drives_a_terminal() {
    let host = Host::new();
    let mut owners = Owners::new(host.config());
    owners.note_cgroup(1 << 40, b"/\x1b[2J\n/\xff.service");
    let hostile = Task {
        comm: padded(b"\x1b]0;x\x07\n\xff"),
        exe: padded(b"\r\x9b"),
        cgroup: 1 << 40,
        ..task(7, 100, "")
    };
    let owner = intern(&mut owners, &hostile);
    assert_eq!(owner.process, r"\x1b]0;x\x07\x0a\xff");
    assert_eq!(owner.executable.as_deref(), Some(r"\x0d\x9b"));
    assert_eq!(owner.cgroup.as_deref(), Some(r"/\x1b[2J\x0a/\xff.service"));
    assert_eq!(owner.unit.as_deref(), Some(r"\xff.service"));
    assert_eq!(intern(&mut owners, &task(8, 100, "")).process, "pid 8");
}

#[test]
fn a_name_that_changes_is_shown_as_it_is_now() {
    let host = Host::new();
    let mut owners = Owners::new(host.config());
    let mut task = task(7, 100, "postgres");
    let id = owners.intern(&task).unwrap();
    task.comm = padded(b"postgres: idle");
    assert_eq!(owners.intern(&task), Some(id));
    assert_eq!(owners.get(id).unwrap().process, "postgres: idle");
    assert_eq!(owners.memory, counted(&owners));
}

#[test]
fn new_users_are_named() {
    let host = Host::new();
    let mut owners = Owners::new(host.config());
    let task = Task {
        uid: 44,
        ..task(7, 100, "a")
    };
    assert_eq!(intern(&mut owners, &task).user, None);
    fs::write(host.folder.path().join("passwd"), "alice:x:44:44::/:\n").unwrap();
    owners.refresh();
    assert_eq!(intern(&mut owners, &task).user.as_deref(), Some("alice"));
    assert_eq!(owners.memory, counted(&owners));
}

#[test]
fn owners_are_bounded_and_swept_when_nobody_uses_them() {
    let host = Host::new();
    let config = OwnersConfig {
        max_owners: 100,
        ..host.config()
    };
    let mut owners = Owners::new(config);
    let in_container = format!("/docker/{ID}");
    host.process(1, 100, "/x", &in_container);
    let ids: Vec<_> = (1..=100)
        .map(|pid| owners.intern(&task(pid, 100, "x")).unwrap())
        .collect();
    assert_eq!(owners.intern(&task(101, 100, "x")), None);
    assert_eq!(owners.counters().owners_full, 1);
    let before = owners.memory();
    assert_eq!(owners.containers.len(), 1);

    let kept = ids[50];
    let freed = owners.sweep(|used| {
        used.note(kept.number(), false);
        used.note(NonZeroU32::new(5_000_000).unwrap(), true);
    });
    assert_eq!((freed, owners.len(), owners.containers.len()), (99, 1, 0));
    assert_eq!(owners.counters().owners_forgotten, 0);
    assert!(owners.memory() < before);
    assert_eq!(owners.memory, counted(&owners));
    assert_eq!(owners.get(kept).unwrap().pid, 51);
    assert_eq!(owners.intern(&task(51, 100, "x")), Some(kept));
    assert!(owners.get(ids[0]).is_none());

    // Few: nothing is freed.
    assert_eq!(owners.sweep(|_| {}), 0);
    for pid in 200..299 {
        owners.intern(&task(pid, 100, "x")).unwrap();
    }
    assert_eq!((owners.len(), owners.by_key.len()), (100, 100));
}

#[test]
fn the_last_processes_have_names_however_many_the_history_keeps() {
    let host = Host::new();
    let config = OwnersConfig {
        max_owners: 1000,
        ..host.config()
    };
    let mut owners = Owners::new(config);
    // Its socket goes on, and another process has a short one now and then.
    let long = owners.intern(&task(1, 100, "long")).unwrap();
    let often = owners.intern(&task(2, 100, "often")).unwrap();
    let mut history = Vec::new();
    for pid in 10..10_000 {
        history.push(owners.intern(&task(pid, 100, "short")).expect("room"));
        if pid % 100 == 0 {
            assert_eq!(owners.intern(&task(2, 100, "often")), Some(often));
            owners.sweep(|used| {
                used.note(long.number(), true);
                used.note(often.number(), false);
                history.iter().for_each(|id| used.note(id.number(), false));
            });
        }
    }
    assert_eq!(owners.counters().owners_full, 0);
    let named = |id: &OwnerId| owners.get(*id);
    let last = history.iter().rev().take(400);
    assert!(
        last.zip((0..10_000).rev())
            .all(|(id, pid)| named(id).unwrap().pid == pid)
    );
    assert_eq!(named(&long).unwrap().process, "long");
    // An owner that was dropped has no name, not another's.
    assert!(named(&history[0]).is_none());
    let kept = history.iter().filter(|id| named(id).is_some()).count();
    assert_eq!(
        owners.counters().owners_forgotten as usize,
        history.len() - kept
    );
}

#[test]
fn memory_is_bounded() {
    let host = Host::new();
    let config = OwnersConfig {
        max_memory: 100_000,
        ..host.config()
    };
    let mut owners = Owners::new(config);
    for pid in 1..1000 {
        // As long as a path is kept, and another one for each process.
        let deep = format!("/{pid}{}", "x".repeat(4000));
        host.process(pid, 100, "/x", &deep);
        owners.intern(&task(pid, 100, "x"));
    }
    assert!(owners.counters().owners_full > 800);
    assert!(owners.memory() < 120_000, "{}", owners.memory());
    let len = owners.len();
    assert_eq!(owners.sweep(|_| {}), len);
    assert_eq!((owners.memory, owners.is_empty()), (0, true));
    assert!(owners.texts.memory() < 10_000);
}

#[test]
fn processes_share_their_texts() {
    let host = Host::new();
    let mut owners = Owners::new(host.config());
    let path = format!("/{}", "x".repeat(500));
    for pid in 1..=1000 {
        host.process(pid, 100, &path, "/system.slice/many.service");
        owners.intern(&task(pid, 100, "x")).unwrap();
    }
    // By each process 600 bytes more, if they did not.
    let each = owners.memory_of_owners() / 1000;
    assert!(each < 400, "{each}");
}

#[test]
fn several_workers_are_named_by_what_they_share() {
    let host = Host::new();
    let mut owners = Owners::new(host.config());
    let cases = [
        (1, "/usr/bin/dns", "/system.slice/dns.service"),
        (2, "/usr/bin/dns", "/system.slice/dns.service"),
        (3, "/usr/bin/dns", "/system.slice/dns.service"),
        (4, "/usr/bin/dns", "/user.slice/session-1.scope"),
        (5, "/usr/bin/other", "/system.slice/dns.service"),
        (6, "/usr/bin/stranger", "/system.slice/stranger.service"),
    ];
    let ids = cases.map(|(pid, exe, cgroup)| {
        host.process(pid, 100, exe, cgroup);
        let name = exe.rsplit('/').next().unwrap();
        owners.intern(&task(pid, 100, name)).unwrap()
    });
    let [a, b, c, session, other, stranger] = ids;
    assert_eq!(owners.shared(a, a), Some(a));
    let both = owners.shared(a, b).unwrap();
    let owner = owners.get(both).unwrap();
    assert_eq!((owner.pid, &*owner.process), (0, "dns"));
    assert_eq!(owner.executable.as_deref(), Some("/usr/bin/dns"));
    assert_eq!(owner.service(), "dns.service");
    // A third one, whatever the order, is no further owner.
    assert_eq!(owners.shared(both, c), Some(both));
    assert_eq!(owners.shared(b, c), Some(both));
    assert_eq!(owners.len(), cases.len() + 1);
    let program = owners.shared(both, session).unwrap();
    let owner = owners.get(program).unwrap();
    assert_eq!((&owner.unit, owner.service()), (&None, "dns"));
    let unit = owners.shared(both, other).unwrap();
    let owner = owners.get(unit).unwrap();
    assert_eq!((&owner.executable, &*owner.process), (&None, ""));
    assert_eq!(owner.service(), "dns.service");
    assert_eq!(owners.shared(a, stranger), None);
    assert_eq!(owners.shared(unit, program), None);
}

#[test]
fn proc_may_be_missing_or_hidden() {
    let host = Host::new();
    let config = OwnersConfig {
        proc: host.folder.path().join("none"),
        mountinfo: "/none".into(),
        passwd: "/none".into(),
        ..host.config()
    };
    let mut owners = Owners::new(config);
    let owner = intern(&mut owners, &task(7, 100, "curl"));
    assert_eq!(
        (&*owner.process, owner.uid, &owner.user),
        ("curl", 33, &None)
    );
    owners.refresh();
}
