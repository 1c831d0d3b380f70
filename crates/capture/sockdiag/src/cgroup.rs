//! Ids of control groups: the inode of a group's directory in the mounted hierarchy.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use skua_socket::Task;

/// Where the hierarchies are mounted.
#[derive(Debug, Default)]
pub(crate) struct Hierarchies {
    unified: Option<PathBuf>,
    /// Version 1's `pids` and `memory`.
    first: Vec<(String, PathBuf)>,
}

impl Hierarchies {
    /// Finds them among the mounts; where they cannot be read none is known.
    pub fn find() -> Self {
        std::fs::read_to_string("/proc/self/mountinfo")
            .map(|mounts| Self::parse(&mounts))
            .unwrap_or_default()
    }

    fn parse(mounts: &str) -> Self {
        let mut found = Self::default();
        for line in mounts.lines() {
            // See proc_pid_mountinfo(5): optional fields end with a hyphen.
            let Some((place, kind)) = line.split_once(" - ") else {
                continue;
            };
            let mut place = place.split(' ').skip(3);
            // Only a mount of the root shows the paths as /proc/PID/cgroup says them.
            let (Some("/"), Some(path)) = (place.next(), place.next()) else {
                continue;
            };
            let mut kind = kind.split(' ');
            match (kind.next(), kind.nth(1)) {
                (Some("cgroup2"), _) => found.unified = Some(PathBuf::from(path)),
                (Some("cgroup"), Some(options)) => {
                    for controller in ["pids", "memory"] {
                        if options.split(',').any(|option| option == controller) {
                            found.first.push((controller.into(), PathBuf::from(path)));
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Id of a process's group, by the text of its `/proc/PID/cgroup`; 0 unknown. One of version 1
    /// has [`Task::CGROUP_V1`] set.
    pub fn id(&self, groups: &str) -> u64 {
        let path_of = |controller: &str| {
            groups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let controllers = fields.next()?;
                let path = fields.next()?;
                let wanted = if controller.is_empty() {
                    controllers.is_empty()
                } else {
                    controllers.split(',').any(|name| name == controller)
                };
                wanted.then_some(path)
            })
        };
        let inode = |root: &Path, path: &str| {
            std::fs::metadata(root.join(path.trim_start_matches('/')))
                .map_or(0, |metadata| metadata.ino())
        };
        let unified = path_of("").and_then(|path| Some((self.unified.as_ref()?, path)));
        if let Some((root, path)) = unified.filter(|(_, path)| *path != "/") {
            return inode(root, path);
        }
        for wanted in ["pids", "memory"] {
            let root = self.first.iter().find(|(name, _)| name == wanted);
            if let (Some((_, root)), Some(path)) = (root, path_of(wanted)) {
                return match inode(root, path) {
                    0 => 0,
                    inode => inode | Task::CGROUP_V1,
                };
            }
        }
        unified.map_or(0, |(root, path)| inode(root, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_among_mounts() {
        let found = Hierarchies::parse(
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs ro,mode=755\n\
             31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
             32 30 0:28 /inner /sys/fs/cgroup/other rw - cgroup cgroup rw,pids\n\
             33 30 0:29 / /sys/fs/cgroup/pids rw shared:10 - cgroup cgroup rw,pids\n\
             34 30 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             nonsense\n - \n",
        );
        assert_eq!(
            found.unified.as_deref(),
            Some(Path::new("/sys/fs/cgroup/unified"))
        );
        let names: Vec<&str> = found.first.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["pids", "memory"]);
    }

    #[test]
    fn the_id_is_the_inode_of_the_directory() {
        // Any directory tree will do.
        let found = Hierarchies {
            unified: Some("/".into()),
            first: vec![("pids".into(), "/".into())],
        };
        let inode = |path: &str| std::fs::metadata(path).unwrap().ino();
        assert_eq!(found.id("0::/usr/bin\n"), inode("/usr/bin"));
        assert_eq!(
            found.id("9:pids:/usr/lib\n1:name=systemd:/x\n0::/\n"),
            inode("/usr/lib") | Task::CGROUP_V1,
            "the unified hierarchy only has its root"
        );
        assert_eq!(found.id("0::/\n"), inode("/"));
        assert_eq!(found.id("0::/no/such/group\n"), 0);
        assert_eq!(found.id(""), 0);
    }
}
