//! What this process uses, under the names that all programs have in Prometheus, and which program it is.

use std::fs;

use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use crate::metrics::Exposition;

crate::metrics! { "The process"
    BUILD gauge "skua_build_info" ["version", "architecture"] "Always 1; the labels say which program this is.";
    CPU counter "process_cpu_seconds_total" [] "CPU time of this process, in user space and in the kernel.";
    START gauge "process_start_time_seconds" [] "When this process was started, since the Unix epoch.";
    RESIDENT gauge "process_resident_memory_bytes" [] "Memory of this process that is in RAM.";
    VIRTUAL gauge "process_virtual_memory_bytes" [] "Address space of this process.";
    THREADS gauge "process_threads" [] "Threads of this process.";
    OPEN_FDS gauge "process_open_fds" [] "File descriptors that this process has open.";
    MAX_FDS gauge "process_max_fds" [] "File descriptors that this process may have open.";
}

/// Fields of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stat {
    /// utime and stime, in ticks.
    cpu: u64,
    threads: u64,
    /// Ticks since the system was started.
    start: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name is in parentheses and may have any characters.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first of these is the third in the manual.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu: number(14)? + number(15)?,
            threads: number(20)?,
            start: number(22)?,
            virtual_bytes: number(23)?,
            resident_pages: number(24)?,
        })
    }
}

/// When the system was started, s since the Unix epoch.
fn boot_seconds() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// Writes all of them, but what the kernel does not tell.
pub fn write(out: &mut Exposition) {
    let mut build = out.family(&BUILD);
    build.value([env!("CARGO_PKG_VERSION"), std::env::consts::ARCH], 1_u64);
    let stat = fs::read_to_string("/proc/self/stat").ok();
    if let Some(stat) = stat.and_then(|text| Stat::parse(&text)) {
        let ticks = clock_ticks_per_second() as f64;
        out.single(&CPU, stat.cpu as f64 / ticks);
        if let Some(boot) = boot_seconds() {
            out.single(&START, boot as f64 + stat.start as f64 / ticks);
        }
        out.single(&RESIDENT, stat.resident_pages * page_size() as u64);
        out.single(&VIRTUAL, stat.virtual_bytes);
        out.single(&THREADS, stat.threads);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One is that of the directory itself.
        out.single(&OPEN_FDS, open.count().saturating_sub(1));
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        out.single(&MAX_FDS, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read_whatever_the_name_is() {
        let text = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23";
        let stat = Stat::parse(text).unwrap();
        let expected = Stat {
            cpu: 11 + 12,
            threads: 17,
            start: 19,
            virtual_bytes: 20,
            resident_pages: 21,
        };
        assert_eq!(stat, expected);
        assert_eq!(Stat::parse("7 (a"), None);
        assert_eq!(Stat::parse("7 (a) S 1 2"), None);
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut out = Exposition::default();
        write(&mut out);
        let text = out.into_text();
        let of = |name: &str| -> f64 {
            let line = text
                .lines()
                .find(|line| line.starts_with(&format!("{name} ")));
            let line = line.unwrap_or_else(|| panic!("{name}: {text}"));
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        for metric in METRICS
            .metrics
            .iter()
            .filter(|metric| metric.labels.is_empty())
        {
            assert!(of(metric.name) >= 0.0);
        }
        assert!(of("process_virtual_memory_bytes") > of("process_resident_memory_bytes"));
        assert!(of("process_resident_memory_bytes") > 100_000.0);
        let started = of("process_start_time_seconds");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let age = now.unwrap().as_secs_f64() - started;
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!(of("process_open_fds") >= 3.0 && of("process_max_fds") >= of("process_open_fds"));
        assert!(text.contains("skua_build_info{version=\""));
    }
}
