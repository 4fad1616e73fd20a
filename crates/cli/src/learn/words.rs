//! A policy as words of `pinfold run`, and words as text for a shell.

use crate::arguments::PolicyOptions;
use crate::voice::dollar_quoted;
use std::ffi::{OsStr, OsString};

/// Returns the options that say this policy.
pub(super) fn options(policy: &PolicyOptions) -> Vec<OsString> {
    let mut words = Words(Vec::new());
    words.one("--mode", policy.mode.as_ref());
    words.one("--workspace", policy.workspace.as_ref());
    words.each("--writable", &policy.writable);
    words.one("--backend", policy.backend.as_ref());
    words.each("--require", &policy.require);
    words.one("--cwd", policy.cwd.as_ref());
    let closing = &policy.restrictions;
    words.one("--network", closing.network.as_ref());
    words.each("--protect", &closing.protect);
    words.each("--deny-read", &closing.deny_read);
    words.flag("--deny-secrets", closing.deny_secrets);
    words.flag("--allow-secrets", closing.allow_secrets);
    words.each("--allow-read", &closing.allow_read);
    words.one("--sockets", closing.sockets.as_ref());
    words.each("--allow-socket", &closing.allow_socket);
    words.one("--env", closing.env.as_ref());
    words.each("--keep-env", &closing.keep_env);
    let limits = &policy.limits;
    words.one("--max-processes", limits.max_processes.as_ref());
    words.one("--max-memory", limits.max_memory.as_ref());
    words.one("--max-process-memory", limits.max_process_memory.as_ref());
    words.one("--max-cpu-seconds", limits.max_cpu_seconds.as_ref());
    words.one("--max-file-size", limits.max_file_size.as_ref());
    words.one("--max-open-files", limits.max_open_files.as_ref());
    words.one("--max-temp-size", limits.max_temp_size.as_ref());
    words.0
}

struct Words(Vec<OsString>);

impl Words {
    fn one(&mut self, option: &str, value: Option<impl AsRef<OsStr>>) {
        let Some(value) = value else { return };
        let value = value.as_ref();
        if value.as_encoded_bytes().first() == Some(&b'-') {
            let mut word = OsString::from(format!("{option}="));
            word.push(value);
            self.0.push(word);
        } else {
            self.0.extend([option.into(), value.to_owned()]);
        }
    }

    /// Each value once: those of files come again when the words are read.
    fn each<T: AsRef<OsStr> + PartialEq>(&mut self, option: &str, values: &[T]) {
        for (at, value) in values.iter().enumerate() {
            if !values[..at].contains(value) {
                self.one(option, Some(value));
            }
        }
    }

    fn flag(&mut self, option: &str, given: bool) {
        self.0.extend(given.then(|| OsString::from(option)));
    }
}

/// Returns a line that a shell reads as these words (bash, zsh, ksh where a word is not printable; else any).
pub(super) fn line<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> String {
    words.into_iter().map(word).collect::<Vec<_>>().join(" ")
}

fn word(word: &OsStr) -> String {
    let bytes = word.as_encoded_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:,@%=".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    if bytes.iter().all(|byte| (0x20..0x7f).contains(byte)) {
        return format!("'{}'", String::from_utf8_lossy(bytes).replace('\'', r"'\''"));
    }
    dollar_quoted(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::Parser as _;

    #[test]
    fn options_are_read_back_as_they_were() {
        let given = "pinfold run --mode workspace-write --workspace /w --writable /a --writable=-b --backend landlock --require network \
                     --cwd /c --network off --protect default --deny-read ~/x --deny-secrets --allow-read /y --sockets closed \
                     --allow-socket docker --env scrub --keep-env A --max-processes 9 --max-memory 1GiB --max-process-memory 2 \
                     --max-cpu-seconds 3 --max-file-size 4 --max-open-files 50 --max-temp-size 6 -- true";
        let given: Vec<OsString> = given.split_whitespace().map(OsString::from).collect();
        let parsed = Arguments::try_parse_from(&given).unwrap();
        let crate::arguments::Command::Run(run) = parsed.command else { panic!() };
        assert_eq!(options(&run.policy), given[2..given.len() - 2]);
    }

    #[test]
    fn a_shell_reads_a_line_as_the_words_that_it_was_made_of() {
        use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
        let words: Vec<OsString> = [&b"/a"[..], b"", b"a b", b"it's", b"$x;`y`", b"\n\x1b[2J\xff'\\", b"~", b"*"]
            .map(|bytes| OsString::from_vec(bytes.to_vec()))
            .into();
        let script = format!("printf '%s\\0' {}", line(words.iter().map(OsString::as_os_str)));
        let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
        let read: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
        let expected: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).chain([&b""[..]]).collect();
        assert_eq!(read, expected);
    }

    /// dash has no `$'…'`: it reads another word, but one word.
    #[test]
    fn no_shell_executes_what_a_name_says() {
        let name = OsString::from("a\n'; exit 7; #\\'; exit 8; #");
        for shell in ["bash", "sh", "dash"] {
            let script = format!("printf %s {}; exit 3", line([name.as_os_str(), "it's; exit 9".as_ref()].into_iter()));
            let status = std::process::Command::new(shell).args(["-c", &script]).output().unwrap().status;
            assert_eq!(status.code(), Some(3), "{shell}: {script}");
            // The control.
            let open = std::process::Command::new(shell).args(["-c", "printf %s 'a'; exit 7; #'; exit 3"]).output();
            assert_eq!(open.unwrap().status.code(), Some(7));
        }
    }
}
