//! Where the program finds DuckDB's library, in builds that have it: where it was linked, or beside the program.

fn main() {
    println!("cargo::rerun-if-env-changed=DUCKDB_LIB_DIR");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_SQL").is_none() {
        return;
    }
    let linked = std::env::var("DUCKDB_LIB_DIR").into_iter();
    for place in ["$ORIGIN".to_owned()].into_iter().chain(linked) {
        println!("cargo::rustc-link-arg-bins=-Wl,-rpath,{place}");
    }
}
