//! Bulk over TCP.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
};

use super::Net;

/// Sends `bytes` over one connection from a namespace to another one's address and waits until both
/// sides have closed it.
pub fn bulk(from: &Net, to: &Net, address: &str, bytes: usize) {
    let address: SocketAddr = address.parse().unwrap();
    let listener = to.inside(|| TcpListener::bind(address)).unwrap();
    std::thread::scope(|scope| {
        let received = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 256 << 10];
            let mut sum = 0;
            loop {
                match stream.read(&mut buffer).unwrap() {
                    0 => return sum,
                    length => sum += length,
                }
            }
        });
        let mut stream = from.inside(|| TcpStream::connect(address)).unwrap();
        let block = vec![0x5a; 256 << 10];
        let mut left = bytes;
        while left > 0 {
            let length = left.min(block.len());
            stream.write_all(&block[..length]).unwrap();
            left -= length;
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // The other side's FIN.
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(received.join().unwrap(), bytes);
    });
}
