//! The codes of file operations. They are the reference system's list, no more and no fewer: consumers match on them.

closed_words! {
    /// Names why a file operation did not happen.
    pub enum FileErrorCode("file error code") {
        /// Nothing is there, or a directory on the way is missing or none.
        NotFound => "FS_NOT_FOUND",
        /// Something else than a directory is there.
        NotDirectory => "FS_NOT_DIRECTORY",
        /// The content is not UTF-8 text, or holds a NUL byte.
        NotText => "FS_NOT_TEXT",
        /// Something else than a regular file is there.
        NotRegularFile => "FS_NOT_REGULAR_FILE",
        /// It is larger than the limit in force.
        TooLarge => "FS_TOO_LARGE",
        /// The host's own permissions refuse it.
        PermissionDenied => "FS_PERMISSION_DENIED",
        /// The policy refuses it; never used for a refusal by the host.
        SandboxDenied => "FS_SANDBOX_DENIED",
        /// The host could not do it for another reason: no space, a name that is too long, a broken disk.
        IoError => "FS_IO_ERROR",
        /// The file is not what it was when it was last seen.
        StaleVersion => "FS_STALE_VERSION",
        /// The file exists, and the caller has not seen it.
        NotObserved => "FS_NOT_OBSERVED",
        /// The text to replace stands there more than once.
        AmbiguousEdit => "FS_AMBIGUOUS_EDIT",
        /// The text to replace does not stand there.
        EditNotFound => "FS_EDIT_NOT_FOUND",
        /// The caller withdrew the operation before it happened.
        Aborted => "FS_ABORTED",
    }
}
