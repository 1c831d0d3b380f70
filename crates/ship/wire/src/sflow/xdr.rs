//! Structures of XDR (RFC 4506) as lists of their fields: the type, how it is read and written, and the tables of
//! `docs/wire.md` come from these.

use skua_record::TcpCounters;

use crate::{DecodeError, reader::Reader};

/// What a field may be.
pub(super) trait Field: Sized {
    /// Bytes on the wire.
    const BYTES: usize;
    fn decode(body: &mut Reader<'_>, what: &'static str) -> Result<Self, DecodeError>;
    fn encode(&self, out: &mut Vec<u8>);
    /// Rows of a field of this meaning in the documentation: the sizes of each row's numbers, and their meaning.
    #[cfg(test)]
    fn rows(meaning: &str) -> Vec<(Vec<usize>, String)> {
        vec![(vec![Self::BYTES], meaning.to_owned())]
    }
}

macro_rules! numbers {
    ($($type:ident)*) => {$(
        impl Field for $type {
            const BYTES: usize = size_of::<Self>();

            #[inline]
            fn decode(body: &mut Reader<'_>, what: &'static str) -> Result<Self, DecodeError> {
                body.$type(what)
            }

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}
numbers! { u8 u32 u64 }

/// In a byte: 2 for yes, 1 for no.
impl Field for bool {
    const BYTES: usize = 1;

    #[inline]
    fn decode(body: &mut Reader<'_>, what: &'static str) -> Result<Self, DecodeError> {
        Ok(body.u8(what)? == 2)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1 + u8::from(*self));
    }
}

impl<T: Field> Field for [T; 2] {
    const BYTES: usize = 2 * T::BYTES;

    #[inline]
    fn decode(body: &mut Reader<'_>, what: &'static str) -> Result<Self, DecodeError> {
        Ok([T::decode(body, what)?, T::decode(body, what)?])
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.encode(out));
    }

    #[cfg(test)]
    fn rows(meaning: &str) -> Vec<(Vec<usize>, String)> {
        vec![(vec![T::BYTES; 2], meaning.to_owned())]
    }
}

impl Field for TcpCounters {
    const BYTES: usize = Self::COUNT * <[u32; 2]>::BYTES;

    #[inline]
    fn decode(body: &mut Reader<'_>, what: &'static str) -> Result<Self, DecodeError> {
        let mut all = Self::default().all();
        for counter in &mut all {
            *counter = Field::decode(body, what)?;
        }
        Ok(Self::of(all))
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.all().iter().for_each(|value| value.encode(out));
    }

    #[cfg(test)]
    fn rows(_: &str) -> Vec<(Vec<usize>, String)> {
        macro_rules! rows {
            ($($field:ident, $name:literal, $skydive:literal, $what:literal;)*) => {
                vec![$((vec![4; 2], concat!(" segments of each ", $what, ", sum").to_owned())),*]
            };
        }
        skua_record::for_each_tcp_counter!(rows)
    }
}

/// A structure: its name, how errors call it, and its fields. Those of our own have a version, what fills three bytes behind it,
/// and perhaps fields that older versions do not have, which are then 0.
macro_rules! structure {
    (
        $(#[doc = $about:literal])+
        $name:ident, $what:literal
        $(, version $version:literal {$(
            $(#[doc = $byte_doc:literal])+
            $byte:ident: $byte_type:ty,
        )*})?
        ;
        {$(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty,
        )*}
        $(since $since:literal {$(
            $(#[doc = $new_doc:literal])+
            $new:ident: $new_type:ty,
        )*})?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($($(#[doc = $byte_doc])+ pub $byte: $byte_type,)*)?
            $($(#[doc = $doc])+ pub $field: $type,)*
            $($($(#[doc = $new_doc])+ pub $new: $new_type,)*)?
        }

        impl $name {
            /// Bytes between the version and the fields that are 0.
            $(const FILL: usize = 3 $(- <$byte_type as $crate::sflow::xdr::Field>::BYTES)*;)?

            #[inline]
            pub(super) fn decode(
                body: &mut $crate::reader::Reader<'_>,
            ) -> Result<Self, $crate::DecodeError> {
                use $crate::sflow::xdr::Field as _;
                $(
                    let head = $crate::sflow::own::version(body, $what)?;
                    let mut head = $crate::reader::Reader::new(&head);
                    $(let $byte = <$byte_type>::decode(&mut head, $what)?;)*
                )?
                // One check of the length for all.
                let mut fields = body.part(0 $(+ <$type>::BYTES)*, $what)?;
                Ok(Self {
                    $($($byte,)*)?
                    $($field: <$type>::decode(&mut fields, $what)?,)*
                    $($($new: <$new_type>::decode(body, $what).unwrap_or_default(),)*)?
                })
            }

            #[inline]
            pub(super) fn encode(&self, out: &mut Vec<u8>) {
                use $crate::sflow::xdr::Field as _;
                $(
                    out.push($version);
                    $(self.$byte.encode(out);)*
                    out.extend_from_slice(&[0; Self::FILL]);
                )?
                $(self.$field.encode(out);)*
                $($(self.$new.encode(out);)*)?
            }
        }

        #[cfg(test)]
        impl $crate::sflow::xdr::Documented for $name {
            fn documentation() -> String {
                use $crate::sflow::xdr::Field;
                let mut rows = Vec::new();
                $(
                    rows.push((vec![1], concat!(" version, ", $version).to_owned()));
                    $(rows.extend(<$byte_type as Field>::rows(concat!($($byte_doc),+)));)*
                    if Self::FILL > 0 {
                        rows.push((vec![Self::FILL], " 0".to_owned()));
                    }
                )?
                $(rows.extend(<$type as Field>::rows(concat!($($doc),+)));)*
                $($(rows.extend(<$new_type as Field>::rows(
                    concat!(" since version ", $since, ":", $($new_doc),+),
                ));)*)?
                $crate::sflow::xdr::table(&rows)
            }
        }
    };
}
pub(super) use structure;

/// Structures in the documentation.
#[cfg(test)]
pub(super) trait Documented {
    /// The table in `docs/wire.md`.
    fn documentation() -> String;
}

/// Rows of the documentation with their offsets.
#[cfg(test)]
pub(super) fn table(rows: &[(Vec<usize>, String)]) -> String {
    let mut text = String::from("| offset | bytes | field |\n|---|---|---|\n");
    let mut offset = 0;
    for (sizes, meaning) in rows {
        let bytes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
        let meaning = meaning.trim();
        text += &format!("| {offset} | {} | {meaning} |\n", bytes.join(" + "));
        offset += sizes.iter().sum::<usize>();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Documented as _;
    use crate::reader::Reader;

    structure! {
        /// Two numbers.
        Old, "a fixture", version 1 {
            /// whether
            yes: bool,
        };
        {
            /// of each side
            pair: [u32; 2],
        }
    }

    structure! {
        /// Three.
        New, "a fixture", version 2 {
            /// whether
            yes: bool,
        };
        {
            /// of each side
            pair: [u32; 2],
        }
        since 2 {
            /// the third
            third: u64,
        }
    }

    #[test]
    fn a_new_field_is_written_read_and_documented_and_older_versions_are_read() {
        let (yes, pair) = (true, [3, 4]);
        let (old, new) = (
            Old { yes, pair },
            New {
                yes,
                pair,
                third: 5,
            },
        );
        let [mut of_old, mut of_new] = [Vec::new(), Vec::new()];
        old.encode(&mut of_old);
        new.encode(&mut of_new);
        assert_eq!(of_old, [1, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4]);
        assert_eq!((of_new[0], &of_new[1..12]), (2, &of_old[1..]));
        assert_eq!(of_new[12..], 5u64.to_be_bytes());
        assert_eq!(New::decode(&mut Reader::new(&of_new)), Ok(new));
        let without = New { third: 0, ..new };
        assert_eq!(New::decode(&mut Reader::new(&of_old)), Ok(without));
        assert_eq!(Old::decode(&mut Reader::new(&of_new)), Ok(old));
        assert!(New::decode(&mut Reader::new(&of_old[..11])).is_err());
        let table = Old::documentation().replace("version, 1", "version, 2");
        assert!(
            table.ends_with("| 1 | 1 | whether |\n| 2 | 2 | 0 |\n| 4 | 4 + 4 | of each side |\n")
        );
        let added = "| 12 | 8 | since version 2: the third |\n";
        assert_eq!(New::documentation(), table + added);
    }
}
