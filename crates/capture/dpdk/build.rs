//! Compiles the C part, which calls DPDK, and links DPDK's libraries; without the feature nothing.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-changed=src/shim.h");
    println!("cargo:rerun-if-env-changed=SKUA_DPDK");
    #[cfg(feature = "dpdk")]
    dpdk::build()?;
    Ok(())
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::{env, fs, path::PathBuf};

    type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

    /// What of DPDK is called; drivers are loaded when a program starts.
    const LIBRARIES: [&str; 5] = ["eal", "ethdev", "mbuf", "mempool", "ring"];

    pub fn build() -> Result<()> {
        let mut compiler = cc::Build::new();
        compiler.file("src/shim.c");
        // DPDK's headers are older C than warnings are.
        compiler.flag("-std=gnu11").warnings(false);
        if env::var("CARGO_CFG_TARGET_ARCH")? == "x86_64" {
            // The least that DPDK's headers take.
            compiler.flag("-march=corei7");
        }
        match env::var_os("SKUA_DPDK").filter(|prefix| !prefix.is_empty()) {
            Some(prefix) => {
                let prefix = PathBuf::from(prefix);
                for include in includes(&prefix.join("include"))? {
                    compiler.include(include);
                }
                println!(
                    "cargo:rustc-link-search=native={}",
                    prefix.join("lib").display()
                );
            }
            None => {
                let found = pkg_config::Config::new()
                    .cargo_metadata(false)
                    .probe("libdpdk");
                let found = found.map_err(|error| {
                    format!(
                        "no DPDK: {error}\n\
                         packaging/dpdk gets what the build needs: SKUA_DPDK=$(packaging/dpdk)"
                    )
                })?;
                compiler.includes(found.include_paths);
                for path in found.link_paths {
                    println!("cargo:rustc-link-search=native={}", path.display());
                }
            }
        }
        compiler.try_compile("skua_dpdk_shim")?;
        for library in LIBRARIES {
            println!("cargo:rustc-link-lib=dylib=rte_{library}");
        }
        Ok(())
    }

    /// The folders of headers, that of the processor's first.
    fn includes(root: &PathBuf) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in
            fs::read_dir(root).map_err(|e| format!("SKUA_DPDK: {}: {e}", root.display()))?
        {
            let folder = entry?.path().join("dpdk");
            if folder.is_dir() {
                found.push(folder);
            }
        }
        found.push(root.join("dpdk"));
        Ok(found)
    }
}
