//! Tests of finding control groups, in trees of our own.

use std::fs;

use tempfile::TempDir;

use super::*;

const NO_PAUSE: Duration = Duration::ZERO;

/// A host with these hierarchies (file system, options) and groups in them.
fn host(hierarchies: &[(&str, &str, &[&str])]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let mut mounts = "22 1 0:5 / /proc rw - proc proc rw\n".to_owned();
    for (number, (kind, options, groups)) in hierarchies.iter().enumerate() {
        let root = folder.path().join(format!("h {number}"));
        fs::create_dir(&root).unwrap();
        fs::write(root.join("cgroup.procs"), "").unwrap();
        for group in *groups {
            fs::create_dir_all(root.join(group)).unwrap();
        }
        let root = root.display().to_string().replace(' ', "\\040");
        mounts += &format!("3{number} 1 0:2 / {root} rw shared:9 - {kind} none {options}\n");
    }
    let mountinfo = folder.path().join("mountinfo");
    fs::write(&mountinfo, mounts).unwrap();
    (folder, mountinfo)
}

fn inode(folder: &TempDir, path: &str) -> u64 {
    fs::metadata(folder.path().join(path)).unwrap().ino()
}

fn listed(mountinfo: &Path, max: usize) -> Cgroups {
    let mut cgroups = Cgroups::new(mountinfo, max, NO_PAUSE);
    assert!(cgroups.list());
    cgroups
}

fn path(cgroups: &Cgroups, id: u64) -> Option<String> {
    cgroups
        .path(id)
        .map(|path| String::from_utf8(path).unwrap())
}

#[test]
fn unified_groups_are_found_by_inode() {
    let (folder, mountinfo) = host(&[("cgroup2", "rw", &["system.slice/a.service", "b"])]);
    let cgroups = listed(&mountinfo, 100);
    let service = inode(&folder, "h 0/system.slice/a.service");
    assert_eq!(
        path(&cgroups, service).as_deref(),
        Some("/system.slice/a.service")
    );
    assert_eq!(
        path(&cgroups, inode(&folder, "h 0/b")).as_deref(),
        Some("/b")
    );
    assert_eq!(path(&cgroups, inode(&folder, "h 0")).as_deref(), Some("/"));
    assert_eq!(path(&cgroups, 0), None);
    assert_eq!(path(&cgroups, u64::MAX), None);
}

#[test]
fn version_1_serves_where_the_unified_hierarchy_only_has_its_root() {
    let (folder, mountinfo) = host(&[
        ("cgroup2", "rw", &[]),
        ("cgroup", "rw,cpu,cpuacct", &["wrong"]),
        ("cgroup", "rw,memory", &["wrong"]),
        ("cgroup", "rw,pids", &["docker/x"]),
        ("cgroup", "rw,xattr,name=systemd", &["wrong"]),
    ]);
    let cgroups = listed(&mountinfo, 100);
    let id = inode(&folder, "h 3/docker/x");
    assert_eq!(path(&cgroups, id).as_deref(), Some("/docker/x"));
    assert_eq!(
        path(&cgroups, id | Task::CGROUP_V1).as_deref(),
        Some("/docker/x")
    );
    assert_eq!(path(&cgroups, id | 7 << 32).as_deref(), Some("/docker/x"));
    for other in [1, 2, 4] {
        assert_eq!(
            path(&cgroups, inode(&folder, &format!("h {other}/wrong"))),
            None
        );
    }
    let (folder, mountinfo) = host(&[("cgroup", "rw,memory", &["m"])]);
    let cgroups = listed(&mountinfo, 100);
    assert_eq!(
        path(&cgroups, inode(&folder, "h 0/m")).as_deref(),
        Some("/m")
    );
}

