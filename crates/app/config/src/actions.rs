//! Settings of what acts on the host.

use skua_control::injection::InjectionLimits;

use crate::section::section;

section! {
    /// Settings of packet injection.
    InjectionSettings {
        /// allow packet injection (`skua injection`)
        enabled: bool = InjectionLimits::default().enabled;
        /// packets per second of an injection at most
        rate: u32 = InjectionLimits::default().rate;
        /// injections at a time
        at_once: usize = InjectionLimits::default().at_once;
        /// packets of an injection at most
        packets: u64 = InjectionLimits::default().packets;
    }
}

section! {
    /// Settings of alerts.
    AlertSettings {
        /// let alerts run commands, with the rights of `skua run`; needs api.users, api.tokens or api.tls.client_ca
        commands: bool = false;
        /// directory below which alerts may write files; empty: none
        directory: String = String::new();
    }
}
