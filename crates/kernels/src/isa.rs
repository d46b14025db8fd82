//! The instruction set, chosen once at run time.

use crate::soundness;
use std::fmt;
use std::sync::{Once, OnceLock};

/// A family of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust, on every machine: the reference twin of the others.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL and DQ; VNNI and BF16 are used where present.
    Avx512,
    /// x86-64 with AMX, int8 and bf16, beside AVX-512 with VNNI.
    Amx,
    /// AArch64 with Advanced SIMD; the dot-product extension is used where present.
    Neon,
}

impl Isa {
    /// Every family, whether or not this machine has it.
    pub const ALL: [Isa; 5] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Amx, Isa::Neon];

    /// The name that `ATTEND_ISA` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
            Isa::Neon => "neon",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A family together with the optional instructions found beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Machine {
    pub isa: Isa,
    /// 8-bit dot products in one instruction: AVX-512 VNNI, or tiles under AMX.
    pub vnni: bool,
    /// bf16 dot products in one instruction: AVX-512 BF16, or tiles under AMX.
    pub bf16: bool,
    /// The dot-product extension of AArch64.
    pub dotprod: bool,
}

impl Machine {
    /// This machine limited to one family; `None` where it lacks it.
    pub fn of(isa: Isa) -> Option<Machine> {
        let plain = Machine { isa, vnni: false, bf16: false, dotprod: false };
        match isa {
            Isa::Portable => Some(plain),
            Isa::Avx2 => has_avx2().then_some(plain),
            Isa::Avx512 => has_avx512().then(|| Machine { vnni: has_vnni(), bf16: has_bf16(), ..plain }),
            Isa::Amx => {
                (may_run_amx() && has_avx512() && has_vnni()).then_some(Machine { vnni: true, bf16: true, ..plain })
            }
            Isa::Neon => has_neon().then(|| Machine { dotprod: has_dotprod(), ..plain }),
        }
    }

    /// The best family of this machine.
    fn best() -> Machine {
        // Not what only an emulator runs.
        let amx = Some(Isa::Amx).filter(|_| has_amx());
        amx.into_iter().chain([Isa::Avx512, Isa::Avx2, Isa::Neon]).find_map(Machine::of).unwrap_or(Machine {
            isa: Isa::Portable,
            vnni: false,
            bf16: false,
            dotprod: false,
        })
    }

    /// The best sound machine below this one: of the families of its processor, each with and without its optional
    /// instructions.
    fn next_best(self) -> Machine {
        let plain = |machine: Machine| Machine { vnni: false, bf16: false, dotprod: false, ..machine };
        let portable = Machine { isa: Isa::Portable, ..plain(self) };
        // Without the optional instructions AMX is what AVX-512 is without them.
        let families: &[Isa] = match self.isa {
            Isa::Amx => &[Isa::Avx512, Isa::Avx2],
            Isa::Avx512 => &[Isa::Avx512, Isa::Avx2],
            Isa::Avx2 => &[Isa::Avx2],
            Isa::Neon => &[Isa::Neon],
            Isa::Portable => &[],
        };
        let below = families.iter().filter_map(|&isa| Machine::of(isa)).flat_map(|found| [found, plain(found)]);
        let mut below = below.filter(|below| *below != self);
        below.find(|below| soundness::fault(*below).is_none()).unwrap_or(portable)
    }

    /// Whether weights of block types are multiplied in tiles where rows are many.
    pub(crate) fn int8_tiles(self) -> bool {
        self.isa == Isa::Amx && self.vnni
    }

    /// Whether weights of 16 bits are multiplied in tiles.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn bf16_tiles(self) -> bool {
        self.isa == Isa::Amx && self.bf16
    }

    /// The machine that a value of `ATTEND_ISA` asks for; absent or empty means the best.
    fn named(value: Option<&str>) -> Result<Machine, String> {
        let Some(name) = value.map(str::trim).filter(|name| !name.is_empty()) else {
            return Ok(Machine::best());
        };
        let found = Isa::ALL.into_iter().find(|isa| isa.name().eq_ignore_ascii_case(name));
        let isa = found.ok_or_else(|| {
            format!("ATTEND_ISA={name}: unknown instruction set; known: portable, avx2, avx512, amx, neon")
        })?;
        Machine::of(isa).ok_or_else(|| {
            let have: Vec<&str> = available().into_iter().map(Isa::name).collect();
            format!("ATTEND_ISA={name}: this machine does not have it; it has: {}", have.join(", "))
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.isa.name())?;
        for (found, name) in [(self.vnni, "vnni"), (self.bf16, "bf16"), (self.dotprod, "dotprod")] {
            if found {
                write!(f, "+{name}")?;
            }
        }
        Ok(())
    }
}