#[test]
fn both_versions_are_told_apart_where_both_are_used() {
    let (folder, mountinfo) = host(&[("cgroup2", "rw", &["a"]), ("cgroup", "rw,pids", &["x"])]);
    let cgroups = listed(&mountinfo, 100);
    let (unified, first) = (inode(&folder, "h 0/a"), inode(&folder, "h 1/x"));
    assert_eq!(path(&cgroups, unified).as_deref(), Some("/a"));
    assert_eq!(path(&cgroups, unified | Task::CGROUP_V1), None);
    assert_eq!(path(&cgroups, first), None);
    assert_eq!(
        path(&cgroups, first | Task::CGROUP_V1).as_deref(),
        Some("/x")
    );
}

#[test]
fn ids_of_old_kernels_have_a_generation_above_the_inode() {
    let (folder, mountinfo) = host(&[("cgroup2", "rw", &["a"])]);
    let mut cgroups = listed(&mountinfo, 100);
    let id = inode(&folder, "h 0/a");
    assert!(id < 1 << 32, "of the file system that the test runs on");
    assert_eq!(path(&cgroups, id | 7 << 32).as_deref(), Some("/a"));
    // Not a removed one: its inode number may be another's.
    fs::remove_dir(folder.path().join("h 0/a")).unwrap();
    assert_eq!(path(&cgroups, id | 7 << 32), None);
    cgroups.note(id | 8 << 32, b"/told");
    assert_eq!(path(&cgroups, id | 8 << 32).as_deref(), Some("/told"));
}

#[test]
fn new_groups_are_found_by_listing_again_and_gone_ones_forgotten() {
    let (folder, mountinfo) = host(&[("cgroup2", "rw", &["old"])]);
    let mut cgroups = listed(&mountinfo, 100);
    let old = inode(&folder, "h 0/old");
    fs::create_dir(folder.path().join("h 0/new")).unwrap();
    let new = inode(&folder, "h 0/new");
    assert_eq!(path(&cgroups, new), None);
    fs::remove_dir(folder.path().join("h 0/old")).unwrap();
    assert_eq!(path(&cgroups, old).as_deref(), Some("/old"));
    while !cgroups.list() {}
    assert_eq!(path(&cgroups, new).as_deref(), Some("/new"));
    assert_eq!(path(&cgroups, old), None);
}

#[test]
fn listing_again_waits() {
    let (_folder, mountinfo) = host(&[("cgroup2", "rw", &[])]);
    let mut cgroups = Cgroups::new(&mountinfo, 100, Duration::from_secs(3600));
    assert!(cgroups.list());
    assert!(!cgroups.list());
}

#[test]
fn what_the_kernel_told_outlives_the_group() {
    let (_folder, mountinfo) = host(&[("cgroup2", "rw", &["a"])]);
    let mut cgroups = listed(&mountinfo, 100);
    cgroups.note(1 << 40, b"/short/lived");
    cgroups.note(0, b"/no/id");
    cgroups.note(1 << 41, b"");
    while !cgroups.list() {}
    assert_eq!(path(&cgroups, 1 << 40).as_deref(), Some("/short/lived"));
    assert_eq!(path(&cgroups, 1 << 41), None);
}

