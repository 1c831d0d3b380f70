//! Loads programs into the running kernel and runs them on packets (`BPF_PROG_TEST_RUN`).
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_sys::*;
use skua_filter::Insn;
use skua_filter::insn::*;

/// How often to do something: a tenth in the emulated machines of the kernel matrix.
pub fn rounds(count: u64) -> u64 {
    if std::env::var_os("SKUA_KERNEL_MATRIX").is_some() {
        count / 10
    } else {
        count
    }
}

/// A loaded program.
pub struct Program {
    fd: OwnedFd,
}

/// Words of `struct __sk_buff`.
const SKB_WORDS: usize = 48;

/// The word `priority`, which a test run may set (`mark` only since kernel 5.7).
const SKB_PRIORITY: usize = 8;

impl Program {
    /// Loads the instructions; the panic carries the verifier's words.
    pub fn load(kind: bpf_prog_type, insns: &[Insn]) -> Self {
        let mut log = vec![0_u8; 1 << 20];
        let mut fd = -1;
        // The log only at the second try: it slows loading down, and it may not fit.
        for level in [0, 1] {
            let mut options = bpf_prog_load_opts {
                sz: size_of::<bpf_prog_load_opts>() as _,
                log_level: level,
                log_size: if level == 0 { 0 } else { log.len() as u32 },
                log_buf: if level == 0 {
                    std::ptr::null_mut()
                } else {
                    log.as_mut_ptr().cast()
                },
                ..Default::default()
            };
            // SAFETY: `Insn` has the layout of `struct bpf_insn`; all pointers are to live memory of
            // the sizes given, and the strings end with NUL.
            fd = unsafe {
                bpf_prog_load(
                    kind,
                    c"skua_filter".as_ptr().cast::<c_char>(),
                    c"GPL".as_ptr().cast::<c_char>(),
                    insns.as_ptr().cast(),
                    insns.len() as _,
                    &raw mut options,
                )
            };
            if fd >= 0 {
                break;
            }
        }
        if fd < 0 {
            let error = Error::from_raw_os_error(-fd);
            let log = String::from_utf8_lossy(&log);
            let log = log.trim_end_matches('\0');
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            panic!(
                "program load refused: {error} (root is needed, or SKUA_NO_ROOT_TESTS=1)\n{}",
                tail.join("\n")
            );
        }
        // SAFETY: the kernel just gave this descriptor to us alone.
        Program {
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
        }
    }

    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Instructions that the verifier walked through.
    pub fn verified_instructions(&self) -> u32 {
        let mut info = bpf_prog_info::default();
        let mut length = size_of::<bpf_prog_info>() as u32;
        // SAFETY: both pointers are to live memory, `length` is the first one's size.
        let result = unsafe { bpf_prog_get_info_by_fd(self.fd(), &raw mut info, &raw mut length) };
        assert_eq!(result, 0, "{}", Error::last_os_error());
        info.verified_insns
    }

    /// The program's return value for a packet.
    pub fn run(&self, packet: &[u8]) -> u32 {
        self.test_run(packet, None, 1).0
    }

    /// The same with this tag (TPID and TCI) outside of the frame, for programs that begin with
    /// [`tag_from_priority`].
    pub fn run_tagged(&self, packet: &[u8], (tpid, tci): (u16, u16)) -> u32 {
        let priority = u32::from(tpid.to_be()) << 16 | u32::from(tci);
        self.test_run(packet, Some(priority), 1).0
    }

    /// Mean time of one of `repeat` runs, as the kernel measures it (whole nanoseconds).
    pub fn time(&self, packet: &[u8], repeat: i32) -> Duration {
        self.test_run(packet, None, repeat).1
    }

    fn test_run(&self, packet: &[u8], priority: Option<u32>, repeat: i32) -> (u32, Duration) {
        let mut context = [0_u32; SKB_WORDS];
        context[SKB_PRIORITY] = priority.unwrap_or(0);
        let mut options = bpf_test_run_opts {
            sz: size_of::<bpf_test_run_opts>() as _,
            data_in: packet.as_ptr().cast(),
            data_size_in: packet.len() as u32,
            repeat,
            ..Default::default()
        };
        if priority.is_some() {
            options.ctx_in = context.as_ptr().cast();
            options.ctx_size_in = size_of_val(&context) as u32;
        }
        // SAFETY: all pointers are to live memory of the sizes given.
        let result = unsafe { bpf_prog_test_run_opts(self.fd(), &raw mut options) };
        assert_eq!(result, 0, "test run: {}", Error::from_raw_os_error(-result));
        (
            options.retval,
            Duration::from_nanos(options.duration.into()),
        )
    }
}

/// Instructions before a program for socket buffers that move a VLAN tag out of the frame, as
/// drivers do: with the priority `TPID (network order) << 16 | TCI`, none for priority 0.
pub fn tag_from_priority() -> Vec<Insn> {
    const BPF_SKB_VLAN_PUSH: i32 = 18;
    vec![
        Insn::mov_reg(R6, R1),
        Insn::load(Width::Word, R3, R6, 4 * SKB_PRIORITY as i16),
        Insn::jump64_imm(JumpOp::Eq, R3, 0, 4),
        Insn::mov_reg(R2, R3),
        Insn::alu64_imm(AluOp::Rsh, R2, 16),
        Insn::alu64_imm(AluOp::And, R3, 0xffff),
        Insn::call(BPF_SKB_VLAN_PUSH),
        Insn::mov_reg(R1, R6),
    ]
}
