//! `pinfold-run`: raises the walls that a provider planned and executes the command. See `docs/launcher.md`.

#![no_std]
#![no_main]

pinfold_launcher::program!(pinfold_launcher::run::main);
