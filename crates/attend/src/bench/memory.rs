//! The most memory that the process has held at a time, as the system counts it.

/// Bytes of physical memory that this process held at most since it began, or since [`forget_peak`]; `None` where the
/// system does not say. Pages of files that are mapped count.
pub fn peak() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Begins a new count for [`peak`]; `false` where the system does not let one, and the peak is that of the whole run.
pub fn forget_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

fn parse(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_counts_is_read() {
        assert_eq!(parse("Name:\tattend\nVmPeak:\t  900 kB\nVmHWM:\t     768 kB\nVmRSS:\t 1 kB\n"), Some(768 * 1024));
        assert_eq!(parse("VmPeak: 1 kB\n"), None);
        assert_eq!(parse("VmHWM: x kB\n"), None);
    }

    #[test]
    fn a_forgotten_peak_is_forgotten() {
        let touched = |bytes: usize| std::hint::black_box(vec![1u8; bytes]).len();
        let Some(before) = peak() else { return };
        touched(64 << 20);
        let high = peak().expect("it was told before");
        assert!(high >= before.max(64 << 20), "{high} after {before}");
        if forget_peak() {
            let low = peak().expect("it was told before");
            assert!(low + (32 << 20) < high, "{low} after {high}");
        }
    }
}
