//! Lakes in real servers of S3 and HDFS, which `tests/lake/store` starts. `make test-lake` runs this: the key for S3 has to be
//! in the environment.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use super::*;
use crate::Retention;

/// Longer than any server needs to start, or a client to give up.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server with a folder of its own; dropping it removes both.
struct Server {
    kind: &'static str,
    port: u16,
    folder: PathBuf,
    mounted: bool,
    location: Location,
}

fn script(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/lake/store");
    let output = Command::new(script)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "store {arguments:?}");
    String::from_utf8(output.stdout).unwrap().trim().into()
}

impl Server {
    /// Starts a server; `room` limits its storage, in the syntax of mount.
    fn start(kind: &'static str, port: u16, room: Option<&str>) -> Self {
        let name = format!("skua-lake-{}-{kind}", std::process::id());
        let mut server = Self {
            kind,
            port,
            folder: std::env::temp_dir().join(name),
            mounted: false,
            location: "unknown".parse().unwrap(),
        };
        let data = server.data();
        std::fs::create_dir_all(&data).unwrap();
        if let Some(room) = room {
            let options = format!("size={room}");
            let mount = Command::new("mount")
                .args(["-t", "tmpfs", "-o", &options, "skua-lake"])
                .arg(&data)
                .status();
            assert!(mount.unwrap().success(), "needs root to mount a tmpfs");
            server.mounted = true;
        }
        server.again();
        server
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn again(&mut self) {
        let (folder, port) = (self.folder.to_str().unwrap(), self.port.to_string());
        let place = script(&[self.kind, "start", folder, &port]);
        self.location = place.parse().unwrap();
    }

    fn kill(&self) {
        script(&[self.kind, "kill", self.folder.to_str().unwrap()]);
    }

    fn writer(&self, memory: usize) -> Writer {
        let config = WriterConfig {
            location: self.location.clone(),
            host: "web-1".into(),
            flush: Duration::from_secs(3_600),
            memory,
        };
        Writer::open(&config, Table::Flows).unwrap()
    }

    fn lake(&self) -> Lake {
        Lake::open(&self.location).unwrap()
    }

    /// Paths of all stored files.
    fn files(&self) -> Vec<String> {
        let items = self.location.open().unwrap().list("flows").unwrap();
        let mut paths: Vec<String> = items.into_iter().map(|item| item.path).collect();
        paths.sort();
        paths
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let folder = self.folder.to_str().unwrap().to_owned();
        self.kill();
        if self.mounted {
            let _ = Command::new("umount").arg(self.data()).status();
        }
        script(&[self.kind, "remove", &folder]);
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "not {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn after(minutes: i64) -> i64 {
    (BEGIN / 1_000) as i64 + minutes * 60_000_000
}

/// Write, query, compact, list, delete; concurrent readers see complete files.
fn whole(server: &Server) {
    let writer = server.writer(64 << 20);
    for part in 0..12 {
        write(&writer, part * 50 + 1..part * 50 + 51, u64::from(part));
    }
    write(&writer, 601..651, 3_600);
    assert_eq!(server.files().len(), 13);
    let lake = server.lake();
    let before = totals(&lake);
    assert_eq!(before.0, 650 * 651 / 2);
    let groups = |lake: &Lake| {
        let question = always().by("service,process,client_address").unwrap();
        lines(&ask(lake, question))
    };
    let (asked, one) = (groups(&lake), always().where_("address=10.0.0.77").unwrap());
    assert!(!ask(&lake, one).groups.is_empty());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut times = 0;
            while !done.load(std::sync::atomic::Ordering::SeqCst) || times == 0 {
                assert_eq!(totals(&lake), before);
                times += 1;
            }
        });
        let compacted = server.lake().compact(Some("web-1"), after(30)).unwrap();
        assert_eq!((compacted.from, compacted.into), (12, 1));
        assert_eq!((compacted.rows, compacted.deleted), (600, 12));
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        reader.join().unwrap();
    });
    assert_eq!((totals(&lake), groups(&lake)), (before, asked));
    let hours: Vec<_> = lake
        .list()
        .unwrap()
        .into_iter()
        .map(|hour| (hour.directory, hour.files, hour.replaced))
        .collect();
    let hour = |hour| format!("flows/date=2026-11-21/hour={hour}");
    assert_eq!(hours, [(hour(22), 1, 0), (hour(23), 1, 0)]);
    let retention = Retention {
        max_age: Duration::from_secs(3_600),
        max_bytes: u64::MAX,
    };
    assert_eq!(lake.expire(&retention, after(120)).unwrap().deleted, 1);
    assert_eq!(lake.list().unwrap()[0].directory, hour(23));
    let all = Retention {
        max_bytes: 0,
        ..retention
    };
    lake.expire(&all, after(120)).unwrap();
    assert_eq!(server.files(), [""; 0]);
}

