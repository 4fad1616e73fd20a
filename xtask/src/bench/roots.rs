//! `cargo xtask bench roots`: what a start costs with a thousand writable roots, beside one with one root.

use super::{Folder, Row, build, confined, median, time};
use std::path::Path;

const MANY: usize = 1000;

pub(crate) fn run(rounds: usize) -> Result<(), String> {
    let release = build()?;
    let folder = Folder::new()?;
    println!("| backend | one root | {MANY} roots | ratio |\n|---|---|---|---|");
    for backend in ["namespace", "landlock"] {
        let mut few = starts(&release, &folder.0, backend, 1)?;
        let mut many = starts(&release, &folder.0, backend, MANY)?;
        for round in 0..rounds {
            // Each begins as often as the other.
            for turn in 0..2 {
                let row = if (round + turn) % 2 == 0 { &mut few } else { &mut many };
                let took = time(row)?;
                row.times.push(took);
            }
        }
        let ratio = median(many.times.iter().zip(&few.times).map(|(many, few)| many / few).collect());
        let [few, many] = [few, many].map(|row| median(row.times) / 1000.0);
        println!("| {backend} | {few:.2} ms | {many:.2} ms | {ratio:.2} |");
    }
    println!("\nMedians of {rounds} pairs, from the argv that `pinfold confine` prints to the end of `/bin/true`.");
    Ok(())
}

fn starts(release: &Path, folder: &Path, backend: &str, roots: usize) -> Result<Row, String> {
    let base = folder.join(format!("{backend}-{roots}"));
    let mut words = Vec::new();
    for number in 0..roots {
        let root = base.join(number.to_string());
        std::fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
        let option = if number == 0 { "--workspace" } else { "--writable" };
        words.extend([option.to_owned(), root.display().to_string()]);
    }
    let argv = confined(&release.join("pinfold"), backend, "workspace-write", &words)?;
    Ok(Row { name: format!("{backend}, {roots} roots"), argv, times: Vec::new() })
}
