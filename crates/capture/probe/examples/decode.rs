//! Receives sFlow and decodes all of it, down to the headers of sampled packets, and nothing more: `decode
//! ADDRESS:PORT`. Prints how many samples there were when nothing comes for a second. For `make bench-collector`.

use std::hint::black_box;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skua_packet::{Frame, LinkType, Options};
use skua_probe::receive::{ReceiveBuffers, Socket};
use skua_wire::sflow::{self, Record, Sample};

fn decode(bytes: &[u8]) -> u64 {
    let Ok(datagram) = sflow::decode(bytes) else {
        return 0;
    };
    let mut count = 0;
    for sample in datagram.samples().flatten() {
        let Sample::Flow(sample) = sample else {
            continue;
        };
        count += 1;
        for record in sample.records().flatten() {
            if let Record::RawHeader(raw) = &record {
                let frame = Frame {
                    data: raw.header,
                    wire_len: raw.wire_len(),
                    link: LinkType::Ethernet,
                    stripped_vlan: None,
                    segments: 1,
                };
                let _ = black_box(skua_packet::decode(&frame, Options::default()));
            }
            black_box(record);
        }
    }
    count
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("decode ADDRESS:PORT")?;
    let socket = Socket::bind(address.parse()?, 32 << 20)?;
    let mut buffers = ReceiveBuffers::default();
    let (mut samples, mut said) = (0, 0);
    loop {
        let timeout = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&socket, PollFlags::IN)];
        if poll(&mut fds, Some(&timeout))? == 0 && samples != said {
            println!("{samples}");
            said = samples;
        }
        while socket.receive_many(&mut buffers, |bytes, _| samples += decode(bytes))? > 0 {}
    }
}
