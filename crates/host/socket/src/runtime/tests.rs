//! Runtimes that answer, and ones that do not, on sockets of our own.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::*;

mod grpc;

const ID: &str = "2227daf62df6694645fee5df53c1f91271546a9560e8600a525690ae252b7f63";

fn found(runtime: Runtime) -> Found {
    Found {
        runtime,
        id: ID.into(),
        namespace: None,
        user: None,
    }
}

/// A configuration without any socket.
fn nobody() -> RuntimeConfig {
    RuntimeConfig {
        docker: Vec::new(),
        podman: Vec::new(),
        containerd: Vec::new(),
        crio: Vec::new(),
        users: None,
        timeout: Duration::from_secs(30),
        ..RuntimeConfig::default()
    }
}

/// A server on a unix socket, with the number of its connections.
struct Listening {
    folder: TempDir,
    came: Arc<AtomicUsize>,
}

impl Listening {
    fn new(serve: impl Fn(UnixStream) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let came = Arc::new(AtomicUsize::new(0));
        let counter = came.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counter.fetch_add(1, Ordering::SeqCst);
                serve(stream);
            }
        });
        Self { folder, came }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }

    fn docker(&self) -> RuntimeConfig {
        RuntimeConfig {
            docker: vec![self.path()],
            ..nobody()
        }
    }

    fn containerd(&self) -> RuntimeConfig {
        RuntimeConfig {
            containerd: vec![self.path()],
            ..nobody()
        }
    }
}

fn request(stream: &mut UnixStream) -> String {
    let mut bytes = vec![0; 4096];
    let length = stream.read(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// Answers every request with this status and body.
fn docker_api(status: &str, body: &str) -> Listening {
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    Listening::new(move |mut stream| {
        let request = request(&mut stream);
        assert!(request.starts_with(&format!("GET /containers/{ID}/json HTTP/1.1\r\n")));
        let _ = stream.write_all(answer.as_bytes());
    })
}

fn query(config: RuntimeConfig, found: &Found) -> Answer {
    Asker::new(config).unwrap().query(found)
}

#[test]
fn docker_tells_name_image_and_pod() {
    let server = docker_api(
        "200 OK",
        &format!(
            r#"{{"Id":"{ID}","Created":"x","Name":"/web\u001b[2J","Config":{{"Hostname":"h",
            "Env":["SECRET=1"],"Image":"nginx:1.27","Labels":{{"a":"b"}}}},"Mounts":[]}}"#
        ),
    );
    let names = query(server.docker(), &found(Runtime::Docker)).unwrap();
    let expected = Names {
        runtime: Some(Runtime::Docker),
        name: Some(r"web\x1b[2J".into()),
        image: Some("nginx:1.27".into()),
        labels: vec![("a".into(), "b".into())],
        ..Names::default()
    };
    assert_eq!(names, expected);

    let server = docker_api(
        "200 OK",
        &format!(
            r#"{{"Id":"{ID}","Name":"/k8s_app_web-1","Config":{{"Image":"i","Labels":{{
            "io.kubernetes.container.name":"app","io.kubernetes.pod.name":"web-1",
            "io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.uid":"u"}}}}}}"#
        ),
    );
    let names = query(server.docker(), &found(Runtime::Unknown)).unwrap();
    assert_eq!(names.name.as_deref(), Some("app"));
    assert_eq!(names.pod_name.as_deref(), Some("web-1"));
    assert_eq!(names.pod_namespace.as_deref(), Some("shop"));
    assert_eq!(names.pod_uid.as_deref(), Some("u"));
}

