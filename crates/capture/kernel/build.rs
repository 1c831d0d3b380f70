//! Compiles the kernel programs in `bpf/` with clang into small objects that the crate embeds.

use std::{env, path::PathBuf, process::Command};

/// (object, source below `bpf/`, extra compiler arguments)
const OBJECTS: [(&str, &str, &[&str]); 26] = [
    ("ticks", "ticks/ticks.bpf.c", &[]),
    ("flow_tc", "flow/tc.bpf.c", &[]),
    ("flow_tc_lock", "flow/tc.bpf.c", &["-DSKUA_NO_CMPXCHG"]),
    ("flow_socket", "flow/socket.bpf.c", &[]),
    ("flow_xdp", "flow/xdp.bpf.c", &[]),
    ("flow_tc_packets", "flow/tc.bpf.c", &["-DSKUA_PACKETS"]),
    (
        "flow_tc_lock_packets",
        "flow/tc.bpf.c",
        &["-DSKUA_NO_CMPXCHG", "-DSKUA_PACKETS"],
    ),
    (
        "flow_socket_packets",
        "flow/socket.bpf.c",
        &["-DSKUA_PACKETS"],
    ),
    ("flow_xdp_packets", "flow/xdp.bpf.c", &["-DSKUA_PACKETS"]),
    ("flow_tc_shared", "flow/tc.bpf.c", &["-DSKUA_SHARED"]),
    (
        "flow_tc_shared_packets",
        "flow/tc.bpf.c",
        &["-DSKUA_SHARED", "-DSKUA_PACKETS"],
    ),
    ("flow_tc_tables", "flow/tc.bpf.c", &["-DSKUA_TABLES"]),
    (
        "flow_tc_tables_packets",
        "flow/tc.bpf.c",
        &["-DSKUA_TABLES", "-DSKUA_PACKETS"],
    ),
    ("socket_btf", "socket/btf.bpf.c", &[]),
    ("socket_cgroup", "socket/cgroup.bpf.c", &[]),
    ("socket_accept", "socket/accept.bpf.c", &[]),
    ("socket_paths", "socket/paths.bpf.c", &[]),
    ("socket_paths_perf", "socket/paths.bpf.c", &["-DSKUA_PERF"]),
    (
        "socket_hash_ring",
        "socket/hash.bpf.c",
        &["-DSKUA_NO_CMPXCHG"],
    ),
    (
        "socket_hash_perf",
        "socket/hash.bpf.c",
        &["-DSKUA_NO_CMPXCHG", "-DSKUA_PERF"],
    ),
    ("steer", "steer/steer.bpf.c", &[]),
    ("tap_connect", "tap/connect.bpf.c", &[]),
    ("steer_device", "steer/device.bpf.c", &[]),
    ("tap_source", "tap/source.bpf.c", &[]),
    ("tap_stream", "tap/source.bpf.c", &["-DSKUA_STREAM"]),
    ("tap_monitor", "tap/monitor.bpf.c", &[]),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../../bpf");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    let target = env::var("TARGET")?;
    // libbpf-sys unpacks libbpf's headers and tells where.
    let include = env::var("DEP_BPF_INCLUDE")?;
    // For the test that makes Rust of the headers.
    println!("cargo::rustc-env=BPF_INCLUDE={include}");
    // Where a function's arguments are.
    let arch = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => return Err(format!("kernel programs are not made for {other}").into()),
    };
    // Headers of the target: beside those of the host, or where cross-compilers have them.
    let machine = target.replace("-unknown", "");
    let native = PathBuf::from("/usr/include").join(&machine);
    let headers = if native.join("asm").exists() {
        native
    } else {
        PathBuf::from("/usr").join(machine).join("include")
    };
    println!("cargo:rerun-if-changed={}", root.display());
    println!("cargo:rerun-if-env-changed=CLANG");
    for (object, source, arguments) in OBJECTS {
        let status = Command::new(&clang)
            .args([
                "-O2", "-g", "-mcpu=v3", "-target", "bpf", "-Wall", "-Wextra", "-Werror",
            ])
            .args(["-Wno-unused-parameter", "-Wno-sign-compare"])
            .arg(format!("-I{}", root.join("include").display()))
            .arg(format!("-I{include}"))
            .arg(format!("-I{}", headers.display()))
            .arg(format!("-D__TARGET_ARCH_{arch}"))
            .args(arguments)
            .arg("-c")
            .arg(root.join(source))
            .arg("-o")
            .arg(out.join(format!("{object}.bpf.o")))
            .status()
            .map_err(|e| format!("cannot run {clang}: {e}; install clang 19 or set CLANG"))?;
        if !status.success() {
            return Err(format!("{clang} could not compile bpf/{source}").into());
        }
    }
    Ok(())
}
