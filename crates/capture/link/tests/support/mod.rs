//! Fresh network namespaces for tests, made with iproute2 and removed when dropped.
#![allow(dead_code)]

use skua_link::{Namespace, Namespaces};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether tests that need root shall run. Without rights they fail later, on purpose: they are
/// only left out when SKUA_NO_ROOT_TESTS=1 says so.
pub fn root_tests() -> bool {
    let wanted = std::env::var_os("SKUA_NO_ROOT_TESTS").is_none_or(|value| value != "1");
    if !wanted {
        eprintln!("left out: SKUA_NO_ROOT_TESTS=1");
    }
    wanted
}

/// A network namespace that lives as long as this value.
pub struct TestNamespace {
    pub name: String,
}

impl TestNamespace {
    /// Makes one; its name starts with `prefix` and is of this process and call only.
    pub fn new(prefix: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "{prefix}{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        run("ip", &["netns", "add", &name]);
        Self { name }
    }

    /// Runs `ip -n NAME ARGS…` with the arguments split at spaces.
    pub fn ip(&self, args: &str) -> String {
        let mut all = vec!["-n", &self.name];
        all.extend(args.split_whitespace());
        run("ip", &all)
    }

    /// Runs a program inside, its arguments split at spaces. `nsenter` leaves /sys as it is.
    pub fn exec(&self, command: &str) -> String {
        let net = format!("--net=/run/netns/{}", self.name);
        let mut all = vec![net.as_str()];
        all.extend(command.split_whitespace());
        run("nsenter", &all)
    }

    /// The same namespace as the library sees it.
    pub fn open(&self) -> Namespace {
        let namespaces = Namespaces::discover(true).unwrap();
        let number = namespaces
            .list()
            .iter()
            .find(|ns| ns.name == self.name)
            .unwrap()
            .number;
        let ns = namespaces.get(number).unwrap();
        Namespace {
            number,
            name: ns.name.clone(),
            id: ns.id,
            file: ns.file.try_clone().unwrap(),
        }
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        // It may be gone already: a test deletes it itself.
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
    }
}

/// Runs a program, fails with its words when it fails, and gives back its standard output.
pub fn run(program: &str, args: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(
        status.success(),
        "{program} {args:?}: {status}: {}",
        String::from_utf8_lossy(&stderr)
    );
    String::from_utf8(stdout).unwrap()
}
