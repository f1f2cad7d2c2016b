//! Metrics of the process and its disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isobar_hub::Shift;
use isobar_model::time::Timestamp;
use rustix::time::ClockId;

/// Interval of measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// Measures the process and the file system of its data folder periodically.
pub async fn measure(data: PathBuf, started: Timestamp, mut shift: Shift) {
    metrics::gauge!("process_start_time_seconds").set(started.millis() as f64 / 1e3);
    loop {
        if let Some((free, whole)) = disk(&data) {
            metrics::gauge!("isobar_disk_free_bytes").set(free as f64);
            metrics::gauge!("isobar_disk_bytes").set(whole as f64);
        }
        if let Some(bytes) = resident_bytes() {
            metrics::gauge!("process_resident_memory_bytes").set(bytes as f64);
        }
        metrics::counter!("process_cpu_seconds_total").absolute(processor_seconds());
        shift.well();
        if shift.pause(MEASURE_EVERY).await {
            return;
        }
    }
}

/// Returns the free and the total bytes of a folder's file system, as available to this process.
pub fn disk(folder: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(folder)
        .inspect_err(|error| tracing::debug!(%error, folder = %folder.display(), "cannot measure the disk"))
        .ok()?;
    Some((found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize)))
}

/// Returns the resident memory of the process, in bytes; `None` if the system does not report it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    kibibytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the processor time of all threads, in whole seconds.
fn processor_seconds() -> u64 {
    rustix::time::clock_gettime(ClockId::ProcessCPUTime).tv_sec.try_into().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_has_at_most_its_size_free() {
        let folder = tempfile::tempdir().unwrap();
        let (free, whole) = disk(folder.path()).unwrap();
        assert!(free <= whole && whole > 0, "{free} of {whole}");
        assert_eq!(disk(&folder.path().join("missing")), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn resident_memory_is_more_than_a_mebibyte() {
        assert!(resident_bytes().unwrap() > 1 << 20);
    }
}
