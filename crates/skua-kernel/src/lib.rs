//! skua-kernel
