//! A socket's storage that the kernel refuses at first, because another program makes or drops the first
//! storage of the same socket at that moment.

use std::{
    net::UdpSocket,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::atomic::{AtomicBool, AtomicI32, Ordering},
};

use skua_kernel::socket::SocketTracerConfig;

use crate::lab::*;

/// A map of somebody else's with storage of sockets.
fn storage_map() -> OwnedFd {
    // SAFETY: the types are loaded before they are used and live until the map holds them; names are
    // constants that end with NUL; the options are whole; the descriptor is new and nobody else's.
    unsafe {
        let types = libbpf_sys::btf__new_empty();
        assert!(!types.is_null());
        let signed = libbpf_sys::BTF_INT_SIGNED as i32;
        let int = libbpf_sys::btf__add_int(types, c"int".as_ptr(), 4, signed);
        assert!(int > 0);
        assert_eq!(libbpf_sys::btf__load_into_kernel(types), 0);
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
            btf_fd: libbpf_sys::btf__fd(types) as u32,
            btf_key_type_id: int as u32,
            btf_value_type_id: int as u32,
            map_flags: libbpf_sys::BPF_F_NO_PREALLOC,
            ..std::mem::zeroed()
        };
        let map = libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_SK_STORAGE,
            c"theirs".as_ptr(),
            4,
            4,
            0,
            &raw const options,
        );
        assert!(map >= 0, "{}", std::io::Error::last_os_error());
        libbpf_sys::btf__free(types);
        OwnedFd::from_raw_fd(map)
    }
}

/// Makes and drops the storage of the socket that `socket` names, until `ended`.
fn make_and_drop(map: &OwnedFd, socket: &AtomicI32, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let descriptor = socket.load(Ordering::Relaxed);
        let (key, value) = (&raw const descriptor, 1i32);
        // Both fail where the socket is closed already.
        // SAFETY: key and value are as large as the map's.
        unsafe {
            let map = map.as_raw_fd();
            libbpf_sys::bpf_map_update_elem(map, key.cast(), (&raw const value).cast(), 0);
            libbpf_sys::bpf_map_delete_elem(map, key.cast());
        }
    }
}

#[test]
fn a_socket_whose_storage_the_kernel_refuses_once_is_not_missed() {
    /// As many until the kernel has refused often enough.
    const MOST: usize = 200_000;
    const ENOUGH: u64 = 200;
    let net = Net::with_ipv6();
    let mut watch = Watch::with(
        &[&net],
        SocketTracerConfig {
            ring_bytes: 64 << 20,
            ..Default::default()
        },
    );
    if watch.tracer.describe().contains("hash table") {
        println!("this kernel keeps what is known in a table");
        return;
    }
    let map = storage_map();
    let (socket, ended) = (AtomicI32::new(-1), AtomicBool::new(false));
    let mut made = 0;
    let mut updates = Vec::new();
    let before = watch.tracer.losses();
    std::thread::scope(|scope| {
        scope.spawn(|| make_and_drop(&map, &socket, &ended));
        while watch.tracer.storage_refusals() < ENOUGH && made < MOST {
            net.inside(|| {
                for _ in 0..500 {
                    let one = UdpSocket::bind("127.0.0.1:0").unwrap();
                    socket.store(one.as_raw_fd(), Ordering::Relaxed);
                    one.connect("127.0.0.1:9").unwrap();
                }
            });
            made += 500;
            watch.read_ended(&mut updates);
        }
        ended.store(true, Ordering::Relaxed);
    });
    let lost = watch.tracer.losses();
    let refused = (lost.table_full - before.table_full) as usize;
    updates.extend(watch.ended(0));
    println!(
        "{made} sockets, storage refused {} times, {refused} sockets got none",
        watch.tracer.storage_refusals()
    );
    assert!(
        watch.tracer.storage_refusals() > 0,
        "the kernel refused none of {made}: this shows nothing"
    );
    assert_eq!(lost.ring_full, before.ring_full);
    assert_eq!(updates.len() + refused, made, "each is seen or counted");
    assert!(
        refused * 4 < watch.tracer.storage_refusals() as usize,
        "asking again never helped"
    );
}
