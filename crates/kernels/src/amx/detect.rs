//! Whether this process may use tiles: the processor must have them, the system must save them, and it must be asked,
//! because the room that they take is made only for processes that want it.

use std::sync::OnceLock;

/// Tiles, and products of int8 and of bf16 in them: bits of `edx` of leaf 7.
const AMX: u32 = 1 << 24 | 1 << 25 | 1 << 22;
/// Shapes and contents of tiles among the states that the system saves.
const SAVED: u64 = 1 << 17 | 1 << 18;

/// Whether the machine has AMX with int8 and bf16, and lets this process use it.
pub(crate) fn has_amx() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| processor_has_it() && system_permits_it())
}

/// Whether kernels in tiles can run: in tests also where an emulator stands in for the instructions.
#[cfg(not(all(test, target_os = "linux")))]
pub(crate) fn may_run_amx() -> bool {
    has_amx()
}

/// As above.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn may_run_amx() -> bool {
    has_amx() || super::emulator::install()
}

fn processor_has_it() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 || __cpuid_count(7, 0).edx & AMX != AMX {
        return false;
    }
    // SAFETY: `OSXSAVE` says that the instruction is there and may be used.
    let saved = unsafe { saved_states() };
    saved & SAVED == SAVED
}

#[target_feature(enable = "xsave")]
fn saved_states() -> u64 {
    // SAFETY: register 0 is there wherever the instruction is.
    unsafe { std::arch::x86_64::_xgetbv(0) }
}

/// Asks the kernel for room for tiles in every thread of this process (Linux 5.16 and later).
#[cfg(target_os = "linux")]
fn system_permits_it() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and changes no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
}

/// Not known to be asked for in this way elsewhere.
#[cfg(not(target_os = "linux"))]
fn system_permits_it() -> bool {
    false
}