#[test]
fn labels_may_be_null() {
    let body = format!(r#"{{"Id":"{ID}","Name":"/x","Config":{{"Image":"","Labels":null}}}}"#);
    let server = docker_api("200 OK", &body);
    let config = RuntimeConfig {
        podman: vec![server.path()],
        ..nobody()
    };
    let names = query(config, &found(Runtime::Podman)).unwrap();
    assert_eq!((names.name.as_deref(), names.image), (Some("x"), None));
}

#[test]
fn an_unknown_container_is_no_failure_of_the_socket() {
    let server = docker_api("404 Not Found", r#"{"message":"no such container"}"#);
    let mut asker = Asker::new(server.docker()).unwrap();
    for _ in 0..5 {
        assert_eq!(asker.query(&found(Runtime::Docker)), Err(Fail::Unknown));
    }
    assert_eq!(server.came(), 5);
}

#[test]
fn rubbish_is_not_believed() {
    let other = ID.replace('2', "3");
    let bodies = [
        "".to_owned(),
        "{".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        format!(r#"{{"Id":"{ID}","Name":7}}"#),
        // Another container than requested.
        format!(r#"{{"Id":"{other}","Name":"/x","Config":{{}}}}"#),
        format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
    ];
    for body in bodies {
        let server = docker_api("200 OK", &body);
        let answer = query(server.docker(), &found(Runtime::Docker));
        assert_eq!(
            answer,
            Err(Fail::Rubbish),
            "{}",
            &body[..body.len().min(80)]
        );
    }
    let server = docker_api("500 Internal Server Error", "oops");
    assert_eq!(
        query(server.docker(), &found(Runtime::Docker)),
        Err(Fail::Rubbish)
    );
}

#[test]
fn who_does_not_speak_http_is_left_alone_after_three_times() {
    for rubbish in [&b"\xff\x00\xfe\n\n\n"[..], b"SSH-2.0-x\r\n", b""] {
        let server = Listening::new(move |mut stream| {
            let _ = stream.write_all(rubbish);
        });
        for (config, runtime) in [
            (server.docker(), Runtime::Docker),
            (server.containerd(), Runtime::Containerd),
        ] {
            let before = server.came();
            let mut asker = Asker::new(config).unwrap();
            for _ in 0..3 {
                assert_eq!(
                    asker.query(&found(runtime)),
                    Err(Fail::Rubbish),
                    "{rubbish:?}"
                );
            }
            for _ in 0..5 {
                assert_eq!(asker.query(&found(runtime)), Err(Fail::Suspended));
            }
            assert_eq!(server.came() - before, 3);
        }
    }
}

#[test]
fn who_hangs_is_left_alone_after_three_times() {
    // Accepts, and then nothing; and does not even accept.
    let kept = std::sync::Mutex::new(Vec::new());
    let silent = Listening::new(move |stream| kept.lock().unwrap().push(stream));
    let folder = tempfile::tempdir().unwrap();
    let deaf = folder.path().join("s");
    let _listener = UnixListener::bind(&deaf).unwrap();
    for path in [silent.path(), deaf] {
        for (runtime, config) in [
            (
                Runtime::Docker,
                RuntimeConfig {
                    docker: vec![path.clone()],
                    ..nobody()
                },
            ),
            (
                Runtime::CriO,
                RuntimeConfig {
                    crio: vec![path.clone()],
                    ..nobody()
                },
            ),
        ] {
            let timeout = Duration::from_millis(20);
            let mut asker = Asker::new(RuntimeConfig { timeout, ..config }).unwrap();
            for _ in 0..3 {
                assert_eq!(asker.query(&found(runtime)), Err(Fail::Timeout));
            }
            assert_eq!(asker.query(&found(runtime)), Err(Fail::Suspended));
        }
    }
    // It may be slower than our patience.
    while silent.came() < 6 {
        thread::yield_now();
    }
    assert_eq!(silent.came(), 6);
}

#[test]
fn who_drips_hangs() {
    let server = Listening::new(|mut stream| {
        request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(b"[").is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let config = RuntimeConfig {
        timeout: Duration::from_millis(100),
        ..server.docker()
    };
    assert_eq!(query(config, &found(Runtime::Docker)), Err(Fail::Timeout));
}

#[test]
fn an_endless_answer_is_cut() {
    const GIGABYTE: usize = 1 << 30;
    let (told, written) = channel();
    let server = Listening::new(move |mut stream| {
        request(&mut stream);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {GIGABYTE}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        let block = [b' '; 65_536];
        let mut sum = 0;
        while sum < GIGABYTE && stream.write_all(&block).is_ok() {
            sum += block.len();
        }
        told.send(sum).unwrap();
    });
    assert_eq!(
        query(server.docker(), &found(Runtime::Docker)),
        Err(Fail::Rubbish)
    );
    let sum = written.recv().unwrap();
    assert!(sum < 2 * server.docker().max_answer, "{sum}");

    // Headers without an end.
    let server = Listening::new(|mut stream| {
        request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(&[b'x'; 65_536]).is_ok() {}
    });
    assert_eq!(
        query(server.docker(), &found(Runtime::Docker)),
        Err(Fail::Rubbish)
    );
}

#[test]
fn without_a_socket_there_is_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [
        file,
        folder.path().join("none"),
        "/".into(),
        "x".repeat(300).into(),
    ] {
        let config = RuntimeConfig {
            docker: vec![path],
            ..nobody()
        };
        let mut asker = Asker::new(config).unwrap();
        for _ in 0..5 {
            assert_eq!(asker.query(&found(Runtime::Docker)), Err(Fail::Unreachable));
        }
    }
    assert!(!Lookups::new(nobody()).has_runtime(&found(Runtime::Docker)));
}

#[test]
fn the_next_socket_is_asked_when_one_fails() {
    let bad = docker_api("404 Not Found", "");
    let good = docker_api(
        "200 OK",
        &format!(r#"{{"Id":"{ID}","Name":"/web","Config":{{}}}}"#),
    );
    let config = RuntimeConfig {
        docker: vec![bad.folder.path().join("none"), bad.path(), good.path()],
        ..nobody()
    };
    let names = query(config, &found(Runtime::Docker)).unwrap();
    assert_eq!(names.name.as_deref(), Some("web"));
    assert_eq!(bad.came(), 1);
}

#[test]
fn a_users_runtime_tells_about_that_users_containers_only() {
    let sockets = |user, runtime| {
        let config = RuntimeConfig::default();
        let found = Found {
            user,
            ..found(runtime)
        };
        asker::sockets(&config, &found)
            .into_iter()
            .map(|socket| socket.path.display().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(sockets(None, Runtime::Docker), ["/run/docker.sock"]);
    assert_eq!(sockets(Some(0), Runtime::Docker), ["/run/docker.sock"]);
    assert_eq!(
        sockets(Some(7), Runtime::Docker),
        ["/run/user/7/docker.sock"]
    );
    assert_eq!(
        sockets(Some(7), Runtime::Podman),
        ["/run/user/7/podman/podman.sock"]
    );
    assert_eq!(sockets(Some(7), Runtime::Containerd).len(), 0);
    assert_eq!(sockets(None, Runtime::Unknown).len(), 5);
    assert_eq!(sockets(None, Runtime::Lxc).len(), 0);
}

#[test]
fn a_socket_of_another_user_is_not_believed() {
    let server = docker_api(
        "200 OK",
        &format!(r#"{{"Id":"{ID}","Name":"/web","Config":{{}}}}"#),
    );
    let users = tempfile::tempdir().unwrap();
    let me = rustix::process::geteuid().as_raw();
    // User 0 counts as the host.
    let other = if me == 7 { 8 } else { 7 };
    let folder = users.path().join(other.to_string());
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(server.path(), folder.join("docker.sock")).unwrap();
    let config = RuntimeConfig {
        users: Some(users.path().into()),
        ..nobody()
    };
    let found = Found {
        user: Some(other),
        ..found(Runtime::Docker)
    };
    assert_eq!(query(config, &found), Err(Fail::Unreachable));
}

/// Waits for the next answer.
fn wait(lookups: &mut Lookups) -> (Found, Answer) {
    loop {
        if let Some(answer) = lookups.answer() {
            return answer;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn questions_wait_in_a_bounded_queue_and_are_counted() {
    let server = docker_api(
        "200 OK",
        &format!(r#"{{"Id":"{ID}","Name":"/web","Config":{{}}}}"#),
    );
    let config = RuntimeConfig {
        max_waiting: 2,
        ..server.docker()
    };
    let mut lookups = Lookups::new(config);
    let found = found(Runtime::Docker);
    assert!(lookups.request(&found) && lookups.request(&found));
    assert!(!lookups.request(&found));
    for _ in 0..2 {
        assert_eq!(wait(&mut lookups).1.unwrap().name.as_deref(), Some("web"));
    }
    assert!(lookups.request(&found));
    wait(&mut lookups).1.unwrap();
    let counters = lookups.counters();
    assert_eq!((counters.answered, counters.queue_full), (3, 1));
    assert!(lookups.answer().is_none());
}

fn labels(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect()
}
