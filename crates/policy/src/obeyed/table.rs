//! The one table of names that tools outside obey. What is protected by default ([`crate::protect`]) and what the
//! host-execution report speaks of ([`crate::host_files`]) are both read from here, so they cannot come to differ.
//!
//! A name is lower case; letters fit in either case, because on some file systems they do. `*` stands for any text at one end
//! of the last name. Several names fit the end of a path.

use super::Obeyed;
use super::ObeyedKind::{self, Agent, Build, Ci, Editor, Environment, Git, Program, Settings, Shell};
use crate::protect::ProtectionRule::{
    self, AgentSettings, EditorSettings, HomeSettings, OwnSettings, ShellStart, VcsControl,
};

const fn protected(name: &'static str, rule: ProtectionRule, kind: ObeyedKind, by: &'static str) -> Obeyed {
    Obeyed { name, kind, by, rule: Some(rule) }
}

const fn agent(name: &'static str, by: &'static str) -> Obeyed {
    protected(name, AgentSettings, Agent, by)
}

const fn editor(name: &'static str, by: &'static str) -> Obeyed {
    protected(name, EditorSettings, Editor, by)
}

const fn shell(name: &'static str, by: &'static str) -> Obeyed {
    protected(name, ShellStart, Shell, by)
}

const fn home(name: &'static str, kind: ObeyedKind, by: &'static str) -> Obeyed {
    protected(name, HomeSettings, kind, by)
}

const fn reported(name: &'static str, kind: ObeyedKind, by: &'static str) -> Obeyed {
    Obeyed { name, kind, by, rule: None }
}

/// Single names that are protected in a project or in the home directory, and reported wherever they are.
///
/// What is *not* protected, but reported ([`REPORTED`]): text that a model reads as instructions (`AGENTS.md`, `CLAUDE.md`),
/// which people have agents write, and files of builds and of continuous integration, which are the work itself.
pub(crate) const PROJECT: &[Obeyed] = &[
    protected("pinfold.toml", OwnSettings, Agent, "pinfold"),
    protected(".pinfold*", OwnSettings, Agent, "pinfold"),
    agent(".claude", "claude"),
    agent(".codex", "codex"),
    agent(".cursor", "cursor"),
    agent(".gemini", "gemini"),
    agent(".windsurf", "windsurf"),
    agent(".kiro", "kiro"),
    agent(".opencode", "opencode"),
    agent(".aider.conf.yml", "aider"),
    agent(".mcp.json", "agents that start MCP servers"),
    editor(".vscode", "vscode"),
    editor(".idea", "jetbrains"),
    editor(".zed", "zed"),
    editor(".fleet", "fleet"),
    editor(".devcontainer", "dev containers"),
    editor(".devcontainer.json", "dev containers"),
    editor(".exrc", "vim"),
    editor(".vimrc", "vim"),
    editor(".nvimrc", "neovim"),
    editor(".nvim.lua", "neovim"),
    editor(".dir-locals.el", "emacs"),
    editor(".dir-locals-2.el", "emacs"),
    protected(".husky", EditorSettings, Git, "git, by husky"),
    shell(".envrc", "direnv"),
    shell(".profile", "login shells"),
    shell(".bashrc", "bash"),
    shell(".bash_profile", "bash"),
    shell(".bash_login", "bash"),
    shell(".bash_logout", "bash"),
    shell(".bash_aliases", "bash"),
    shell(".zshrc", "zsh"),
    shell(".zshenv", "zsh"),
    shell(".zprofile", "zsh"),
    shell(".zlogin", "zsh"),
    shell(".zlogout", "zsh"),
    shell(".kshrc", "ksh"),
    shell(".cshrc", "csh"),
    shell(".tcshrc", "tcsh"),
    shell(".login", "csh"),
    shell(".inputrc", "readline"),
    shell(".xprofile", "desktop sessions"),
    shell(".xinitrc", "desktop sessions"),
    shell(".xsession", "desktop sessions"),
    shell(".xsessionrc", "desktop sessions"),
    shell(".pam_environment", "logins"),
];

const fn control(name: &'static str, by: &'static str) -> Obeyed {
    protected(name, VcsControl, Settings, by)
}

/// What version control systems other than git obey, at any depth, with everything below it.
pub(crate) const VERSION_CONTROL: &[Obeyed] = &[
    control(".hg/hgrc", "mercurial"),
    control(".hg/hgrc-not-shared", "mercurial"),
    control(".hg/requires", "mercurial"),
    control(".hg/sharedpath", "mercurial"),
    control(".jj/config.toml", "jj"),
    control(".jj/workspace-config.toml", "jj"),
    control(".jj/repo/config.toml", "jj"),
    control(".jj/repo/store/git_target", "jj"),
    control(".bzr/branch/branch.conf", "breezy"),
    control(".bzr/branch/location", "breezy"),
    control(".bzr/control.conf", "breezy"),
];

