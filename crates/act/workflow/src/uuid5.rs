//! Identifiers that follow from names (RFC 9562, version 5).

use uuid::Uuid;

/// The identifier of a name; spaces other than the standard ones are those of their own names.
pub fn of(space: &str, name: &str) -> String {
    let space = match space {
        "ns:DNS" => Uuid::NAMESPACE_DNS,
        "ns:URL" => Uuid::NAMESPACE_URL,
        "ns:OID" => Uuid::NAMESPACE_OID,
        "ns:X500" => Uuid::NAMESPACE_X500,
        text => Uuid::parse_str(text)
            .unwrap_or_else(|_| Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes())),
    };
    Uuid::new_v5(&space, name.as_bytes()).to_string()
}
