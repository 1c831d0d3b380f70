//! Who may steer.

use super::lab::{ALWAYS, Host, JUMPS};
use crate::lab::{Skua, root_tests, skua};

#[test]
fn the_policy_holds_against_everyone() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let forbidden = host.file("forbidden.yaml", "policy: {steer: forbidden}\n");
    let skua = Skua::run(&host.host, &format!("--interface gp0 --config {forbidden}"));
    let file = host.file("detector.yaml", JUMPS);
    let refusal = host.ask(&skua, &["steer", "apply", &file]).unwrap_err();
    assert!(refusal.contains("policy.steer"), "{refusal}");
    assert_eq!(
        host.ask(&skua, &["steer", "list"]).unwrap(),
        "no detectors\n"
    );
    drop(skua);
    let both = format!("policy: {{steer: forbidden}}\nsteer: {{files: [{file}]}}\n");
    let both = host.file("both.yaml", &both);
    let output = skua::output(&host.host, &format!("run --config {both}"));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("policy.steer forbids"), "{text}");
    // Declared and allowed: there from the start.
    let indented = JUMPS.replace('\n', "\n      ");
    let declared = format!("steer:\n  detectors:\n    - {}\n", indented.trim_end());
    let declared = host.file("declared.yaml", &declared);
    let skua = Skua::run(&host.host, &format!("--interface gp0 --config {declared}"));
    let view = host.wait_state(&skua, "active");
    assert_eq!(view["Who"], "the configuration");
}

#[test]
fn who_may_only_read_steers_nothing() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let tokens = host.file("tokens", "");
    let token = |role: &str| {
        let line = format!("token create {role} --role {role} --file {tokens}");
        let output = skua::output(&host.host, &line);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    std::fs::remove_file(&tokens).unwrap();
    let (reader, admin) = (token("read"), token("admin"));
    let config = host.file("config.yaml", &format!("api: {{tokens: {tokens}}}\n"));
    let mut command = skua::command(&host.host);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--interface", "gp0"])
        .args(["--config", &config])
        // The configuration has tokens of its own.
        .env_remove("SKUA_API_TOKENS");
    let skua = Skua::run_command(&host.host, &mut command);
    let file = host.file("detector.yaml", ALWAYS);
    let ask = |host: &Host, token: &str, args: &[&str]| {
        let mut command = skua::command(&host.host);
        command
            .arg("steer")
            .args(args)
            .env("SKUA_ANALYZER", &skua.address)
            .env("SKUA_TOKEN", token);
        let output = command.output().unwrap();
        let told = match output.status.success() {
            true => output.stdout,
            false => output.stderr,
        };
        (output.status.success(), String::from_utf8(told).unwrap())
    };
    let (done, told) = ask(&host, &reader, &["apply", &file]);
    assert!(!done && told.contains("needs the role admin"), "{told}");
    let (done, told) = ask(&host, "skua_nobody", &["list"]);
    assert!(
        !done && told.contains("wrong user, password or token"),
        "{told}"
    );
    let (done, told) = ask(&host, &admin, &["apply", &file]);
    assert!(done, "{told}");
    assert_eq!(host.round(), (1, 19));
    for look in [
        &["list"][..],
        &["show", "jumps"],
        &["watch", "jumps", "--count", "1"],
    ] {
        let (done, told) = ask(&host, &reader, look);
        assert!(done && told.contains("jumps"), "{told}");
    }
    let (done, told) = ask(&host, &reader, &["delete", "jumps"]);
    assert!(!done && told.contains("needs the role admin"), "{told}");
    assert_eq!(host.round(), (0, 20), "it goes on");
    let (done, told) = ask(&host, &admin, &["show", "jumps"]);
    assert!(
        done && told.contains("\"Who\": \"token admin at 127.0.0.1"),
        "{told}"
    );
    assert!(ask(&host, &admin, &["delete", "jumps"]).0);
    assert_eq!(host.round(), (20, 0));
}

#[test]
fn an_agent_steers_its_host_and_an_analyzer_none() {
    if !root_tests() {
        return;
    }
    let mut host = Host::new();
    let mut command = skua::command(&host.host);
    command.args(["analyzer", "--listen", "127.0.0.1:0"]);
    let analyzer = Skua::run_command(&host.host, &mut command);
    let file = host.file("detector.yaml", ALWAYS);
    let refusal = host.ask(&analyzer, &["steer", "apply", &file]).unwrap_err();
    assert!(refusal.contains("at the agent of the host"), "{refusal}");
    let agent = |more: &[&str]| {
        let mut command = skua::command(&host.host);
        command
            .args(["agent", "--listen", "127.0.0.1:0", "--interface", "gp0"])
            .args(["--analyzer", &analyzer.address])
            .args(more);
        Skua::run_command(&host.host, &mut command)
    };
    let forbidden = std::env::temp_dir().join(format!("{}-forbids.yaml", host.host.name));
    std::fs::write(&forbidden, "policy: {steer: forbidden}\n").unwrap();
    let strict = agent(&["--config", forbidden.to_str().unwrap()]);
    let easy = agent(&[]);
    std::fs::remove_file(&forbidden).unwrap();
    let refusal = host.ask(&strict, &["steer", "apply", &file]).unwrap_err();
    assert!(refusal.contains("policy.steer"), "{refusal}");
    host.ask(&easy, &["steer", "apply", &file]).unwrap();
    assert_eq!(host.round(), (1, 19));
    host.ask(&easy, &["steer", "delete", "jumps"]).unwrap();
    assert_eq!(host.round(), (20, 0));
}