/// What is protected and reported in the home directory beyond the names above, with everything below it.
pub(crate) const HOME: &[Obeyed] = &[
    home(".gitconfig", Git, "git"),
    home(".config/git", Git, "git"),
    home(".ssh", Settings, "ssh"),
    home(".gnupg", Settings, "gpg"),
    home(".tmux.conf", Settings, "tmux"),
    home(".emacs", Editor, "emacs"),
    home(".emacs.d", Editor, "emacs"),
    home(".config/nvim", Editor, "neovim"),
    home(".config/fish", Shell, "fish"),
    home(".config/pinfold", Agent, "pinfold"),
    home(".config/autostart", Settings, "desktop sessions"),
    home(".config/environment.d", Settings, "systemd"),
    home(".config/systemd", Settings, "systemd"),
    home(".config/Code/User", Editor, "vscode"),
    home(".local/share/systemd", Settings, "systemd"),
    home(".local/share/applications", Settings, "desktop sessions"),
    home(".local/bin", Program, "whoever has it in PATH"),
];

/// What is reported only.
pub(crate) const REPORTED: &[Obeyed] = &[
    reported(".gitattributes", Git, "git"),
    reported(".gitmodules", Git, "git"),
    reported(".lfsconfig", Git, "git lfs"),
    reported(".pre-commit-config.yaml", Git, "git, by pre-commit"),
    reported(".pre-commit-hooks.yaml", Git, "git, by pre-commit"),
    reported("lefthook*", Git, "git, by lefthook"),
    reported(".lefthook*", Git, "git, by lefthook"),
    reported(".overcommit.yml", Git, "git, by overcommit"),
    reported("agents.md", Agent, "coding agents"),
    reported("agents.override.md", Agent, "coding agents"),
    reported("claude.md", Agent, "claude"),
    reported("claude.local.md", Agent, "claude"),
    reported("gemini.md", Agent, "gemini"),
    reported(".agents", Agent, "coding agents"),
    reported(".cursorrules", Agent, "cursor"),
    reported(".windsurfrules", Agent, "windsurf"),
    reported(".clinerules", Agent, "cline"),
    reported(".roo", Agent, "roo"),
    reported(".roomodes", Agent, "roo"),
    reported(".continue", Agent, "continue"),
    reported(".goosehints", Agent, "goose"),
    reported(".github/copilot-instructions.md", Agent, "copilot"),
    reported(".github/instructions", Agent, "copilot"),
    reported(".editorconfig", Editor, "editors"),
    reported(".vim", Editor, "vim"),
    reported(".lvimrc", Editor, "vim"),
    reported("*.code-workspace", Editor, "vscode"),
    reported("*.sublime-project", Editor, "sublime"),
    reported(".project", Editor, "eclipse"),
    reported(".settings", Editor, "eclipse"),
    reported(".env", Shell, "dotenv"),
    reported(".env.*", Shell, "dotenv"),
    reported(".tool-versions", Shell, "asdf, mise"),
    reported("mise.toml", Shell, "mise"),
    reported(".mise.toml", Shell, "mise"),
    reported("makefile", Build, "make"),
    reported("gnumakefile", Build, "make"),
    reported("*.mk", Build, "make"),
    reported("justfile", Build, "just"),
    reported(".justfile", Build, "just"),
    reported("taskfile.yml", Build, "task"),
    reported("taskfile.yaml", Build, "task"),
    reported("rakefile", Build, "rake"),
    reported("gemfile", Build, "bundler"),
    reported("*.gemspec", Build, "bundler"),
    reported("package.json", Build, "npm"),
    reported(".npmrc", Build, "npm"),
    reported(".yarnrc", Build, "yarn"),
    reported(".yarnrc.yml", Build, "yarn"),
    reported(".yarn/releases", Build, "yarn"),
    reported(".yarn/plugins", Build, "yarn"),
    reported(".pnpmfile.cjs", Build, "pnpm"),
    reported("pnpm-workspace.yaml", Build, "pnpm"),
    reported("bunfig.toml", Build, "bun"),
    reported("deno.json", Build, "deno"),
    reported("deno.jsonc", Build, "deno"),
    reported("*.config.js", Build, "node tools"),
    reported("*.config.cjs", Build, "node tools"),
    reported("*.config.mjs", Build, "node tools"),
    reported("*.config.ts", Build, "node tools"),
    reported(".eslintrc.js", Build, "eslint"),
    reported(".eslintrc.cjs", Build, "eslint"),
    reported("build.rs", Build, "cargo"),
    reported("cargo.toml", Build, "cargo"),
    reported(".cargo/config", Build, "cargo"),
    reported(".cargo/config.toml", Build, "cargo"),
    reported("rust-toolchain", Build, "rustup"),
    reported("rust-toolchain.toml", Build, "rustup"),
    reported("setup.py", Build, "python"),
    reported("setup.cfg", Build, "python"),
    reported("pyproject.toml", Build, "python"),
    reported("requirements.txt", Build, "pip"),
    reported("pipfile", Build, "pipenv"),
    reported("conftest.py", Build, "pytest"),
    reported("pytest.ini", Build, "pytest"),
    reported("tox.ini", Build, "tox"),
    reported("noxfile.py", Build, "nox"),
    reported("cmakelists.txt", Build, "cmake"),
    reported("*.cmake", Build, "cmake"),
    reported("cmakepresets.json", Build, "cmake"),
    reported("cmakeuserpresets.json", Build, "cmake"),
    reported("meson.build", Build, "meson"),
    reported("configure", Build, "whoever builds"),
    reported("configure.ac", Build, "autoconf"),
    reported("autogen.sh", Build, "whoever builds"),
    reported("*.gradle", Build, "gradle"),
    reported("*.gradle.kts", Build, "gradle"),
    reported("gradlew", Build, "gradle"),
    reported("gradlew.bat", Build, "gradle"),
    reported("gradle.properties", Build, "gradle"),
    reported("gradle/wrapper", Build, "gradle"),
    reported("pom.xml", Build, "maven"),
    reported("mvnw", Build, "maven"),
    reported(".mvn", Build, "maven"),
    reported("build.xml", Build, "ant"),
    reported("build.sbt", Build, "sbt"),
    reported("workspace.bazel", Build, "bazel"),
    reported("module.bazel", Build, "bazel"),
    reported("build.bazel", Build, "bazel"),
    reported(".bazelrc", Build, "bazel"),
    reported("sconstruct", Build, "scons"),
    reported("wscript", Build, "waf"),
    reported("dockerfile", Build, "docker"),
    reported("containerfile", Build, "podman"),
    reported("docker-compose*", Build, "docker"),
    reported("compose.yml", Build, "docker"),
    reported("compose.yaml", Build, "docker"),
    reported("vagrantfile", Build, "vagrant"),
    reported("flake.nix", Build, "nix"),
    reported("default.nix", Build, "nix"),
    reported("shell.nix", Build, "nix"),
    reported("procfile", Build, "foreman"),
    reported("go.mod", Build, "go"),
    reported("go.work", Build, "go"),
    reported("composer.json", Build, "composer"),
    reported("mix.exs", Build, "mix"),
    reported("build.zig", Build, "zig"),
    reported("package.swift", Build, "swift"),
    reported("*.csproj", Build, "dotnet"),
    reported("directory.build.*", Build, "dotnet"),
    reported("pyvenv.cfg", Environment, "python"),
    reported("bin/activate", Environment, "whoever enters the environment"),
    reported("bin/activate.csh", Environment, "whoever enters the environment"),
    reported("bin/activate.fish", Environment, "whoever enters the environment"),
    reported("bin/activate.ps1", Environment, "whoever enters the environment"),
    reported("bin/activate_this.py", Environment, "whoever enters the environment"),
    reported("*.pth", Environment, "python"),
    reported("*.egg-link", Environment, "python"),
    reported("sitecustomize.py", Environment, "python"),
    reported("usercustomize.py", Environment, "python"),
    reported(".github/workflows", Ci, "github"),
    reported(".github/actions", Ci, "github"),
    reported(".gitea/workflows", Ci, "gitea"),
    reported(".forgejo/workflows", Ci, "forgejo"),
    reported(".gitlab-ci.yml", Ci, "gitlab"),
    reported(".gitlab/ci", Ci, "gitlab"),
    reported(".ci", Ci, "continuous integration"),
    reported("jenkinsfile", Ci, "jenkins"),
    reported(".circleci", Ci, "circleci"),
    reported("azure-pipelines.yml", Ci, "azure"),
    reported(".travis.yml", Ci, "travis"),
    reported(".drone.yml", Ci, "drone"),
    reported("bitbucket-pipelines.yml", Ci, "bitbucket"),
    reported(".buildkite", Ci, "buildkite"),
    reported(".woodpecker", Ci, "woodpecker"),
    reported(".woodpecker.yml", Ci, "woodpecker"),
    reported("appveyor.yml", Ci, "appveyor"),
    reported(".appveyor.yml", Ci, "appveyor"),
];

/// What git obeys in a repository ([`crate::protect`] has the names).
pub(crate) const IN_REPOSITORY: Obeyed = reported(".git", Git, "git");

/// What a rebase or a sequence of picks goes on with: `exec` lines of a rebase are run.
pub(crate) const UNFINISHED: Obeyed = reported("rebase-merge", Git, "git rebase --continue");

/// Executables where PATH may lead.
pub(crate) const PROGRAMS: Obeyed = reported("bin", Program, "whoever has it in PATH");

/// What a repository names: hooks or configuration that lie elsewhere.
pub(crate) const GIT_TARGET: Obeyed = reported("", Git, "git, whose configuration leads there");

/// What a link in place of settings leads to.
pub(crate) const SETTINGS_TARGET: Obeyed = reported("", Settings, "a tool whose settings lead there");

/// The mark of what cargo built.
pub(crate) const LEFT_OUT: Obeyed =
    reported("", Build, "this report, which leaves out what lies beside it as built by cargo");

/// A file that runs as its owner or group.
pub(crate) const SET_ID: Obeyed = reported("", ObeyedKind::SetId, "whoever starts it, as its owner");
