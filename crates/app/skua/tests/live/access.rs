//! Who may ask, as users of one host find it.

use std::process::Output;

use crate::lab::{Net, Skua, root_tests, skua};

/// A user without rights.
const STRANGER: &str = "65534";

/// A path that is removed when dropped, where strangers get to.
struct TemporaryPath(String);

impl TemporaryPath {
    fn new(name: &str) -> Self {
        Self(format!("/tmp/skua-access-{}-{name}", std::process::id()))
    }
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The command as a user of this host would have it: without the token of the tests.
fn start(net: &Net, socket: &TemporaryPath, what: &str, more: &[(&str, &str)]) -> Skua {
    let mut command = skua::command(net);
    command
        .args(what.split_whitespace())
        .args([
            "--interface",
            "lo",
            "--max-entries",
            "1000",
            "--summary",
            "json",
        ])
        .args(["--listen", "127.0.0.1:0", "--socket", &socket.0])
        .env("SKUA_API_TOKENS", "")
        .envs(more.iter().copied());
    Skua::run_command(net, &mut command)
}

fn ask(net: &Net, user: &str, args: &str) -> Output {
    let mut command = net.command("setpriv");
    command
        .args(["--reuid", user, "--regid", user, "--clear-groups"])
        .arg(skua_testkit::program!())
        .args(args.split_whitespace())
        .env_remove("SKUA_TOKEN")
        .env("SKUA_CONFIG", "/dev/null");
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn root_asks_at_the_socket_and_a_stranger_nowhere() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    for what in ["run", "agent --analyzer 127.0.0.1:1 --host-name far"] {
        let socket = TemporaryPath::new(what.split(' ').next().unwrap());
        let running = start(&net, &socket, what, &[]);
        let (at, tcp) = (format!("unix:{}", socket.0), &running.address);
        let mine = ask(&net, "0", &format!("addresses list --analyzer {at}"));
        assert!(mine.status.success(), "{what}: {}", said(&mine));
        let change = format!("addresses add --exclude 10.9.8.7 --analyzer {at}");
        assert!(ask(&net, "0", &change).status.success(), "{what}");
        for place in [at.as_str(), tcp] {
            for args in [
                "flows",
                "addresses list",
                "addresses clear",
                "capture list",
                "query G.V()",
            ] {
                let theirs = ask(&net, STRANGER, &format!("{args} --analyzer {place}"));
                assert!(!theirs.status.success(), "{what}: {args} at {place}");
                let said = said(&theirs);
                assert!(
                    said.contains("root and the group skua") || said.contains("needs a user"),
                    "{said}"
                );
                assert_eq!(theirs.stdout, b"");
            }
        }
        // Over TCP root is nobody, either, and what is usual is open.
        let mine = ask(&net, "0", &format!("flows --analyzer {tcp}"));
        assert!(said(&mine).contains("needs a user"), "{}", said(&mine));
        let get = |path: &str| net::status(&net, &format!("http://{tcp}{path}"));
        assert_eq!(get("/health"), 200, "{what}");
        assert_eq!(get("/metrics"), 200, "{what}");
        assert_eq!(get("/api/flows"), 401, "{what}");
        running.stop();
    }
}

#[test]
fn others_may_what_the_configuration_gives_them() {
    if !root_tests() {
        return;
    }
    let net = Net::new();
    let socket = TemporaryPath::new("others");
    let running = start(&net, &socket, "run", &[("SKUA_API_OTHERS", "read")]);
    let at = format!("unix:{}", socket.0);
    let theirs = ask(&net, STRANGER, &format!("addresses list --analyzer {at}"));
    assert!(theirs.status.success(), "{}", said(&theirs));
    let change = format!("addresses add --exclude 10.9.8.7 --analyzer {at}");
    let theirs = ask(&net, STRANGER, &change);
    assert!(said(&theirs).contains("role admin"), "{}", said(&theirs));
    // A link has no more rights than who asks for it.
    let link = ask(&net, STRANGER, &format!("console --analyzer {at}"));
    assert!(link.status.success(), "{}", said(&link));
    let link = String::from_utf8(link.stdout).unwrap();
    let (page, code) = link.trim().split_once("/#login=").unwrap();
    let login = || {
        net.inside(|| {
            ureq::post(format!("{page}/login"))
                .content_type("application/json")
                .send(serde_json::json!({ "code": code }).to_string())
        })
    };
    let text = login().unwrap().body_mut().read_to_string().unwrap();
    assert!(text.contains("\"Role\":\"read\""), "{text}");
    assert!(login().is_err(), "a code is good once");
    running.stop();
}

mod net {
    use super::Net;

    pub fn status(net: &Net, url: &str) -> u16 {
        net.inside(|| {
            let agent = ureq::Agent::config_builder()
                .http_status_as_error(false)
                .build()
                .new_agent();
            agent.get(url).call().unwrap().status().as_u16()
        })
    }
}
