"""The kernel's own statistics of BPF programs: how often a process's programs ran, and how long."""

import contextlib
import ctypes
import os

SYS_BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
BPF_PROG_GET_FD_BY_ID, BPF_OBJ_GET_INFO_BY_FD, BPF_ENABLE_STATS = 13, 15, 32

libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    """The system call."""
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = libc.syscall(SYS_BPF, command, buffer, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf command {command}")
    return result


@contextlib.contextmanager
def enabled():
    """Statistics on; they cost some tens of ns for each run."""
    fd = bpf(BPF_ENABLE_STATS, bytes(128))
    try:
        yield
    finally:
        os.close(fd)


def name(program_id):
    """A program's name."""
    fd = bpf(BPF_PROG_GET_FD_BY_ID, program_id.to_bytes(4, "little") + bytes(124))
    info = ctypes.create_string_buffer(256)
    try:
        attributes = fd.to_bytes(4, "little") + (256).to_bytes(4, "little")
        bpf(BPF_OBJ_GET_INFO_BY_FD, attributes + ctypes.addressof(info).to_bytes(8, "little") + bytes(112))
    finally:
        os.close(fd)
    return info.raw[64:80].split(b"\0")[0].decode(errors="replace")


def programs(pid):
    """Of each program that the process has open: (runs, ns, runs left out by recursion)."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/fdinfo/{fd}") as f:
            fields = dict(line.split(":", 1) for line in f if ":" in line)
            if "run_cnt" in fields:
                values = tuple(int(fields[k]) for k in ("run_cnt", "run_time_ns", "recursion_misses"))
                found[int(fields["prog_id"])] = values
    return {name(i): values for i, values in found.items()}


def since(before, after):
    """What came between two looks."""
    zero = (0, 0, 0)
    return {p: tuple(a - b for a, b in zip(values, before.get(p, zero))) for p, values in after.items()}
