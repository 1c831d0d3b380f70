//! Where the types of this kernel (BTF) are, by which programs find its fields.

use std::path::{Path, PathBuf};

use libbpf_rs::btf::{Btf, types};

use crate::KernelError;

const OWN: &str = "/sys/kernel/btf/vmlinux";

/// Where the types come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelTypes {
    /// The kernel has its own.
    Kernel,
    /// A file, for a kernel that was built without.
    File(PathBuf),
    /// There are none: only programs that read nothing of the kernel's own can be loaded.
    Missing,
}

impl KernelTypes {
    /// The file named (`--btf`, `agent.btf`), else the kernel's own, else the first that a package
    /// of types or of debug information for the running kernel has put in its usual place.
    ///
    /// # Errors
    /// When a file is named that does not have the types of a kernel's sockets.
    pub fn find(named: Option<&Path>) -> Result<Self, KernelError> {
        if let Some(path) = named {
            return match check(path) {
                Ok(()) => Ok(Self::File(path.to_owned())),
                Err(reason) => Err(KernelError::Types {
                    path: path.to_owned(),
                    reason,
                }),
            };
        }
        if Path::new(OWN).exists() {
            return Ok(Self::Kernel);
        }
        let found = candidates(Path::new("/"), &Release::running())
            .into_iter()
            .find(|path| match check(path) {
                Ok(()) => true,
                Err(reason) => {
                    if path.exists() {
                        tracing::warn!(path = %path.display(), reason, "no types of a kernel");
                    }
                    false
                }
            });
        Ok(found.map_or(Self::Missing, Self::File))
    }

    /// The file for libbpf; none: libbpf reads the kernel's own.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Kernel | Self::Missing => None,
        }
    }

    /// In words, for `skua doctor`.
    pub fn describe(&self) -> String {
        match self {
            Self::Kernel => format!("the kernel's own ({OWN})"),
            Self::File(path) => path.display().to_string(),
            Self::Missing => "none: this kernel was built without; make them from its headers \
                 (packaging/btf-from-headers) or name a file by --btf"
                .into(),
        }
    }
}

/// What names a kernel.
struct Release {
    /// As `uname -r` prints it.
    kernel: String,
    /// As `uname -m` prints it.
    machine: String,
    /// `ID` and `VERSION_ID` of os-release.
    distribution: Option<(String, String)>,
}

impl Release {
    fn running() -> Self {
        let name = rustix::system::uname();
        Self {
            kernel: name.release().to_string_lossy().into_owned(),
            machine: name.machine().to_string_lossy().into_owned(),
            distribution: std::fs::read_to_string("/etc/os-release")
                .ok()
                .and_then(|text| distribution(&text)),
        }
    }
}

fn distribution(os_release: &str) -> Option<(String, String)> {
    let field = |name: &str| {
        os_release
            .lines()
            .filter_map(|l| l.strip_prefix(name)?.strip_prefix('='))
            .map(|v| v.trim().trim_matches(['"', '\'']))
            // It becomes a part of a path.
            .find(|v| !v.is_empty() && !v.starts_with('.') && !v.contains('/'))
            .map(str::to_owned)
    };
    Some((field("ID")?, field("VERSION_ID")?))
}

/// Files that may be there, best first.
fn candidates(root: &Path, release: &Release) -> Vec<PathBuf> {
    let kernel = &release.kernel;
    let mut paths = vec![format!("usr/lib/skua/btf/{kernel}.btf")];
    // As BTFHub's archive is laid out.
    if let Some((id, version)) = &release.distribution {
        let machine = &release.machine;
        paths.push(format!(
            "usr/lib/skua/btf/{id}/{version}/{machine}/{kernel}.btf"
        ));
    }
    // Kernels with debug information, where distributions put them.
    paths.extend([
        format!("boot/vmlinux-{kernel}"),
        format!("lib/modules/{kernel}/vmlinux-{kernel}"),
        format!("lib/modules/{kernel}/build/vmlinux"),
        format!("usr/lib/modules/{kernel}/kernel/vmlinux"),
        format!("usr/lib/debug/boot/vmlinux-{kernel}"),
        format!("usr/lib/debug/boot/vmlinux-{kernel}.debug"),
        format!("usr/lib/debug/lib/modules/{kernel}/vmlinux"),
    ]);
    paths.into_iter().map(|p| root.join(p)).collect()
}

/// Checks that a file has the types that all socket programs need.
fn check(path: &Path) -> Result<(), String> {
    let types = Btf::from_path(path).map_err(|e| e.to_string())?;
    for name in ["sock", "tcp_sock", "task_struct"] {
        if types.type_by_name::<types::Struct<'_>>(name).is_none() {
            return Err(format!("it has no struct {name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> Release {
        Release {
            kernel: "5.4.0-26-generic".into(),
            machine: "x86_64".into(),
            distribution: distribution("NAME=\"Ubuntu\"\nID=ubuntu\nVERSION_ID=\"20.04\"\n"),
        }
    }

    #[test]
    fn packages_places_are_searched_ours_first() {
        let paths = candidates(Path::new("/r"), &release());
        let has = |p: &str| paths.iter().position(|c| c == Path::new(p));
        assert_eq!(has("/r/usr/lib/skua/btf/5.4.0-26-generic.btf"), Some(0));
        assert_eq!(
            has("/r/usr/lib/skua/btf/ubuntu/20.04/x86_64/5.4.0-26-generic.btf"),
            Some(1)
        );
        assert!(has("/r/boot/vmlinux-5.4.0-26-generic").is_some());
        assert!(has("/r/usr/lib/debug/boot/vmlinux-5.4.0-26-generic").is_some());
    }

    #[test]
    fn a_distribution_that_leads_elsewhere_is_no_path() {
        assert_eq!(distribution("ID=../../etc\nVERSION_ID=1\n"), None);
        assert_eq!(distribution("ID=debian\n"), None);
    }

    #[test]
    fn a_file_without_types_is_refused_by_name() {
        let own = std::env::current_exe().expect("this test is a file");
        let error = KernelTypes::find(Some(&own)).expect_err("a test has no kernel types");
        assert!(error.to_string().contains("skua_kernel"), "{error}");
        let missing = Path::new("/nonexistent/types.btf");
        assert!(KernelTypes::find(Some(missing)).is_err());
    }
}
