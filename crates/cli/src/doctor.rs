//! `pinfold doctor`: what works here, what is missing and what to do, for a person or for a program.

use crate::arguments::{Doctor, RestrictionOptions};
use crate::closing::Closing;
use crate::host::{self, Fact};
use crate::request::confined_mode;
use crate::surroundings::Surroundings;
use crate::voice::{Form, complain, exit_status, one_line, print, say};
use pinfold_policy::quote::quote_if_needed;
use pinfold_policy::{ConfinedMode, EnforcementReport, ExecutionPolicy, GuaranteeReport, Strength};
use pinfold_providers::{Backend, Finding, LocalProvider};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Everything that a doctor says; its JSON form is this object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnosis {
    version: &'static str,
    host: BTreeMap<&'static str, String>,
    modes: Vec<ModeDiagnosis>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ModeDiagnosis {
    mode: ConfinedMode,
    /// What `run` would use without `--backend`.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<Backend>,
    backends: Vec<Finding>,
}

impl ModeDiagnosis {
    /// Asks what `pinfold run` does without options, so with what the command line closes by default.
    fn new(mode: ConfinedMode, provider: &LocalProvider, around: &Surroundings) -> Self {
        let policy = ExecutionPolicy::new(mode.into(), "/");
        let closing = Closing::new(&RestrictionOptions::default(), &policy, None, around).unwrap_or_default();
        let mut backends = provider.examine(mode, &closing.options());
        backends.retain(|finding| finding.backend != Backend::Unconfined);
        let chosen = backends.iter().find(|finding| finding.usable).map(|finding| finding.backend);
        Self { mode, chosen, backends }
    }

    fn chosen_report(&self) -> Option<&EnforcementReport> {
        self.backends.iter().find(|finding| Some(finding.backend) == self.chosen)?.report.as_ref()
    }
}

/// Prints the diagnosis and returns the exit status.
pub(crate) fn doctor(arguments: &Doctor, provider: &LocalProvider, around: &Surroundings) -> u8 {
    let form = Form::of(arguments.json);
    let modes = match arguments.mode.as_deref().map(confined_mode).transpose() {
        Ok(Some(mode)) => vec![mode],
        Ok(None) => ConfinedMode::ALL.to_vec(),
        Err(error) => {
            complain(&error, form);
            return exit_status(&error);
        }
    };
    let facts = host::facts();
    let modes: Vec<_> = modes.into_iter().map(|mode| ModeDiagnosis::new(mode, provider, around)).collect();
    let healthy = modes.iter().all(|mode| mode.chosen.is_some());
    let text = match form {
        Form::Text => render(&facts, &modes),
        Form::Json => {
            let diagnosis = Diagnosis { version: env!("CARGO_PKG_VERSION"), host: facts.into_iter().collect(), modes };
            one_line(&diagnosis) + "\n"
        }
    };
    match print(&text) {
        Ok(()) if healthy => 0,
        Ok(()) => 1,
        Err(error) => {
            say(&format!("error: standard output: {error}"));
            125
        }
    }
}

fn render(facts: &[Fact], modes: &[ModeDiagnosis]) -> String {
    let mut out = format!("pinfold {}\n\nhost\n", env!("CARGO_PKG_VERSION"));
    for (name, value) in facts {
        push(&mut out, &format!("  {name}: {}", quote_if_needed(value)));
    }
    for (position, mode) in modes.iter().enumerate() {
        render_mode(&mut out, mode, modes.get(..position).unwrap_or_default());
    }
    out
}

fn render_mode(out: &mut String, mode: &ModeDiagnosis, before: &[ModeDiagnosis]) {
    let chosen = match mode.chosen {
        Some(backend) => format!("`pinfold run` uses {}", backend.provider_name()),
        None => "nothing can confine a command here, so nothing is run".to_owned(),
    };
    push(out, &format!("\nmode {}: {chosen}", mode.mode));
    for (position, finding) in mode.backends.iter().enumerate() {
        let earlier = before.iter().flat_map(|mode| &mode.backends).chain(&mode.backends[..position]);
        let told: Vec<_> = earlier.flat_map(|finding| &finding.facts).collect();
        render_finding(out, finding, &told);
    }
    let Some(report) = mode.chosen_report() else { return };
    let same = before.iter().find(|other| {
        other.chosen == mode.chosen
            && other.chosen_report().map(EnforcementReport::guarantees) == Some(report.guarantees())
    });
    if let Some(same) = same {
        return push(out, &format!("  guarantees: as under {}", same.mode));
    }
    push(out, "\n  guarantee           strength   proved  layers");
    for line in report.guarantees() {
        render_guarantee(out, line);
    }
}

/// Tells of one mechanism; facts that were `told` before are not repeated.
fn render_finding(out: &mut String, finding: &Finding, told: &[(&String, &String)]) {
    let name = finding.backend.provider_name();
    if finding.usable {
        let report = finding.report.as_ref();
        let enforcement = report.and_then(EnforcementReport::enforcement).map_or("unknown", |word| word.as_str());
        push(out, &format!("  {name:<16} usable, {enforcement}{}", report.map(weak_spots).unwrap_or_default()));
    } else {
        push(out, &format!("  {name:<16} not usable: {}", finding.reason.as_deref().unwrap_or("no reason is known")));
    }
    if let Some(remedy) = &finding.remedy {
        push(out, &format!("  {:<16} what helps: {remedy}", ""));
    }
    for (fact, value) in finding.facts.iter().filter(|fact| !told.contains(fact)) {
        push(out, &format!("  {:<16} {fact}: {value}", ""));
    }
}

/// Names the file effects because of which an enforcement is partial.
fn weak_spots(report: &EnforcementReport) -> String {
    let weak =
        report.guarantees().iter().filter(|line| line.guarantee.is_file_effect(report.mode()) && !line.is_proved());
    let names: Vec<_> = weak.map(|line| line.guarantee.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
}

fn render_guarantee(out: &mut String, line: &GuaranteeReport) {
    let proved = match line.strength {
        Strength::Enforced | Strength::Partial if line.verified => "yes",
        Strength::Enforced | Strength::Partial => "no",
        Strength::None | Strength::NotAsked => "",
    };
    let layers = line.layers.iter().map(|layer| layer.as_str()).collect::<Vec<_>>().join(" ");
    push(out, &format!("  {:<19} {:<10} {proved:<7} {layers}", line.guarantee.as_str(), line.strength.as_str()));
    if line.strength != Strength::Enforced {
        for note in &line.notes {
            push(out, &format!("  {:<19} {note}", ""));
        }
    }
}

fn push(out: &mut String, line: &str) {
    let _ = writeln!(out, "{}", line.trim_end()); // writing to a String cannot fail
}
