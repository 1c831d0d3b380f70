//! Real sockets.

use skua_link::Namespace;
use skua_sockdiag::SockDiag;
#[test]
fn smoke() {
    let own = Namespace::own().unwrap();
    let t = std::time::Instant::now();
    let mut d = SockDiag::start(std::iter::once(&own)).unwrap();
    eprintln!("start {:?}", t.elapsed());
    for s in d.describe() {
        eprintln!("{s:?}");
    }
    let l = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for round in 0..3 {
        let c = std::net::TcpStream::connect(l.local_addr().unwrap()).unwrap();
        let (a, _) = l.accept().unwrap();
        use std::io::{Read, Write};
        (&c).write_all(&[7; 1000]).unwrap();
        (&a).read(&mut [0; 2000]).unwrap();
        let t = std::time::Instant::now();
        let mut n = 0;
        d.open(&mut |u| {
            n += 1;
            if n < 12 {
                eprintln!("{round} {u:?}")
            }
        });
        eprintln!("look {n} {:?}", t.elapsed());
        drop(c);
        drop(a);
        std::thread::sleep(std::time::Duration::from_millis(50));
        d.ended(&mut |u| eprintln!("ENDED {u:?}"));
    }
}