#[test]
fn groups_are_bounded_in_number_and_bytes() {
    let names: Vec<String> = (0..50).map(|number| format!("g{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (_folder, mountinfo) = host(&[("cgroup2", "rw", &names)]);
    let mut cgroups = listed(&mountinfo, 20);
    assert_eq!(cgroups.paths.len(), 20);
    assert!(cgroups.full > 0);
    while !cgroups.list() {}
    assert_eq!(cgroups.paths.len(), 20);

    let mut cgroups = Cgroups::new(Path::new("/none"), 20, NO_PAUSE);
    for id in 1..1000 {
        cgroups.note(id, &[b'x'; 4096]);
    }
    assert!(cgroups.bytes <= 20 * PATH && cgroups.full > 900);
    // Too many announced paths: listing drops them.
    while !cgroups.list() {}
    assert_eq!((cgroups.paths.len(), cgroups.bytes), (0, 0));
}

#[test]
fn a_group_that_is_told_twice_is_counted_once() {
    let mut cgroups = Cgroups::new(Path::new("/none"), 20, NO_PAUSE);
    for _ in 0..1000 {
        cgroups.note(5, b"/a/b");
    }
    assert_eq!((cgroups.bytes, cgroups.full), (4, 0));
}

#[test]
fn odd_bytes_and_deep_paths_are_kept() {
    let (folder, mountinfo) = host(&[("cgroup2", "rw", &[])]);
    let odd = std::ffi::OsStr::from_bytes(b"a\xff\x1b b");
    let mut deep = folder.path().join("h 0").join(odd);
    fs::create_dir(&deep).unwrap();
    while deep.as_os_str().len() < 3800 {
        deep.push("d".repeat(200));
        fs::create_dir(&deep).unwrap();
    }
    let cgroups = listed(&mountinfo, 1000);
    let id = fs::metadata(&deep).unwrap().ino();
    let path = cgroups.path(id).unwrap();
    assert!(path.starts_with(b"/a\xff\x1b b/ddd") && path.len() > 3500);
}

#[test]
fn the_mount_that_shows_most_is_taken() {
    let mounts = b"1 1 0:1 /docker/x /part rw - cgroup2 cgroup rw\n\
        2 1 0:1 / /all\\040of\\134it rw shared:1 master:2 - cgroup2 cgroup rw\n\
        3 1 0:1 /../.. /outside rw - cgroup cgroup rw,memory\n\
        short\n\n\xff\xff - cgroup2\n4 1 0:1 / /net rw - cgroup cgroup rw,net_cls\n";
    let expected = [
        Hierarchy {
            kind: Kind::Unified,
            mounted: r"/all of\it".into(),
            root: Vec::new(),
        },
        Hierarchy {
            kind: Kind::Memory,
            mounted: "/outside".into(),
            root: Vec::new(),
        },
    ];
    assert_eq!(hierarchies(mounts), expected);
    let part = hierarchies(mounts.split(|&byte| byte == b'\n').next().unwrap());
    let entry = part[0].entry(Path::new("/part/sub"));
    assert_eq!(&*entry.path, b"/docker/x/sub");
    assert_eq!(&*part[0].entry(Path::new("/part")).path, b"/docker/x");
}

#[test]
fn of_a_processs_groups_the_one_that_tells_most_is_taken() {
    let id = "2227daf62df6694645fee5df53c1f91271546a9560e8600a525690ae252b7f63";
    let path =
        |text: &str| path_of_process(text.as_bytes()).map(|path| String::from_utf8(path).unwrap());
    let cases = [
        (
            "0::/system.slice/a.service\n".to_owned(),
            "/system.slice/a.service".to_owned(),
        ),
        // Docker beside systemd's hybrid layout.
        (
            format!(
                "3:cpu,cpuacct:/docker/{id}\n2:pids:/docker/{id}\n0::/system.slice/containerd.service\n"
            ),
            format!("/docker/{id}"),
        ),
        (
            "5:memory:/m\n4:pids:/\n1:name=systemd:/\n0::/\n".into(),
            "/m".into(),
        ),
        ("5:memory:/m\n4:pids:/p\n3:cpu:/c\n".into(), "/p".into()),
        (
            "4:pids:/p/a.service\n0::/init.scope\n".into(),
            "/init.scope".into(),
        ),
        ("2:cpu:/only\n".into(), "/only".into()),
        ("0::/\n".into(), "/".into()),
        (
            "0::/../../system.slice/a.service (deleted)\n".into(),
            "/system.slice/a.service".into(),
        ),
        ("0::/a:b:c\n".into(), "/a:b:c".into()),
    ];
    for (text, expected) in cases {
        assert_eq!(path(&text).as_deref(), Some(&*expected), "{text}");
    }
    assert_eq!(path(""), None);
    assert_eq!(path("rubbish\n::\n0"), Some("/".into()));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read(text in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = path_of_process(&text);
        let _ = hierarchies(&text);
    }
}
