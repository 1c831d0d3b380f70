//! Values as Skydive's clients, written in Go, send and read them.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer, de};
use uuid::Uuid;

/// An identifier: a resource that is not made yet has an empty one.
pub(crate) fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
    match &*String::deserialize(deserializer)? {
        "" => Ok(Uuid::nil()),
        text => Uuid::parse_str(text).map_err(de::Error::custom),
    }
}

/// A value, or null for its default, as Go writes an empty map.
pub(crate) fn or_null<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A time in ms since the Unix epoch, written as text (RFC 3339).
pub(crate) mod time {
    use super::{Deserialize as _, Deserializer, Serializer, Timestamp, de};

    pub(crate) fn serialize<S: Serializer>(ms: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        let time = Timestamp::from_millisecond(*ms).unwrap_or_default();
        serializer.collect_str(&time)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: Timestamp = text.parse().map_err(de::Error::custom)?;
        Ok(time.as_millisecond())
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::json;

    use super::*;

    #[derive(PartialEq, Debug, Serialize, Deserialize)]
    struct Sent {
        #[serde(deserialize_with = "id")]
        id: Uuid,
        #[serde(with = "time")]
        time: i64,
        #[serde(deserialize_with = "or_null")]
        list: Vec<u8>,
    }

    #[test]
    fn what_go_writes_is_read() {
        let sent = json!({"id": "", "time": "2026-11-24T18:15:08.123456789Z", "list": null});
        let read: Sent = serde_json::from_value(sent).unwrap();
        let time = 1_795_544_108_123;
        let known = Sent {
            id: Uuid::nil(),
            time,
            list: Vec::new(),
        };
        assert_eq!(read, known);
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(written["time"], "2026-11-24T18:15:08.123Z");
        assert_eq!(serde_json::from_value::<Sent>(written).unwrap(), known);
        // Go's time that is not set.
        let unset = json!({"id": Uuid::nil(), "time": "0001-01-01T00:00:00Z", "list": [1]});
        assert!(serde_json::from_value::<Sent>(unset).unwrap().time < 0);
        let wrong = json!({"id": "x", "time": "2026-11-24T18:15:08Z", "list": []});
        assert!(serde_json::from_value::<Sent>(wrong).is_err());
    }
}
