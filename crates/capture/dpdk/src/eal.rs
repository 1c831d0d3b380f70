//! The environment abstraction layer: started once, for the whole process.

use std::{
    ffi::CString,
    io,
    sync::{Mutex, OnceLock, PoisonError, mpsc},
    thread,
};

use crate::{Error, sys};

/// The first error that DPDK logged since the last call: consequential errors are less clear.
static COMPLAINT: Mutex<Option<String>> = Mutex::new(None);

/// Log levels of DPDK up to which a line is an error, or a warning (RTE_LOG_ERR, RTE_LOG_WARNING).
const ERROR: u32 = 4;
const WARNING: u32 = 5;

/// Handles a piece of DPDK's log.
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "only DPDK logs"))]
pub(crate) fn logged(level: u32, text: &str) {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match level {
            0..=ERROR => {
                tracing::warn!(target: "dpdk", "{line}");
                let mut first = COMPLAINT.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert_with(|| line.to_owned());
            }
            WARNING => tracing::info!(target: "dpdk", "{line}"),
            _ => tracing::debug!(target: "dpdk", "{line}"),
        }
    }
}

/// Calls DPDK; a failure (a negated error number) is reported in DPDK's own words if it logged any.
pub(crate) fn complaining<T>(call: impl FnOnce() -> Result<T, i32>) -> Result<T, String> {
    let take = || {
        COMPLAINT
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    };
    take();
    call().map_err(|code| {
        let number = io::Error::from_raw_os_error(code.saturating_neg());
        match take() {
            Some(complaint) => format!("{complaint} ({number})"),
            None => number.to_string(),
        }
    })
}

/// Starts DPDK with these arguments, unless it runs already.
pub(crate) fn start(arguments: &[String]) -> Result<(), Error> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    if !sys::BUILT {
        return Err(Error::NotBuilt);
    }
    let started = STARTED.get_or_init(|| begin(arguments));
    started.clone().map_err(Error::Start)
}

/// DPDK binds the thread that starts it to a CPU and calls it its main one from then on: so it gets a
/// thread without other work.
fn begin(arguments: &[String]) -> Result<(), String> {
    let mut all = vec!["skua".to_owned()];
    if !arguments.iter().any(|argument| chooses_cpus(argument)) {
        // One thread on whatever CPU there is, not one bound to each.
        all.extend(["--lcores".to_owned(), format!("0@({})", cpus())]);
    }
    all.extend_from_slice(arguments);
    let all: Result<Vec<CString>, _> = all.into_iter().map(CString::new).collect();
    let all = all.map_err(|_| "an argument has a NUL in it".to_owned())?;
    let (sender, receiver) = mpsc::channel();
    let main = move || {
        let _ = sender.send(complaining(|| sys::start(all)));
        loop {
            thread::park();
        }
    };
    let thread = thread::Builder::new().name("dpdk-main".into());
    thread.spawn(main).map_err(|error| error.to_string())?;
    receiver
        .recv()
        .unwrap_or_else(|_| Err("its thread ended".into()))
}

/// Whether an argument says which CPUs DPDK may have.
fn chooses_cpus(argument: &str) -> bool {
    let long = |name| argument == name || argument.starts_with(&format!("{name}="));
    long("--lcores")
        || ["-l", "-c", "-s", "-S"]
            .iter()
            .any(|short| argument.starts_with(short))
}

/// The CPUs that we may run on, as DPDK lists them.
fn cpus() -> String {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return "0".into();
    };
    let all: Vec<String> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .map(|cpu| cpu.to_string())
        .collect();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_chooses_cpus_is_not_overruled() {
        for argument in ["--lcores=1", "--lcores", "-l", "-l0-3", "-c", "-c3"] {
            assert!(chooses_cpus(argument), "{argument}");
        }
        for argument in ["--legacy-mem", "--no-huge", "-m", "64"] {
            assert!(!chooses_cpus(argument), "{argument}");
        }
        assert!(!cpus().is_empty());
    }

    #[test]
    fn complaints_are_of_the_call() {
        logged(ERROR, "an old one\n");
        assert_eq!(complaining(|| Ok(7)), Ok(7));
        let call = || {
            logged(ERROR, "EAL: no memory\n");
            Err::<(), _>(-12)
        };
        let why = complaining(call).unwrap_err();
        assert!(why.starts_with("EAL: no memory ("), "{why}");
        let why = complaining(|| Err::<(), _>(-19)).unwrap_err();
        assert_eq!(why, io::Error::from_raw_os_error(19).to_string());
    }
}