/// The server is killed while rows are written, and restarted: no stored row is lost, rows without space are
/// counted, and no reader sees an incomplete file.
fn gone_and_back(server: &mut Server) {
    const ROWS: u64 = 6_000;
    let writer = server.writer(600 * 700);
    write(&writer, 1..51, 0);
    let records = |from: u32| -> Vec<_> { (from..from + 50).map(|n| (n, record(n, 0))).collect() };
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for part in 1..60 {
                put(&writer, &records(part * 50 + 1));
                writer.flush(PATIENCE);
            }
        });
        until("some files written", || writer.stats().files > 3);
        server.kill();
        writing.join().unwrap();
    });
    // More than there is memory for.
    for part in 60..120 {
        put(&writer, &records(part * 50 + 1));
    }
    until("failing", || writer.stats().failing.is_some());
    let stats = writer.stats();
    let error = stats.failing.clone().unwrap();
    println!("{}: gone: {error}", server.kind);
    assert!(error.starts_with(&format!("{}://", server.kind)), "{error}");
    assert!(error.len() < 600 && !error.contains('\n'), "{error}");
    let lost = stats.lost.iter().map(|(_, rows)| rows).sum::<u64>();
    assert!(lost > 0, "{stats:?}");
    assert_eq!(stats.rows + stats.waiting + lost, ROWS);
    assert_eq!(stats.lost[0].0, "storage_failed");
    let asked = server.lake().ask(&always()).err().unwrap().to_string();
    println!("{}: asked: {asked}", server.kind);
    server.again();
    until("written again", || writer.flush(PATIENCE));
    let stats = writer.stats();
    assert_eq!(stats.rows + lost, ROWS);
    drop(writer);
    let answer = ask(&server.lake(), always().by("host").unwrap());
    assert_eq!(answer.groups[0].sums.begun, stats.rows);
}

/// Full storage: reported, counted, and written to again when there is space.
fn full(server: &Server) {
    let writer = server.writer(600 * 700);
    write(&writer, 1..51, 0);
    let filler = server.data().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    let begin = Instant::now();
    // Servers reserve some space for a while.
    while writer.stats().failing.is_none() {
        assert!(begin.elapsed() < PATIENCE, "{:?}", writer.stats());
        let _ = std::io::copy(&mut std::io::repeat(1), &mut file);
        let next = 51 + writer.stats().rows as u32;
        put(&writer, &[(next, record(next, 0))]);
        writer.flush(MINUTE);
    }
    // A full datanode drops writers until the namenode knows that it is full.
    until("full", || {
        let error = writer.stats().failing.unwrap_or_default();
        error.contains("InsufficientStorage") || error.contains("could only be written to 0 of")
    });
    let stats = writer.stats();
    let put_in = stats.rows + stats.waiting;
    println!("{}: full: {:?}", server.kind, stats.failing);
    let records: Vec<_> = (10_001..12_001).map(|n| (n, record(n, 0))).collect();
    put(&writer, &records);
    let stats = writer.stats();
    assert_eq!(stats.lost[0].0, "disk_full", "{stats:?}");
    let lost = stats.lost[0].1;
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    until("written again", || writer.flush(PATIENCE));
    let stats = writer.stats();
    assert_eq!(stats.rows + lost, put_in + 2_000, "{stats:?}");
    drop(writer);
    let answer = ask(&server.lake(), always().by("host").unwrap());
    assert_eq!(answer.groups[0].sums.begun, stats.rows);
    let unfinished = |path: &String| path.contains("unfinished");
    assert!(
        !server.files().iter().any(unfinished),
        "{:?}",
        server.files()
    );
}

fn all(kind: &'static str, port: u16) {
    let mut server = Server::start(kind, port, None);
    whole(&server);
    gone_and_back(&mut server);
    drop(server);
    full(&Server::start(kind, port, Some("16m")));
}

#[cfg(feature = "s3")]
#[test]
fn s3() {
    let set = std::env::var("AWS_ENDPOINT").is_ok_and(|place| place == "http://127.0.0.1:15555");
    assert!(set, "`make test-lake ARGS=s3` runs this with what it needs");
    all("s3", 15_555);
}

#[cfg(feature = "hdfs")]
#[test]
fn hdfs() {
    all("hdfs", 19_820);
    let server = Server::start("hdfs", 19_820, None);
    // What a writer left that was killed.
    let left = "flows/date=2026-11-21/hour=22/.web-1-0-0-0.parquet.unfinished";
    let storage = server.location.open().unwrap();
    storage
        .put(left, &bytes::Bytes::from_static(b"half"))
        .unwrap();
    let other = left.replace("web-1", "web-2");
    storage
        .put(&other, &bytes::Bytes::from_static(b"half"))
        .unwrap();
    drop(server.writer(1 << 20));
    assert_eq!(server.files(), [other]);
}
