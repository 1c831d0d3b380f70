//! The datagram around the samples.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ADDRESS_UNKNOWN, ADDRESS_V4, ADDRESS_V6, Sample, VERSION, sample};
use crate::{DecodeError, Problem, reader::Reader};

/// Header of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Address of the agent; 0.0.0.0 if unknown.
    pub agent: IpAddr,
    /// Distinguishes several streams of one agent.
    pub sub_agent: u32,
    /// Number of the datagram in its stream.
    pub sequence: u32,
    /// Time since the agent started, ms; wraps after 49.7 days.
    pub uptime_ms: u32,
}

/// A datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// The header of the datagram.
    pub header: Header,
    /// Samples that it announces.
    pub count: u32,
    samples: Reader<'a>,
}

impl<'a> Datagram<'a> {
    /// Its samples.
    pub fn samples(&self) -> Samples<'a> {
        Samples {
            left: self.count,
            reader: self.samples,
        }
    }
}

/// Iterates over the samples of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    left: u32,
    reader: Reader<'a>,
}

impl<'a> Iterator for Samples<'a> {
    type Item = Result<Sample<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let framed = self
            .reader
            .u32("a sample's tag")
            .and_then(|tag| Ok((tag, self.reader.opaque("a sample")?)));
        Some(match framed {
            Ok((tag, body)) => sample::decode(tag, body),
            Err(error) => {
                // The start of the next sample is unknown.
                self.left = 0;
                Err(error)
            }
        })
    }
}

/// An address with its type.
pub(super) fn address(reader: &mut Reader<'_>, what: &'static str) -> Result<IpAddr, DecodeError> {
    let before = *reader;
    match reader.u32(what)? {
        ADDRESS_UNKNOWN => Ok(Ipv4Addr::UNSPECIFIED.into()),
        ADDRESS_V4 => Ok(Ipv4Addr::from(*reader.array::<4>(what)?).into()),
        ADDRESS_V6 => Ok(Ipv6Addr::from(*reader.array::<16>(what)?).into()),
        other => Err(before.error(Problem::AddressType(other))),
    }
}

/// Reads the head of a datagram.
///
/// # Errors
///
/// When it is cut off, or of another version.
pub fn decode(datagram: &[u8]) -> Result<Datagram<'_>, DecodeError> {
    let mut reader = Reader::new(datagram);
    let before = reader;
    let version = reader.u32("the version")?;
    if version != VERSION {
        return Err(before.error(Problem::Version {
            protocol: "sFlow",
            version,
        }));
    }
    let agent = address(&mut reader, "the agent's address")?;
    let header = Header {
        agent,
        sub_agent: reader.u32("the sub-agent")?,
        sequence: reader.u32("the sequence number")?,
        uptime_ms: reader.u32("the uptime")?,
    };
    Ok(Datagram {
        header,
        count: reader.u32("the number of samples")?,
        samples: reader,
    })
}
