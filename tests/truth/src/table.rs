//! Reads the tables of `tshark -z conv`.
