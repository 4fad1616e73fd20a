//! `landlock-run`: drop-in for the launcher of that name. See `docs/launcher.md`.

#![no_std]
#![no_main]

pinfold_launcher::program!(pinfold_launcher::landlock_run::main);
