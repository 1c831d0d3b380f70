//! What a value is compared with.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::syntax::{Sign, Written};

/// Kind of a key's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Text; `*` stands for any characters.
    Text,
    /// Address: the same, and prefixes.
    Address,
    /// Number.
    Number(Unit),
}

/// Unit of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// None.
    None,
    /// Bytes: `10MB`, `10MiB`.
    Bytes,
    /// Bits per second: `1Mbit`.
    Rate,
    /// Nanoseconds: `10ms`.
    Time,
    /// Nanoseconds, or with a unit: `10ms`.
    Nanoseconds,
}

impl Unit {
    /// The unit of a field.
    pub fn of_field(unit: &str) -> Self {
        match unit {
            "bytes" => Self::Bytes,
            "bit/s" => Self::Rate,
            "ns" => Self::Nanoseconds,
            _ => Self::None,
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::None => "a whole number",
            Self::Bytes => "a number of bytes like 500, 10MB or 10MiB",
            Self::Rate => "a rate like 500kbit, 1Mbit or 2.5Gbit",
            Self::Time => "a time like 500us, 10ms, 2s or 5m",
            Self::Nanoseconds => "a time like 10ms, or a number of nanoseconds",
        }
    }

    /// What a word behind a number multiplies it with.
    fn factor(self, word: &str) -> Option<f64> {
        if matches!(self, Self::Time | Self::Nanoseconds) {
            return Some(match word {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" | "sec" => 1e9,
                "m" | "min" => 60e9,
                "h" => 3_600e9,
                "d" => 86_400e9,
                "" if self == Self::Nanoseconds => 1.0,
                _ => return None,
            });
        }
        let word = match self {
            Self::Rate => {
                let word = word
                    .strip_suffix("/s")
                    .or(word.strip_suffix("ps"))
                    .unwrap_or(word);
                word.strip_suffix("bit")
                    .or(word.strip_suffix('b'))
                    .unwrap_or(word)
            }
            Self::Bytes => word.strip_suffix('B').unwrap_or(word),
            _ => word,
        };
        Some(match (self, word) {
            (_, "") => 1.0,
            (Self::None, _) => return None,
            (_, "k" | "K") => 1e3,
            (_, "M") => 1e6,
            (_, "G") => 1e9,
            (_, "T") => 1e12,
            (_, "Ki" | "ki") => 1_024.0,
            (_, "Mi") => 1_048_576.0,
            (_, "Gi") => 1_073_741_824.0,
            (_, "Ti") => 1_099_511_627_776.0,
            _ => return None,
        })
    }

    fn number(self, text: &str) -> Option<f64> {
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, word) = text.split_at(end);
        if self == Self::None && number.contains('.') {
            return None;
        }
        let number: f64 = number.parse().ok()?;
        Some(number * self.factor(word)?)
    }
}

/// What a value is compared with.
#[derive(Clone, PartialEq, Debug)]
enum Operand {
    /// Nothing: the value must be missing.
    Missing,
    Exact(String),
    /// Parts between any characters.
    Pattern(String),
    Prefix(IpNet),
    Ip(IpAddr),
    Range(f64, f64),
}

/// A comparison of values.
#[derive(Clone, PartialEq, Debug)]
pub struct Test {
    sign: Sign,
    operands: Vec<Operand>,
}

/// Whether a text is of a form in which `*` stands for any characters.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

