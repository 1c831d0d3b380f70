//! Identifiers and TIDs: the rule is in the crate's documentation.

use std::sync::Arc;
use uuid::Uuid;

/// UUIDv5 of a text, in the name space that Skydive takes.
pub(crate) fn uuid(text: &str) -> Arc<str> {
    let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes());
    let mut buffer = Uuid::encode_buffer();
    Arc::from(&*uuid.hyphenated().encode_lower(&mut buffer))
}

/// TID of what a node owns; `key` is its name, or the path of a namespace.
pub(crate) fn tid(owner: &str, key: &str, kind: &str) -> Arc<str> {
    uuid(&format!("{owner}{key}{kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tids_are_those_of_skydive() {
        // Python: uuid.uuid5(uuid.NAMESPACE_OID, "host1"), then with that + "eth0" + "device".
        let host = uuid("host1");
        assert_eq!(&*host, "1a21f896-ade2-5afd-9969-4d690a305de0");
        assert_eq!(
            &*tid(&host, "eth0", "device"),
            "977e4931-6549-5ef9-a3ab-f7385ef02ad9"
        );
    }
}
