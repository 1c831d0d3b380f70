//! skua-probe
