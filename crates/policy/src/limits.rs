//! What a call may use up: processes, memory, processor time, sizes. Beside the policy, as restrictions are; a call that
//! names no bound has none.
//!
//! A bound holds for the whole call, for each process, or for each temp file system, and a report says which. It is
//! either set or the call is refused: there is no strength between, so it is a fact of a report and not a guarantee.

use crate::error::SandboxError;
use serde::{Deserialize, Serialize};

closed_words! {
    /// Names what is bounded.
    pub enum Resource("resource") {
        /// Processes and threads.
        Processes => "processes",
        /// Memory of the whole call, in bytes.
        Memory => "memory",
        /// Private writable memory of a process, in bytes.
        ProcessMemory => "process-memory",
        /// Processor time, in seconds.
        CpuTime => "cpu-time",
        /// The size of a file that is written, in bytes.
        FileSize => "file-size",
        /// Open files.
        OpenFiles => "open-files",
        /// The temp area, in bytes.
        TempSize => "temp-size",
    }
}

closed_words! {
    /// Names what a bound holds for.
    pub enum BoundScope("scope of a bound") {
        /// Everything that the command starts, taken together.
        Call => "call",
        /// Each process by itself.
        Process => "process",
        /// Each temp file system by itself.
        FileSystem => "file-system",
    }
}

closed_words! {
    /// Names what holds a bound.
    pub enum BoundMeans("means of a bound") {
        /// setrlimit(2).
        Rlimit => "rlimit",
        /// The process numbers of a PID namespace.
        PidNamespace => "pid-namespace",
        /// A control group of the call's own.
        Cgroup => "cgroup",
        /// The size of a file system.
        Tmpfs => "tmpfs",
    }
}

closed_words! {
    /// Grades how we know that a bound was met.
    pub enum BoundEvidence("evidence of a bound") {
        /// The kernel counted it where the command cannot write.
        Kernel => "kernel",
        /// The signal that the kernel sends at this bound ended the command; a process can send it to itself as well.
        Signal => "signal",
    }
}

/// Holds what a call may use up; what is absent is not bounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Processes and threads of the whole call, those that supervise it not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<u64>,
    /// Memory of the whole call, in bytes, page cache and temp files in memory included, without swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory_bytes: Option<u64>,
    /// Private writable memory of each process, in bytes. Address space that is only reserved does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_process_memory_bytes: Option<u64>,
    /// Processor time of each process, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_seconds: Option<u64>,
    /// Size of each file that is written, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_file_bytes: Option<u64>,
    /// Open files of each process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_open_files: Option<u64>,
    /// Size of each private temp file system, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_temp_bytes: Option<u64>,
}

/// The largest number of processes: every process number that Linux has, less those below 300.
pub const MOST_PROCESSES: u64 = (1 << 22) - 300;
/// The largest number of anything else: 2^62.
pub const MOST: u64 = 1 << 62;
/// The fewest open files: three standard streams, and what a dynamic loader needs.
const FEWEST_OPEN_FILES: u64 = 8;

impl Limits {
    /// Returns whether nothing is bounded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Lists what is bounded, in the order of [`Resource::ALL`].
    pub fn asked(&self) -> Vec<(Resource, u64)> {
        let of = |resource: Resource| match resource {
            Resource::Processes => self.max_processes,
            Resource::Memory => self.max_memory_bytes,
            Resource::ProcessMemory => self.max_process_memory_bytes,
            Resource::CpuTime => self.max_cpu_seconds,
            Resource::FileSize => self.max_file_bytes,
            Resource::OpenFiles => self.max_open_files,
            Resource::TempSize => self.max_temp_bytes,
        };
        Resource::ALL.iter().filter_map(|resource| Some((*resource, of(*resource)?))).collect()
    }

    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for a bound of 0 (nothing could run, or, for a file system, nothing would be bounded), more
    /// than [`MOST_PROCESSES`] processes, fewer than 8 open files, or more than [`MOST`] of anything.
    pub fn validate(&self) -> Result<(), SandboxError> {
        for (resource, value) in self.asked() {
            let (least, most) = match resource {
                Resource::Processes => (1, MOST_PROCESSES),
                Resource::OpenFiles => (FEWEST_OPEN_FILES, MOST),
                _ => (1, MOST),
            };
            if !(least..=most).contains(&value) {
                let detail = format!("a bound of {value} on {resource} is not between {least} and {most}");
                return Err(SandboxError::InvalidPolicy { detail });
            }
        }
        Ok(())
    }
}

/// States one bound that holds for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bound {
    /// What is bounded.
    pub resource: Resource,
    /// The most there may be: bytes, seconds, or a number.
    pub most: u64,
    /// What it holds for.
    pub scope: BoundScope,
    /// What holds it.
    pub means: BoundMeans,
}

/// States that a bound was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BoundMet {
    /// What ran out.
    pub resource: Resource,
    /// How we know.
    pub evidence: BoundEvidence,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_nothing_is_bounded() {
        let nothing: Limits = serde_json::from_str("{}").unwrap();
        assert!(nothing.is_empty() && nothing.asked().is_empty() && nothing.validate().is_ok());
        assert_eq!(serde_json::to_string(&nothing).unwrap(), "{}");
    }

    #[test]
    fn the_wire_form_has_units_in_its_names_and_no_other_fields() {
        let text = concat!(
            r#"{"maxProcesses":1,"maxMemoryBytes":2,"maxProcessMemoryBytes":3,"maxCpuSeconds":4,"#,
            r#""maxFileBytes":5,"maxOpenFiles":8,"maxTempBytes":7}"#
        );
        let limits: Limits = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&limits).unwrap(), text);
        let asked: Vec<_> = limits.asked().into_iter().map(|(resource, _)| resource).collect();
        assert_eq!(asked, Resource::ALL);
        for wrong in
            [r#"{"maxMemory":1}"#, r#"{"maxProcesses":-1}"#, r#"{"maxProcesses":"1"}"#, r#"{"maxCpuSeconds":0.5}"#]
        {
            assert!(serde_json::from_str::<Limits>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let refused = |limits: Limits| limits.validate().is_err_and(|error| error.to_string().contains("a bound of"));
        assert!(refused(Limits { max_processes: Some(0), ..Limits::default() }));
        assert!(refused(Limits { max_processes: Some(MOST_PROCESSES + 1), ..Limits::default() }));
        assert!(refused(Limits { max_temp_bytes: Some(0), ..Limits::default() }));
        assert!(refused(Limits { max_file_bytes: Some(MOST + 1), ..Limits::default() }));
        assert!(refused(Limits { max_open_files: Some(7), ..Limits::default() }));
        assert!(!refused(Limits { max_open_files: Some(8), max_processes: Some(1), ..Limits::default() }));
    }
}
