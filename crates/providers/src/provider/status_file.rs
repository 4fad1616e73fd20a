//! Where the launcher reports when somebody else starts it.

use super::*;

/// Makes the file in which the launcher reports, if it does not exist, and checks where it lies.
pub(super) fn prepare_status_file(path: &Path, writable: &[PinnedRoot]) -> Result<(), SandboxError> {
    let place = quote(path);
    let invalid = |detail: String| SandboxError::InvalidPolicy { detail };
    let failed = |detail: String| SandboxError::PreparationFailed { backend: "local".to_owned(), detail };
    if !path.is_absolute() {
        return Err(invalid(format!("status file {place} is not an absolute path")));
    }
    let physical = path
        .parent()
        .and_then(|parent| parent.canonicalize().ok())
        .ok_or_else(|| failed(format!("the directory of status file {place} does not exist")))?;
    // SECURITY: a report that the command can write is worth nothing.
    if writable.iter().any(|root| physical.starts_with(&root.path)) {
        return Err(invalid(format!("status file {place} lies below a writable root")));
    }
    let file = std::fs::File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32 | rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)
        .map_err(|error| failed(format!("cannot open status file {place}: {error}")))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() && metadata.nlink() > 1 => {
            Err(failed(format!("status file {place} has another name")))
        }
        Ok(metadata) if metadata.is_file() => Ok(()),
        _ => Err(failed(format!("status file {place} is not a regular file"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_file_has_one_name() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("status");
        assert_eq!(prepare_status_file(&path, &[]), Ok(()));
        std::fs::hard_link(&path, base.path().join("other")).unwrap();
        assert!(prepare_status_file(&path, &[]).unwrap_err().to_string().contains("another name"));
    }
}
