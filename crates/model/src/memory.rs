//! How much memory there is, so that too large a model is refused and not begun.

/// Bytes that can be allocated without pushing others out, or `None` where the system does not say.
pub(crate) fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    parse(&text)
}

fn parse(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_line_that_counts_is_read() {
        let text = "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:   12000 kB\n";
        assert_eq!(super::parse(text), Some(12_288_000));
        assert_eq!(super::parse("MemTotal: 5 kB\n"), None);
    }
}
