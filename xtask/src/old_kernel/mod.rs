//! `cargo xtask old-kernel`: a smoke part of the suite on a real older kernel, Debian's 6.1 (Landlock ABI 2), in a virtual
//! machine without acceleration. What happens inside is in `crates/conformance/old-kernel`.
//!
//! Nothing is installed: the kernel's package is unpacked below the build directory, and is fetched there once. A missing
//! part is a failure that names it, never a skip.

mod image;

use crate::step::{self, Tally};
use crate::workspace::{Workspace, output};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The version that the expectations inside are about.
const VERSION: &str = "6.1";

/// What the kernel of [`VERSION`] is called in Debian: depends on the package that is meant.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// Names a kernel image of [`VERSION`] and, beside it, its modules: `DIR/boot/vmlinuz-…` and `DIR/lib/modules/…`.
const VARIABLE: &str = "PINFOLD_OLD_KERNEL_DIR";

const EMULATOR: &str = "qemu-system-x86_64";

/// About three times what it takes on one slow processor.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// As a task of its own.
pub(crate) fn run() -> Result<(), String> {
    let workspace = Workspace::find()?;
    let mut cargo = Command::new(env!("CARGO"));
    output(cargo.args(["build", "--workspace", "--bins"]).current_dir(&workspace.root))?;
    let tests: Vec<_> = crate::ci::test_programs(&workspace, "pinfold-conformance")?;
    let tests: Vec<_> = tests.into_iter().map(|test| (test.name, test.path)).collect();
    let (tally, outcome) = check(&workspace, &tests);
    println!("{} passed, {} failed, {} ignored", tally.passed, tally.failed, tally.ignored);
    outcome
}

/// Boots the older kernel with our programs and these test programs (name and path), and runs every check there.
pub(crate) fn check(workspace: &Workspace, tests: &[(String, PathBuf)]) -> (Tally, Result<(), String>) {
    match prepare(workspace, tests) {
        Ok(machine) => machine.boot(),
        Err(why) => (Tally::default(), Err(why)),
    }
}

struct Machine {
    kernel: PathBuf,
    image: PathBuf,
    /// What the second serial line said.
    verdict: PathBuf,
    /// The checks, by name.
    checks: Vec<String>,
}

fn prepare(workspace: &Workspace, tests: &[(String, PathBuf)]) -> Result<Machine, String> {
    let host = output(Command::new("uname").arg("-m"))?;
    if host.trim() != "x86_64" {
        return Err(format!("the older kernel is one for x86_64, and this is {}", host.trim()));
    }
    if output(Command::new(EMULATOR).arg("--version")).is_err() {
        return Err(format!("{EMULATOR} is missing: install Debian's qemu-system-x86 (.ci/run does)"));
    }
    let folder = workspace.target.join("old-kernel");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (kernel, modules) = find_kernel(&folder)?;
    let checks = workspace.root.join("crates/conformance/old-kernel");
    let image = folder.join("initramfs");
    let names = image::write(&image, &image::Parts { modules, checks, programs: workspace.debug(), tests })?;
    Ok(Machine { kernel, image, verdict: folder.join("verdict"), checks: names })
}

/// The kernel image and the directory of its modules; fetched with apt-get if there is none yet.
fn find_kernel(folder: &Path) -> Result<(PathBuf, PathBuf), String> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let unpacked = named.clone().unwrap_or_else(|| folder.join("kernel"));
    if let Some(found) = kernel_in(&unpacked) {
        return Ok(found);
    }
    if named.is_some() {
        return Err(format!("{VARIABLE}: no boot/vmlinuz-{VERSION}.* with its modules in {}", unpacked.display()));
    }
    let lacking = |why: String| {
        format!(
            "no Linux {VERSION} to boot, and it could not be fetched: {why}\nOn Debian 12: `apt-get download` of what \
             {PACKAGE} depends on, then `dpkg -x FILE DIR` and {VARIABLE}=DIR"
        )
    };
    fetch(folder, &unpacked).map_err(lacking)?;
    kernel_in(&unpacked).ok_or_else(|| lacking(format!("{PACKAGE} is no Linux {VERSION} here")))
}

