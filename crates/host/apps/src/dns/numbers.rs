//! Numbers of DNS and their names (IANA, "Domain Name System (DNS) Parameters").

use std::borrow::Cow;

macro_rules! types {
    ($($number:literal $name:ident),* $(,)?) => {
        $(
            #[doc = concat!("Type ", stringify!($name), ".")]
            pub const $name: u16 = $number;
        )*

        /// Name of a type, `TYPE1234` when it has none (RFC 3597).
        pub fn kind(number: u16) -> Cow<'static, str> {
            match number {
                $($number => stringify!($name).into(),)*
                255 => "ANY".into(),
                other => format!("TYPE{other}").into(),
            }
        }

        /// Number of a type by its name.
        pub fn kind_number(name: &str) -> Option<u16> {
            $(if name.eq_ignore_ascii_case(stringify!($name)) {
                return Some($number);
            })*
            match name.get(..4) {
                _ if name.eq_ignore_ascii_case("any") => Some(255),
                Some(start) if start.eq_ignore_ascii_case("type") => name[4..].parse().ok(),
                _ => None,
            }
        }
    };
}

types! {
    1 A, 2 NS, 5 CNAME, 6 SOA, 10 NULL, 12 PTR, 13 HINFO, 15 MX, 16 TXT, 17 RP, 18 AFSDB, 24 SIG, 25 KEY, 28 AAAA,
    29 LOC, 33 SRV, 35 NAPTR, 36 KX, 37 CERT, 39 DNAME, 41 OPT, 42 APL, 43 DS, 44 SSHFP, 45 IPSECKEY, 46 RRSIG,
    47 NSEC, 48 DNSKEY, 49 DHCID, 50 NSEC3, 51 NSEC3PARAM, 52 TLSA, 53 SMIMEA, 55 HIP, 59 CDS, 60 CDNSKEY,
    61 OPENPGPKEY, 62 CSYNC, 63 ZONEMD, 64 SVCB, 65 HTTPS, 99 SPF, 108 EUI48, 109 EUI64, 249 TKEY, 250 TSIG, 251 IXFR,
    252 AXFR, 256 URI, 257 CAA,
}

/// Name of a code (RFC 6895 section 2.3), `RCODE1234` when it has none.
pub fn code(number: u16) -> Cow<'static, str> {
    match number {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        6 => "YXDOMAIN",
        7 => "YXRRSET",
        8 => "NXRRSET",
        9 => "NOTAUTH",
        10 => "NOTZONE",
        11 => "DSOTYPENI",
        16 => "BADVERS",
        17 => "BADKEY",
        18 => "BADTIME",
        19 => "BADMODE",
        20 => "BADNAME",
        21 => "BADALG",
        22 => "BADTRUNC",
        23 => "BADCOOKIE",
        other => return format!("RCODE{other}").into(),
    }
    .into()
}

/// Name of a class, none when it is not in use.
pub fn class(number: u16) -> Option<&'static str> {
    Some(match number {
        1 => "IN",
        3 => "CH",
        4 => "HS",
        254 => "NONE",
        255 => "ANY",
        _ => return None,
    })
}

/// Name of an opcode (RFC 6895 section 2.2).
pub fn opcode(number: u8) -> Cow<'static, str> {
    match number {
        0 => "QUERY",
        1 => "IQUERY",
        2 => "STATUS",
        4 => "NOTIFY",
        5 => "UPDATE",
        6 => "DSO",
        other => return format!("OPCODE{other}").into(),
    }
    .into()
}
