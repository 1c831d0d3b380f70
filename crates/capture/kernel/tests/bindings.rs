//! The structs and numbers that programs share with user space are made of the headers in `bpf/`, by bindgen:
//! `src/bindings/` has the result. `UPDATE_BINDINGS=1 cargo test -p skua-kernel --test bindings` makes it anew.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fmt::Write as _, fs, path::Path};

use bindgen::{
    Builder, EnumVariation,
    callbacks::{DeriveTrait, ImplementsTrait, ItemInfo, ItemKind, ParseCallbacks},
};

/// What of a header is made, as patterns of its names.
struct Header {
    /// File of the result.
    name: &'static str,
    /// Below `bpf/`.
    headers: &'static [&'static str],
    types: &'static str,
    numbers: &'static str,
    /// Structs that programs write while user space reads or writes them: their integers are atomics.
    shared: &'static [&'static str],
}

const HEADERS: [Header; 4] = [
    Header {
        name: "flow",
        headers: &["flow/flow.h"],
        types: "flow_(slot|cold|ended|control|settings)|address_key|point_key|packet_head|point_cause",
        numbers: "SLOT_.*|SEEN_.*|SENT_.*|COLD_.*|COUNTED_ANEW|PROBES|ADDRESS.*|KIND_.*|PACKET_.*",
        shared: &[
            "FlowSlot",
            "FlowCold",
            "FlowEnded",
            "FlowControl",
            "FlowCounters",
        ],
    },
    Header {
        name: "socket",
        headers: &["socket/socket.h"],
        types: "socket_(task|tcp|record|settings|rule|opener|end|loss)|pair_(key|sums)|cgroup_made|look|look_control",
        numbers: "STATE_.*|RTT_BUCKETS",
        shared: &[],
    },
    Header {
        name: "steer",
        headers: &["steer/steer.h"],
        types: "steer_(settings|control|device|channel|sample|event|count|action|threshold)",
        numbers: "STEER_.*",
        shared: &["SteerControl"],
    },
    Header {
        name: "tap",
        headers: &["tap/tap.h", "tap/sockets.h"],
        types: "tap_(count|counters|monitor_counters|settings|source|output|monitor|packet|socket|cause|encapsulation|task_kind)",
        numbers: "TAP_.*|ROLE_.*|OUTPUTS|MAX_SOURCES|HOST_.*|FROM_EGRESS",
        shared: &[],
    },
];

/// Names as Rust has them.
#[derive(Debug)]
struct Names;

impl ParseCallbacks for Names {
    fn item_name(&self, item: ItemInfo<'_>) -> Option<String> {
        let is_type = matches!(item.kind, ItemKind::Type);
        let words = item.name.split('_').filter(|_| is_type);
        let capital = words.map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_uppercase() + rest
        });
        let name: String = capital.collect();
        let is_ours = !item.name.starts_with("__") && is_type;
        is_ours.then_some(name)
    }

    /// Of a key only its words are looked at.
    fn blocklisted_type_implements_trait(
        &self,
        _: &str,
        _: DeriveTrait,
    ) -> Option<ImplementsTrait> {
        Some(ImplementsTrait::Yes)
    }
}

/// One header as Rust.
fn generated(header: &Header) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bpf");
    let mut builder = Builder::default();
    for name in header.headers {
        builder = builder.header(root.join(name).to_str().unwrap());
    }
    let text = builder
        // The kernel's programs see the same sizes and alignments.
        .clang_args(["-target", "bpf", "-I", env!("BPF_INCLUDE")])
        .clang_arg(format!(
            "-I/usr/include/{}-linux-gnu",
            std::env::consts::ARCH
        ))
        .allowlist_type(header.types)
        .allowlist_var(header.numbers)
        .allowlist_recursively(true)
        .blocklist_type("flow_key.*")
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_default(true)
        .explicit_padding(true)
        .generate_comments(false)
        .layout_tests(false)
        .disable_header_comment()
        .use_core()
        .parse_callbacks(Box::new(Names))
        .generate()
        .unwrap()
        .to_string();
    assert!(
        !text.contains("__bindgen_padding"),
        "{}: implicit padding:\n{text}",
        header.name
    );
    in_our_words(&text, header)
}

