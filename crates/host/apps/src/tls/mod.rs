//! What a client says first in TLS (RFC 8446 section 4.1.2, RFC 5246 section 7.4.1.2): the ClientHello.

mod handshake;
mod hello;

pub use handshake::Handshake;
pub use hello::ClientHello;
