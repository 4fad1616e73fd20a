//! `landlock-run`: drop-in for the launcher of that name. See `docs/launcher.md`.

// A build for tests (`cargo check --all-targets`) has a standard library and a main of its own.
#![cfg_attr(not(test), no_std, no_main)]

#[cfg(not(test))]
pinfold_launcher::program!(pinfold_launcher::landlock_run::main);