/// Integers by Rust's names, and as atomics where they are shared.
fn in_our_words(text: &str, header: &Header) -> String {
    let mut text = text.to_owned();
    for (from, to) in [
        ("__u8", "u8"),
        ("__be16", "u16"),
        ("__u16", "u16"),
        ("__u32", "u32"),
        ("__u64", "u64"),
        ("__s64", "i64"),
        ("::core::ffi::c_char", "u8"),
        ("::core::ffi::c_uint", "u32"),
        ("::core::ffi::c_ulonglong", "u64"),
        ("usize]", "]"),
        (": FlowKey,", ": [u64; 7],"),
    ] {
        text = text.replace(from, to);
    }
    let (mut out, mut attributes) = (String::new(), String::new());
    let (mut shared, mut plain) = (Vec::new(), Vec::new());
    let mut in_shared = false;
    for line in text.lines().filter(|line| !is_integer(line)) {
        if line.starts_with("#[") {
            attributes = format!("{attributes}{line}\n");
            continue;
        }
        let name = line.strip_prefix("pub struct ");
        if let Some(name) = name.and_then(|rest| rest.strip_suffix(" {")) {
            in_shared = header.shared.contains(&name);
            let list = if in_shared { &mut shared } else { &mut plain };
            list.push(name.to_owned());
            if in_shared {
                attributes = "#[repr(C)]\n".into();
            }
        }
        let line = match in_shared {
            true => with_atomics(line),
            false => line.to_owned(),
        };
        writeln!(out, "{}{line}", std::mem::take(&mut attributes)).unwrap();
        if line == "}" {
            in_shared = false;
            out.push('\n');
        }
    }
    let mut head = format!(
        "//! Made of `bpf/{}` by `tests/bindings.rs`: change those.\n\n",
        header.headers.join("`, `bpf/")
    );
    for width in ["U8", "U16", "U32", "U64"] {
        if out.contains(&format!("Atomic{width}")) {
            head += &format!("use core::sync::atomic::Atomic{width};\n");
        }
    }
    for (name, types) in [("mapping::shared", shared), ("plain::plain", plain)] {
        if !types.is_empty() {
            writeln!(out, "crate::{name}!({});", types.join(", ")).unwrap();
        }
    }
    formatted(&format!("{head}\n{out}"))
}

/// What Rust has names of its own for.
fn is_integer(line: &str) -> bool {
    ["pub type u", "pub type i", "pub type __"]
        .iter()
        .any(|begin| line.starts_with(begin))
}

/// A field whose integers are atomics.
fn with_atomics(line: &str) -> String {
    let mut line = line.to_owned();
    for width in ["u8", "u16", "u32", "u64"] {
        for (before, after) in [(": ", ","), (": [", ";"), (": [[", ";")] {
            line = line.replace(
                &format!("{before}{width}{after}"),
                &format!("{before}Atomic{}{after}", width.to_uppercase()),
            );
        }
    }
    line
}

fn formatted(text: &str) -> String {
    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    rustfmt
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = rustfmt.wait_with_output().unwrap();
    assert!(output.status.success(), "{text}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_shared_with_programs_is_as_the_headers_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bindings");
    for header in &HEADERS {
        let file = folder.join(format!("{}.rs", header.name));
        let fresh = generated(header);
        if std::env::var_os("UPDATE_BINDINGS").is_some() {
            fs::write(&file, &fresh).unwrap();
        }
        let there = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            there == fresh,
            "{} is old: UPDATE_BINDINGS=1 cargo test -p skua-kernel --test bindings",
            file.display()
        );
    }
}
