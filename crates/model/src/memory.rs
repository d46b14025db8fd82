//! How much memory there is, so that too large a model is refused and not begun.

/// Bytes of physical memory, and how much of it a new program could use without swapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    pub available: u64,
}

/// Reads `/proc/meminfo`, lowered by the limit of a control group; `None` where there is no such file.
pub fn memory() -> Option<Memory> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let mut memory = parse(&text)?;
    if let Some((limit, used)) = control_group() {
        memory.total = memory.total.min(limit);
        memory.available = memory.available.min(limit.saturating_sub(used));
    }
    Some(memory)
}

/// Bytes that can be allocated without pushing others out, or `None` where the system does not say.
pub(crate) fn available() -> Option<u64> {
    memory().map(|memory| memory.available)
}

fn parse(meminfo: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kilobytes.checked_mul(1024)
    };
    Some(Memory { total: field("MemTotal:")?, available: field("MemAvailable:")? })
}

/// The memory limit and use of the control group, where one is set.
fn control_group() -> Option<(u64, u64)> {
    let read = |name: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok();
    read("memory.max").zip(read("memory.current"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_count_are_read() {
        let text = "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:   12000 kB\n";
        assert_eq!(parse(text), Some(Memory { total: 16_384_000_000, available: 12_288_000 }));
        assert_eq!(parse("MemTotal: 5 kB\n"), None);
        assert_eq!(parse("MemTotal: x kB"), None);
    }
}
