//! What the operating system says about the machine: memory, and the name of the processor.

use std::path::Path;

/// Bytes of physical memory, and how much of it a new program could use without swapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    pub available: u64,
}

/// Reads `/proc/meminfo`, lowered by the limit of a control group; `None` where there is no such file.
pub fn memory() -> Option<Memory> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let mut memory = parse_meminfo(&text)?;
    if let Some((limit, used)) = cgroup_memory() {
        memory.total = memory.total.min(limit);
        memory.available = memory.available.min(limit.saturating_sub(used));
    }
    Some(memory)
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let kib: u64 = line.get(name.len()..)?.trim().trim_end_matches("kB").trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(Memory { total: field("MemTotal:")?, available: field("MemAvailable:")? })
}

/// The memory limit and use of the control group, where one is set.
fn cgroup_memory() -> Option<(u64, u64)> {
    let read = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let root = "/sys/fs/cgroup";
    read(&format!("{root}/memory.max")).zip(read(&format!("{root}/memory.current")))
}

/// The processor's name as the operating system gives it.
pub fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Logical processors that this process may run on.
pub fn logical_processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// The first program of this name on the search path.
pub fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

#[cfg(unix)]
fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(file: &Path) -> bool {
    file.is_file() || file.with_extension("exe").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text = "MemTotal:       24656788 kB\nMemFree:         100 kB\nMemAvailable:   23111111 kB\n";
        let memory = parse_meminfo(text).expect("both fields are there");
        assert_eq!(memory, Memory { total: 24_656_788 * 1024, available: 23_111_111 * 1024 });
        assert_eq!(parse_meminfo("MemTotal: x kB"), None);
    }
}
