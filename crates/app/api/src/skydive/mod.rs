//! The routes that Skydive has, too, with its names and shapes. All others are our own.

pub mod alerts;
pub mod captures;
pub mod elements;
pub mod info;
pub mod injection;
pub mod pcap;
pub mod topology;
pub mod upload;
pub mod workflows;
