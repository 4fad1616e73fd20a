//! What is said behind a refusal: how to ask for more where somebody can answer, and nothing of it where nobody can.

use pinfold_executor::Finished;
use pinfold_policy::escalation::Subject;
use pinfold_policy::markers::{denial_marker, hint_marker};
use pinfold_policy::quote::quote;
use pinfold_policy::{ConfinedMode, DenialEvidence, SandboxMode};

/// What a client that cannot ask its person reads behind a refusal.
const UNAVAILABLE: &str = "[sandbox: approval is unavailable — nobody can be asked here, so do not retry with more]";
/// So many refusals are named, of a command that ended well in spite of them.
const MOST_NAMED: usize = 5;

/// Whether more can be had after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Nothing confines, or every request is rejected: there is nothing to say.
    Silent,
    /// There is nobody who could answer.
    Unavailable,
    /// A request is answered.
    Available,
}

impl Hint {
    /// The subject for those who render the line that tells how to ask.
    pub(crate) fn subject(self, subject: Subject) -> Option<Subject> {
        (self == Self::Available).then_some(subject)
    }

    /// Says behind the refusal in a command's text that nobody can be asked. `denied` is the fact: text imitates markers.
    pub(crate) fn behind_denial(self, text: String, denied: bool, mode: SandboxMode) -> String {
        let marker = mode.confined().map(denial_marker).filter(|_| denied && self == Self::Unavailable);
        // What a command wrote stands before what is said of it, so the last one is ours.
        let place = marker.and_then(|marker| text.rfind(&marker).map(|at| at + marker.len()));
        match place {
            Some(place) => format!("{}\n{UNAVAILABLE}{}", &text[..place], &text[place..]),
            None => text,
        }
    }

    /// Puts into the text of a refused file what holds, in place of the line that tells how to ask.
    pub(crate) fn of_file(self, text: String) -> String {
        let line = hint_marker(Subject::Operation);
        match (self, text.strip_suffix(&line)) {
            (Self::Available, _) | (_, None) => text,
            (Self::Unavailable, Some(rest)) => format!("{rest}{UNAVAILABLE}"),
            (Self::Silent, Some(rest)) => rest.trim_end_matches('\n').to_owned(),
        }
    }
}

/// Names behind the text of a command that exited with 0 what it was refused on proof: its last part may have gone well.
pub(crate) fn with_proved(mut text: String, finished: &Finished) -> String {
    let Some(mode) = finished.sandbox.mode.confined() else { return text };
    if finished.sandbox.denied || finished.exit_code() != Some(0) {
        return text;
    }
    let proved = || finished.outcome.denials().iter().filter(|it| it.evidence != DenialEvidence::Inferred);
    for denial in proved().take(MOST_NAMED) {
        let what = denial.operation.as_deref().unwrap_or("access");
        push(&mut text, mode, what, denial.path.as_deref());
    }
    match proved().count().saturating_sub(MOST_NAMED) {
        0 => {}
        more => text.push_str(&format!("\n[sandbox: {more} more refused]")),
    }
    text
}

fn push(text: &mut String, mode: ConfinedMode, what: &str, path: Option<&std::path::Path>) {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let path = path.map(|path| format!(": {}", quote(path))).unwrap_or_default();
    text.push_str(&format!("[sandbox: {what} refused under {mode} mode{path}]"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_to_ask_where_nobody_answers() {
        let denial = denial_marker(ConfinedMode::ReadOnly);
        let told = format!("imitated: {denial}\n{denial}\n[exit code: 1]");
        let mode = SandboxMode::ReadOnly;
        for hint in [Hint::Silent, Hint::Available] {
            assert_eq!(hint.behind_denial(told.clone(), true, mode), told);
        }
        let unavailable = Hint::Unavailable.behind_denial(told.clone(), true, mode);
        assert_eq!(unavailable, format!("imitated: {denial}\n{denial}\n{UNAVAILABLE}\n[exit code: 1]"));
        assert_eq!(Hint::Unavailable.behind_denial(told.clone(), false, mode), told);
        let file = format!("no\n{denial}\n{}", hint_marker(Subject::Operation));
        assert_eq!(Hint::Available.of_file(file.clone()), file);
        assert_eq!(Hint::Unavailable.of_file(file.clone()), format!("no\n{denial}\n{UNAVAILABLE}"));
        assert_eq!(Hint::Silent.of_file(file), format!("no\n{denial}"));
        assert_eq!(Hint::Silent.of_file("other".to_owned()), "other");
        assert_eq!(
            (Hint::Silent.subject(Subject::Command), Hint::Available.subject(Subject::Command)),
            (None, Some(Subject::Command))
        );
    }
}
