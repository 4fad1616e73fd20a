//! What a call may use up, as words of the command line.

use crate::arguments::LimitOptions;
use pinfold_policy::quote::quote;
use pinfold_policy::{Limits, SandboxError, SandboxMode};
use pinfold_providers::{Insistence, default_processes};

/// Reads the bounds. Processes are bounded without being asked for, where they can be: a command that starts them without
/// end would take the host along, and nothing else stands in its way if root calls. The rest is left to the caller, because
/// no number is right for every build.
pub(crate) fn limits(options: &LimitOptions, mode: SandboxMode) -> Result<(Limits, Insistence), SandboxError> {
    let size = |option, text: &Option<String>| text.as_deref().map(|text| bytes(option, text)).transpose();
    let count = |option, text: &Option<String>| text.as_deref().map(|text| number(option, text)).transpose();
    let confined = mode != SandboxMode::DangerFullAccess;
    let (max_processes, processes) = match options.max_processes.as_deref() {
        Some("none") => (None, Insistence::Required),
        Some(text) => (Some(number("--max-processes", text)?), Insistence::Required),
        None => (confined.then(default_processes), Insistence::WherePossible),
    };
    let limits = Limits {
        max_processes,
        max_memory_bytes: size("--max-memory", &options.max_memory)?,
        max_process_memory_bytes: size("--max-process-memory", &options.max_process_memory)?,
        max_cpu_seconds: count("--max-cpu-seconds", &options.max_cpu_seconds)?,
        max_file_bytes: size("--max-file-size", &options.max_file_size)?,
        max_open_files: count("--max-open-files", &options.max_open_files)?,
        max_temp_bytes: size("--max-temp-size", &options.max_temp_size)?,
    };
    limits.validate()?;
    Ok((limits, processes))
}

fn number(option: &str, text: &str) -> Result<u64, SandboxError> {
    plain(text).ok_or_else(|| SandboxError::InvalidPolicy {
        detail: format!("{option} {} is not a whole number above 0", quote(text)),
    })
}

/// Reads a size: bytes, or a whole number of KiB, MiB, GiB or TiB. Nothing else, because K, kB and M mean different sizes to
/// different programs.
fn bytes(option: &str, text: &str) -> Result<u64, SandboxError> {
    const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let size = match UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift))) {
        Some((count, shift)) => plain(count).and_then(|count| count.checked_mul(1 << shift)),
        None => plain(text),
    };
    size.ok_or_else(|| SandboxError::InvalidPolicy {
        detail: format!(
            "{option} {} is not a size above 0, such as 2GiB, 512MiB, 64KiB or a number of bytes",
            quote(text)
        ),
    })
}

/// A number of digits alone, above 0.
fn plain(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units_or_none() {
        for (text, size) in [("1", 1), ("64KiB", 65536), ("512MiB", 512 << 20), ("2GiB", 2 << 30), ("3TiB", 3 << 40)] {
            assert_eq!(bytes("--x", text), Ok(size));
        }
        for text in
            ["", "0", "0MiB", "-1", "+1", "1.5GiB", "1 GiB", "GiB", "2G", "2GB", "2gib", "16777216TiB", "1e9", "٣"]
        {
            let refusal = bytes("--max-memory", text).unwrap_err().to_string();
            assert!(refusal.starts_with("invalid policy: --max-memory "), "{text}: {refusal}");
        }
    }

    #[test]
    fn processes_alone_are_bounded_by_default_and_not_under_full_access() {
        let of = |options: &LimitOptions, mode| limits(options, mode).unwrap();
        let none = LimitOptions::default();
        let (given, processes) = of(&none, SandboxMode::ReadOnly);
        assert!(given.max_processes.is_some_and(|most| (64..=16384).contains(&most)));
        assert_eq!((given.asked().len(), processes), (1, Insistence::WherePossible));
        assert!(of(&none, SandboxMode::DangerFullAccess).0.is_empty());
        let unbounded = LimitOptions { max_processes: Some("none".into()), ..LimitOptions::default() };
        assert!(of(&unbounded, SandboxMode::ReadOnly).0.is_empty());
        let named = LimitOptions { max_processes: Some("9".into()), ..LimitOptions::default() };
        assert_eq!(of(&named, SandboxMode::ReadOnly).1, Insistence::Required);
        let wrong = LimitOptions { max_open_files: Some("3".into()), ..LimitOptions::default() };
        assert!(limits(&wrong, SandboxMode::ReadOnly).is_err());
    }
}
