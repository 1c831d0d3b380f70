//! Sections of the configuration, with one declaration for each key.
//!
//! A declaration generates the struct with its reader, the default, `skua config --help`, the sample
//! `packaging/skua.yaml`, `docs/configuration.md` and `docs/skua.schema.json`.

/// A key of the configuration.
#[derive(Clone, Debug)]
pub struct Key {
    /// Like `flow.max_entries`.
    pub path: String,
    /// What it means, a sentence without a full stop.
    pub meaning: String,
    /// The flag that overrides it, empty if there is none.
    pub flag: &'static str,
}

impl Key {
    /// The variable that overrides the file.
    pub fn variable(&self) -> String {
        format!("SKUA_{}", self.path.replace('.', "_").to_uppercase())
    }
}

/// A struct with keys.
pub trait Section {
    /// Adds them, with `prefix` before their names.
    fn keys(prefix: &str, keys: &mut Vec<Key>);
}

/// Declares a section: its name, and of each key the meaning, the name, the type and the default. A key without a
/// default is a section itself. `skip` has fields that are not in the file.
///
/// ```ignore
/// section! {
///     /// Ports of DPDK.
///     Dpdk {
///         /// devices of DPDK, a list
///         ports: Vec<String> = Vec::new();
///         /// time between drains
///         #[serde(with = "crate::time")]
///         interval: Duration = Duration::from_secs(10), flag "--interval";
///         limits: Limits;
///     }
/// }
/// ```
macro_rules! section {
    (
        $(#[doc = $doc:literal])+
        $section:ident {
            $(
                $(#[doc = $meaning:literal])*
                $(#[serde($($serde:tt)*)])?
                $name:ident: $type:ty $(= $default:expr)? $(, flag $flag:literal)?;
            )*
        }
        $(skip {
            $($(#[doc = $skip_doc:literal])+ $skipped:ident: $skipped_type:ty;)*
        })?
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $section {
            $(
                $(#[doc = $meaning])*
                $(#[serde($($serde)*)])?
                pub $name: $type,
            )*
            $($($(#[doc = $skip_doc])+ #[serde(skip)] pub $skipped: $skipped_type,)*)?
        }

        impl Default for $section {
            fn default() -> Self {
                Self {
                    $($name: $crate::section::section!(@default $($default)?),)*
                    $($($skipped: Default::default(),)*)?
                }
            }
        }

        impl $crate::section::Section for $section {
            fn keys(prefix: &str, keys: &mut Vec<$crate::section::Key>) {
                $($crate::section::section!(
                    @key prefix, keys, stringify!($name), $type,
                    [$($meaning),*] [$(stringify!($default))?] [$($flag)?]
                );)*
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@key $prefix:ident, $keys:ident, $name:expr, $type:ty, [$($meaning:literal),*] [] []) => {
        <$type as $crate::section::Section>::keys(&format!("{}{}.", $prefix, $name), $keys)
    };
    (@key $prefix:ident, $keys:ident, $name:expr, $type:ty,
        [$($meaning:literal),+] [$default:expr] [$($flag:literal)?]) => {
        $keys.push($crate::section::Key {
            path: format!("{}{}", $prefix, $name),
            meaning: concat!($($meaning),+).trim().to_owned(),
            flag: concat!($($flag)?),
        })
    };
}

pub(crate) use section;
