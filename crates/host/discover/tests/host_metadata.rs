//! Metadata of the host's node from the configuration and from files. Needs root.
#![allow(clippy::unwrap_used)] // also in helpers, where clippy.toml does not allow it

mod support;

use skua_discover::{DiscoveryConfig, HostFile, HostMetadata};
use skua_testkit::lab::root_tests;
use skua_topology::{Config, SharedGraph, Value};
use std::path::Path;
use support::{Lab, config, nodes};

fn file(name: &str, path: &Path, kind: &str, selector: &str) -> HostFile {
    HostFile {
        path: path.into(),
        kind: kind.into(),
        name: name.into(),
        selector: selector.into(),
    }
}

fn said(json: serde_json::Value, files: Vec<HostFile>) -> Result<HostMetadata, String> {
    HostMetadata::new(json.as_object().unwrap(), files)
}

/// Waits until the host's node has `value` under `key`.
fn until_host_has(lab: &Lab, key: &str, value: impl Into<Value>) {
    let value = value.into();
    lab.until(&format!("{key} {value:?}"), |graph| {
        let mut all = nodes(graph).into_iter();
        let host = all.find(|node| &*node.id == lab.discovery.host_node())?;
        let found = host.lookup(key).map(|found| found.into_owned());
        (found.unwrap_or_default() == value).then_some(())
    });
}

#[test]
fn the_host_has_what_the_configuration_and_files_say() {
    if !root_tests() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("rack.yml"), "location:\n  rack: r7\n").unwrap();
    std::fs::write(path("os"), "NAME=test\n").unwrap();
    let files = || {
        vec![
            file("rack", &path("rack.yml"), "yaml", "location.rack"),
            file("os", &path("os"), "properties", ""),
            file("later", &path("later.json"), "json", "a.b"),
        ]
    };
    let graph = SharedGraph::new(Config::default());
    let start = |host_metadata| {
        let settings = DiscoveryConfig {
            all_netns: false,
            host_metadata,
            ..config()
        };
        Lab::on(graph.clone(), settings)
    };
    let info = serde_json::json!({"info": "a compute node", "team": {"name": "net", "size": 3}});
    let lab = start(said(info, files()).unwrap());
    until_host_has(&lab, "info", "a compute node");
    until_host_has(&lab, "team.size", 3);
    until_host_has(&lab, "Config.rack", "r7");
    until_host_has(&lab, "Config.os.NAME", "test");
    // What is not there is said by its name, and does not keep others away.
    lab.until("an error", |graph| {
        let all = nodes(graph);
        let host = all
            .iter()
            .find(|node| &*node.id == lab.discovery.host_node())?;
        let error = host.lookup("ConfigErrors.later")?.into_owned();
        error.as_str()?.contains("later.json").then_some(())
    });
    // A file that changes, also when it is replaced by another.
    std::fs::write(path("new"), "location:\n  rack: r8\n").unwrap();
    std::fs::rename(path("new"), path("rack.yml")).unwrap();
    std::fs::write(path("later.json"), "{\"a\": {\"b\": [1, 2]}}").unwrap();
    until_host_has(&lab, "Config.rack", "r8");
    let list: Value = [1, 2].map(Value::Int).into_iter().collect();
    until_host_has(&lab, "Config.later", list);
    until_host_has(&lab, "ConfigErrors", Value::Null);
    std::fs::write(path("rack.yml"), "location: [").unwrap();
    until_host_has(&lab, "Config.rack", Value::Null);
    // What was discovered stays.
    until_host_has(&lab, "Name", "lab");
    drop(lab);

    // What a later run no longer says goes.
    let lab = start(said(serde_json::json!({"info": "other"}), Vec::new()).unwrap());
    until_host_has(&lab, "info", "other");
    until_host_has(&lab, "team", Value::Null);
    until_host_has(&lab, "Config", Value::Null);
}

#[test]
fn what_cannot_be_is_refused() {
    let here = Path::new("/etc/hostname");
    let none = || serde_json::json!({});
    let wrong = [
        said(serde_json::json!({"Name": "x"}), vec![]),
        said(serde_json::json!({"Config": 1}), vec![]),
        said(none(), vec![file("", here, "json", "")]),
        said(none(), vec![file("a", here, "xml", "")]),
        said(none(), vec![file("a", Path::new("etc/x"), "json", "")]),
        said(
            none(),
            vec![file("a", here, "json", ""), file("a", here, "json", "b")],
        ),
    ];
    for refused in wrong {
        let error = refused.unwrap_err();
        assert!(
            error.starts_with("metadata") && !error.contains('\n'),
            "{error}"
        );
    }
}
