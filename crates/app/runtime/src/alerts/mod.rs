//! Alerts: their API and commands.
