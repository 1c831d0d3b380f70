//! Puts the page that `web/build` has made into the crate, when it was made from the sources that are
//! there now. Nothing is built here: a build of Rust neither needs Node nor asks a network.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// Files beside `src` that the page is made of; `web/build.mjs` has the same list.
const OWN: [&str; 4] = [
    "build.mjs",
    "package-lock.json",
    "package.json",
    "tsconfig.json",
];

fn main() -> Result<()> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?).join("page.rs");
    let web = here.join("../../../web");
    for path in OWN.iter().chain(&["src", "dist"]) {
        println!("cargo::rerun-if-changed={}", web.join(path).display());
    }
    let page = match page(&web) {
        Ok(page) => page,
        Err(why) => {
            println!("cargo::warning=without the web page: {why:#}; `make build` makes it");
            format!("None;\nconst WHY: &str = {:?};\n", format!("{why:#}"))
        }
    };
    fs::write(out, format!("const PAGE: Option<&[Asset]> = {page}"))?;
    Ok(())
}

/// The files of the page, as Rust.
fn page(web: &Path) -> Result<String> {
    let dist = web.join("dist");
    let built = fs::read_to_string(dist.join("sources")).context("it has not been built")?;
    // A release archive has the page and not what it was made of.
    if web.join("src").exists() {
        anyhow::ensure!(
            built.trim() == digest(web)?,
            "it was built from other sources than those that are there"
        );
    }
    let mut names: Vec<_> = fs::read_dir(&dist)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    let mut rust = String::from("Some(&[\n");
    for file in names {
        let Some(name) = file.strip_suffix(".gz") else {
            continue;
        };
        let path = dist.join(&file).canonicalize()?;
        writeln!(
            rust,
            "    Asset {{ name: {name:?}, gzip: include_bytes!({path:?}) }},"
        )?;
    }
    rust += "]);\nconst WHY: &str = \"\";\n";
    Ok(rust)
}

fn digest(web: &Path) -> Result<String> {
    let mut paths: Vec<String> = OWN.iter().map(|path| (*path).to_owned()).collect();
    files(web, "src", &mut paths)?;
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        let content = fs::read(web.join(&path)).with_context(|| path.clone())?;
        hash.update(format!("{path}\0{}\0", content.len()));
        hash.update(content);
    }
    Ok(hash
        .finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
}

fn files(web: &Path, folder: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(web.join(folder))? {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files(web, &path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}
