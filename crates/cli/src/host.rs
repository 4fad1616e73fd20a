//! Facts about this host that decide what can be enforced, read from files; nothing is tried and nothing is
//! judged here. What a mechanism itself met is told by its own finding.

use std::path::Path;

/// One fact: a name, and what was found.
pub(crate) type Fact = (&'static str, String);

/// Settings of the kernel by which hosts forbid user namespaces, and the names they are told under.
const SETTINGS: [(&str, &str); 5] = [
    ("user.max_user_namespaces", "/proc/sys/user/max_user_namespaces"),
    ("kernel.unprivileged_userns_clone", "/proc/sys/kernel/unprivileged_userns_clone"),
    ("kernel.apparmor_restrict_unprivileged_userns", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
    ("security modules", "/sys/kernel/security/lsm"),
    ("AppArmor profile", "/proc/self/attr/apparmor/current"),
];

/// Lines of the process's own status that matter, and the names they are told under.
const STATUS: [(&str, &str); 4] =
    [("user", "Uid:"), ("capabilities", "CapEff:"), ("no new privileges", "NoNewPrivs:"), ("seccomp mode", "Seccomp:")];

/// Reads every fact that this host shows.
pub(crate) fn facts() -> Vec<Fact> {
    let mut facts = vec![("kernel", read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()))];
    facts.extend(SETTINGS.iter().filter_map(|(name, path)| Some((*name, read(path)?))));
    let status = read("/proc/self/status").unwrap_or_default();
    facts.extend(STATUS.iter().filter_map(|(name, key)| Some((*name, status_line(&status, key)?))));
    let masked = masked_proc(&read("/proc/self/mountinfo").unwrap_or_default());
    let masked = if masked.is_empty() { "no".to_owned() } else { format!("yes: {}", masked.join(", ")) };
    facts.push(("/proc is masked", masked));
    facts
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.trim_end_matches(['\0', '\n']).to_owned()).filter(|text| !text.is_empty())
}

fn status_line(status: &str, key: &str) -> Option<String> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let first = line.split_whitespace().next()?;
    Some(if key == "CapEff:" { capabilities(first) } else { first.to_owned() })
}

fn capabilities(hex: &str) -> String {
    const SYS_ADMIN: u32 = 21;
    match u64::from_str_radix(hex, 16) {
        Ok(0) => "none".to_owned(),
        Ok(set) if set >> SYS_ADMIN & 1 == 1 => format!("{hex} (with CAP_SYS_ADMIN)"),
        _ => format!("{hex} (without CAP_SYS_ADMIN)"),
    }
}

/// Lists places below /proc that something else is mounted over (proc(5), `mountinfo`); a kernel then refuses
/// a fresh /proc in a user namespace.
fn masked_proc(mountinfo: &str) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for point in mountinfo.lines().filter_map(|line| line.split(' ').nth(4)) {
        // The automatic mount point of binfmt_misc is part of an ordinary host.
        if point.starts_with("/proc/")
            && point != "/proc/sys/fs/binfmt_misc"
            && !places.iter().any(|have| have == point)
        {
            places.push(point.to_owned());
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_over_proc_are_found_once_each() {
        let mountinfo = "22 1 0:21 / /proc rw - proc proc rw\n23 22 0:22 / /proc/kcore rw - tmpfs t rw\n\
                         24 22 0:22 / /proc/kcore rw - tmpfs t rw\n25 22 0:5 / /proc/sys/fs/binfmt_misc rw - autofs s rw\n";
        assert_eq!(masked_proc(mountinfo), ["/proc/kcore"]);
    }

    #[test]
    fn capabilities_are_told_by_the_one_that_matters() {
        assert_eq!(capabilities("0000000000000000"), "none");
        assert_eq!(capabilities("0000000000200000"), "0000000000200000 (with CAP_SYS_ADMIN)");
        assert_eq!(capabilities("00000000a80425fb"), "00000000a80425fb (without CAP_SYS_ADMIN)");
    }

    #[test]
    fn this_host_has_a_kernel_release() {
        assert_eq!(facts()[0].0, "kernel");
        assert_ne!(facts()[0].1, "unknown");
    }
}
