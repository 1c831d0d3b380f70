//! Packet injection: its API and commands.