fn kernel_in(unpacked: &Path) -> Option<(PathBuf, PathBuf)> {
    let entries = std::fs::read_dir(unpacked.join("boot")).ok()?.flatten();
    let release = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("vmlinuz-").map(str::to_owned))
        .find(|release| release.starts_with(&format!("{VERSION}.")))?;
    let modules = unpacked.join("lib/modules").join(&release).join("kernel");
    modules.is_dir().then(|| (unpacked.join("boot").join(format!("vmlinuz-{release}")), modules))
}

fn fetch(folder: &Path, unpacked: &Path) -> Result<(), String> {
    let depends = output(Command::new("apt-cache").args(["depends", "--important", PACKAGE]))?;
    let mut packages = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package =
        packages.find(|name| name.starts_with("linux-image-")).ok_or_else(|| format!("apt knows no {PACKAGE}"))?;
    let before = packages_in(folder);
    println!("fetching {package}");
    output(Command::new("apt-get").args(["-qq", "download", package]).current_dir(folder))?;
    let file = packages_in(folder)
        .into_iter()
        .find(|file| !before.contains(file) || file.to_string_lossy().contains(package))
        .ok_or("apt-get left no package")?;
    output(Command::new("dpkg").arg("-x").arg(&file).arg(unpacked))?;
    std::fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))
}

fn packages_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "deb")).collect()
}

impl Machine {
    fn boot(&self) -> (Tally, Result<(), String>) {
        // What an earlier run left would look like this one's.
        if self.verdict.exists()
            && let Err(error) = std::fs::remove_file(&self.verdict)
        {
            return (Tally::default(), Err(format!("{}: {error}", self.verdict.display())));
        }
        let mut qemu = Command::new(EMULATOR);
        // Emulated, because what CI runs in rarely lends its processor's virtualization.
        qemu.args(["-accel", "tcg,thread=multi", "-m", "2048", "-smp", "2", "-no-reboot", "-nographic", "-nodefaults"]);
        qemu.args(["-net", "none", "-serial", "stdio", "-serial"]).arg(format!("file:{}", self.verdict.display()));
        qemu.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.image);
        // A kernel that panics ends the machine.
        qemu.args(["-append", "console=ttyS0 quiet panic=-1 lsm=landlock,yama"]);
        let (tally, outcome) = step::execute(&mut qemu, LIMIT);
        let said = std::fs::read_to_string(&self.verdict).unwrap_or_default();
        (tally, outcome.and_then(|()| judge(&said, &self.checks)))
    }
}

/// Every check must have said that it went well, and the machine that it got to the end.
fn judge(said: &str, checks: &[String]) -> Result<(), String> {
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    if lines.last() != Some(&"end") {
        return Err(format!("the machine did not get to the end; it said {lines:?}"));
    }
    let bad = |check: &&String| !lines.contains(&format!("{check} 0").as_str());
    let failed: Vec<&str> = checks.iter().filter(bad).map(String::as_str).collect();
    match failed.as_slice() {
        [] if checks.is_empty() => Err("there was no check".to_owned()),
        [] => Ok(()),
        failed => Err(format!("on Linux {VERSION}: {}", failed.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_that_got_to_the_end_has_passed() {
        let checks = ["10-a", "20-b"].map(str::to_owned);
        assert_eq!(judge("10-a 0\r\n20-b 0\r\nend\r\n", &checks), Ok(()));
        assert!(judge("10-a 0\n20-b 0\n", &checks).is_err_and(|why| why.contains("did not get to the end")));
        assert!(judge("10-a 0\n20-b 1\nend\n", &checks).is_err_and(|why| why.ends_with("20-b")));
        assert!(judge("10-a 0\nend\n", &checks).is_err_and(|why| why.ends_with("20-b")));
        assert!(judge("", &checks).is_err() && judge("end\n", &[]).is_err());
    }
}