fn chosen() -> &'static (Machine, Option<String>) {
    static CHOSEN: OnceLock<(Machine, Option<String>)> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let value = std::env::var_os("ATTEND_ISA");
        let value = value.as_ref().map(|text| text.to_string_lossy());
        match Machine::named(value.as_deref()) {
            Ok(machine) => (machine, None),
            Err(message) => (Machine::best(), Some(message)),
        }
    })
}

/// What stands in for a chosen machine that did not prove itself, and what was wrong.
static REPLACED: OnceLock<(Machine, String)> = OnceLock::new();

/// Chooses the instruction set once: the best that the machine has, or what `ATTEND_ISA` names.
///
/// The choice proves itself on small cases against the portable twin; where it fails, the next best that does not is
/// used, and [`replaced`] says why.
///
/// # Errors
/// A line for the user when the variable names an unknown or absent instruction set.
pub fn choose() -> Result<&'static Machine, String> {
    static PROVEN: Once = Once::new();
    let (machine, problem) = chosen();
    if let Some(problem) = problem {
        return Err(problem.clone());
    }
    PROVEN.call_once(|| {
        if let Some(fault) = soundness::fault(*machine) {
            // `set` is called here only, once.
            let _ = REPLACED.set((machine.next_best(), fault));
        }
    });
    Ok(self::machine())
}

/// What [`choose`] chose; the best of the machine when the variable was bad.
pub fn machine() -> &'static Machine {
    REPLACED.get().map_or(&chosen().0, |(machine, _)| machine)
}

/// Why the machine's best instruction set is not used, where it is not: a kernel that computed something else.
pub fn replaced() -> Option<&'static str> {
    REPLACED.get().map(|(_, fault)| fault.as_str())
}

/// Every family that this machine can run, the portable one first.
pub fn available() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|&isa| Machine::of(isa).is_some()).collect()
}

#[cfg(target_arch = "x86_64")]
use crate::amx::{has_amx, may_run_amx};

#[cfg(not(target_arch = "x86_64"))]
fn has_amx() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn may_run_amx() -> bool {
    false
}

/// True where every named feature is found; false on the architectures that lack it.
macro_rules! has {
    ($name:ident, $arch:literal, $detect:ident, $($feature:tt),+) => {
        fn $name() -> bool {
            #[cfg(target_arch = $arch)]
            let found = true $(&& std::arch::$detect!($feature))+;
            #[cfg(not(target_arch = $arch))]
            let found = false;
            found
        }
    };
}

has!(has_avx2, "x86_64", is_x86_feature_detected, "avx2", "fma", "f16c");
has!(
    has_avx512,
    "x86_64",
    is_x86_feature_detected,
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512dq",
    "avx2",
    "fma",
    "f16c"
);
has!(has_vnni, "x86_64", is_x86_feature_detected, "avx512vnni");
has!(has_bf16, "x86_64", is_x86_feature_detected, "avx512bf16");
has!(has_neon, "aarch64", is_aarch64_feature_detected, "neon");
has!(has_dotprod, "aarch64", is_aarch64_feature_detected, "dotprod");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_and_bad_ones_explained() {
        assert_eq!(Machine::named(None), Ok(Machine::best()));
        assert_eq!(Machine::named(Some(" ")), Ok(Machine::best()));
        assert_eq!(Machine::named(Some("Portable")).map(|machine| machine.isa), Ok(Isa::Portable));
        let unknown = Machine::named(Some("sse9")).unwrap_err();
        assert!(unknown.contains("sse9") && unknown.contains("portable"), "{unknown}");
        for isa in Isa::ALL {
            match Machine::named(Some(isa.name())) {
                Ok(machine) => assert_eq!(machine.isa, isa),
                Err(message) => {
                    assert!(!available().contains(&isa));
                    assert!(message.contains("does not have it"), "{message}");
                }
            }
        }
    }

    #[test]
    fn what_replaces_a_machine_is_below_it() {
        for isa in available() {
            let machine = Machine::of(isa).expect("it is available");
            let next = machine.next_best();
            assert!(next.isa <= machine.isa, "{next} for {machine}");
            assert!(next != machine || isa == Isa::Portable, "{next} for {machine}");
        }
    }

    #[test]
    fn portable_is_always_there() {
        assert_eq!(available().first(), Some(&Isa::Portable));
        assert!(Machine::of(machine().isa).is_some());
    }
}
