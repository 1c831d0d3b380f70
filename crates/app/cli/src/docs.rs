//! `docs/records.md` is made from the definitions of the records' fields.

use skua_runtime::groups;

const HEAD: &str = "\
# Records

This page is made from the definitions of the fields in the code: `UPDATE_DOCS=1 cargo test -p skua docs`
writes it anew.

JSON is one object a line, without line breaks inside. `ab.packets` in a table is the field `packets` of
the object `ab`. Fields that do not apply are left out, as the last column says; an object without
fields, too. New fields may come, none of these will change its meaning.

CSV has a column for each field in the order of the table, with `_` for `.` in its name (`ab_packets`);
what does not apply is empty, lists are separated by spaces. The first line has the names.

- [Flow records](#flow-records): `skua flows`, `/api/flows`
- [Sums of flows](#sums-of-flows): `skua flows --by`
- [Socket records](#socket-records): `skua sockets`, `/api/sockets`
- [Services and dependencies](#services-and-dependencies): `skua services`, `/api/services`, `/api/dependencies`
";

#[test]
fn the_documentation_of_records_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/records.md");
    let mut text = HEAD.to_owned();
    for (title, chapter) in [
        ("Flow records", skua_flow::fields::documentation()),
        ("Sums of flows", groups::documentation()),
        ("Socket records", skua_socket::fields::documentation()),
        (
            "Services and dependencies",
            skua_socket::call::documentation(),
        ),
    ] {
        text += &format!("\n## {title}\n\n{chapter}");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == text,
        "docs/records.md is out of date: run `UPDATE_DOCS=1 cargo test -p skua docs`"
    );
}