impl Test {
    /// The comparison with values as they are written.
    ///
    /// # Errors
    ///
    /// The value that is wrong, and what to write.
    pub fn new(kind: Kind, sign: Sign, values: &[Written]) -> Result<Self, (Written, String)> {
        let mut operands = Vec::with_capacity(values.len());
        for value in values {
            let wrong = |what: String| (value.clone(), what);
            if sign != Sign::Is && !matches!(kind, Kind::Number(_)) {
                return Err(wrong(
                    "texts can only be compared with `:`, `=` and `!=`".into(),
                ));
            }
            operands.push(match kind {
                _ if value.text.is_empty() && sign == Sign::Is => Operand::Missing,
                Kind::Number(unit) => Self::number(unit, sign, value).map_err(wrong)?,
                Kind::Text | Kind::Address => {
                    let text = value.text.as_str();
                    match (kind, text.parse::<IpNet>(), text.parse::<IpAddr>()) {
                        (Kind::Address, Ok(net), _) => Operand::Prefix(net),
                        (Kind::Address, _, Ok(ip)) => Operand::Ip(ip),
                        (Kind::Address, ..) if text.contains('/') => {
                            return Err(wrong("not a prefix: write it like 10.0.0.0/8".into()));
                        }
                        _ if text.contains('*') && !value.quoted => Operand::Pattern(text.into()),
                        _ => Operand::Exact(text.into()),
                    }
                }
            });
        }
        Ok(Self { sign, operands })
    }

    fn number(unit: Unit, sign: Sign, value: &Written) -> Result<Operand, String> {
        let text = value.text.as_str();
        if let Some(number) = unit.number(text) {
            return Ok(Operand::Range(number, number));
        }
        if sign == Sign::Is
            && let Some((from, to)) = text.split_once('-')
            && let (Some(from), Some(to)) = (unit.number(from), unit.number(to))
        {
            return match from <= to {
                true => Ok(Operand::Range(from, to)),
                false => Err("the range ends before it begins".into()),
            };
        }
        Err(format!("write {}", unit.example()))
    }

    /// Whether a text is one of the values; an empty one is missing.
    pub fn holds_text(&self, value: &str) -> bool {
        self.operands.iter().any(|operand| match operand {
            Operand::Missing => value.is_empty(),
            Operand::Exact(wanted) => value == wanted,
            Operand::Pattern(pattern) => {
                !value.is_empty() && fits(pattern.as_bytes(), value.as_bytes())
            }
            Operand::Prefix(net) => value.parse::<IpAddr>().is_ok_and(|ip| net.contains(&ip)),
            Operand::Ip(wanted) => value.parse::<IpAddr>().is_ok_and(|ip| ip == *wanted),
            Operand::Range(..) => false,
        })
    }

    /// Whether an address is one of the values.
    pub fn holds_ip(&self, value: IpAddr, text: impl FnOnce() -> bool) -> bool {
        let direct = self.operands.iter().any(|operand| match operand {
            Operand::Prefix(net) => net.contains(&value),
            Operand::Ip(wanted) => *wanted == value,
            _ => false,
        });
        let textual = |o: &Operand| matches!(o, Operand::Exact(_) | Operand::Pattern(_));
        direct || (self.operands.iter().any(textual) && text())
    }

    /// Whether a number is as wanted; none is missing.
    pub fn holds_number(&self, value: Option<f64>) -> bool {
        self.operands.iter().any(|operand| match (operand, value) {
            (Operand::Missing, value) => value.is_none(),
            (Operand::Range(from, to), Some(value)) => match self.sign {
                Sign::Is => (*from..=*to).contains(&value),
                Sign::Less => value < *from,
                Sign::AtMost => value <= *from,
                Sign::Greater => value > *from,
                Sign::AtLeast => value >= *from,
            },
            _ => false,
        })
    }

    /// Whether a value from `least` to `most` may be as wanted.
    pub fn may_hold(&self, least: f64, most: f64) -> bool {
        self.operands.iter().any(|operand| match operand {
            Operand::Range(from, to) => match self.sign {
                Sign::Is => least <= *to && most >= *from,
                Sign::Less => least < *from,
                Sign::AtMost => least <= *from,
                Sign::Greater => most > *from,
                Sign::AtLeast => most >= *from,
            },
            _ => true,
        })
    }

    /// The texts that are wanted, when there are no others.
    pub fn exact(&self) -> Option<Vec<String>> {
        let texts = self.operands.iter().map(|operand| match operand {
            Operand::Exact(text) => Some(text.clone()),
            Operand::Ip(ip) => Some(ip.to_string()),
            _ => None,
        });
        texts.collect()
    }
}
