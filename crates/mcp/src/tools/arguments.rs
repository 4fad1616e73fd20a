//! Arguments of a call, read one by one: what has the wrong type is refused, and so is what is left over.

use crate::tools::reply::Refusal;
use pinfold_policy::quote::quote;
use pinfold_session::Wish;
use rmcp::model::JsonObject;
use serde_json::Value;

/// How much of an argument a refusal repeats, in characters.
const MOST_REPEATED: usize = 200;

/// The arguments of one call that were not read yet.
#[derive(Debug)]
pub(crate) struct Arguments(JsonObject);

/// The two fields that ask for more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Escalation {
    pub(crate) sandbox_permissions: Option<String>,
    pub(crate) justification: Option<String>,
}

impl Escalation {
    pub(crate) fn wish(&self) -> Wish<'_> {
        Wish {
            sandbox_permissions: self.sandbox_permissions.as_deref(),
            write: None,
            justification: self.justification.as_deref(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Arguments {
    pub(crate) fn new(arguments: Option<JsonObject>) -> Self {
        Self(arguments.unwrap_or_default())
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, "a string", &other)),
        }
    }

    /// A text that must be there and say something.
    pub(crate) fn required_text(&mut self, name: &str) -> Result<String, Refusal> {
        let text = self.text(name)?.filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| Refusal::arguments(format!("invalid {name}: expected a non-empty string")))
    }

    /// A text that must be there and may be empty.
    pub(crate) fn required_content(&mut self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.ok_or_else(|| Refusal::arguments(format!("invalid {name}: expected a string")))
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.0.remove(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong(name, "a boolean", &other)),
        }
    }

    /// A number above zero (U364).
    pub(crate) fn positive(&mut self, name: &str) -> Result<Option<f64>, Refusal> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        match value.as_f64().filter(|number| number.is_finite() && *number > 0.0) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(name, "a positive number", &value)),
        }
    }

    /// A whole number from 1 to some bound.
    pub(crate) fn count(&mut self, name: &str, most: u64) -> Result<Option<usize>, Refusal> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        let number = value.as_u64().filter(|number| (1..=most).contains(number));
        match number.and_then(|number| usize::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(name, &format!("a whole number from 1 to {most}"), &value)),
        }
    }

    /// A whole number; whoever uses it says which ones mean something.
    pub(crate) fn whole(&mut self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        // JSON knows one kind of numbers: 1.0 is whole too.
        let whole = value
            .as_i64()
            .or_else(|| value.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < 9e15).map(|it| it as i64));
        whole.map(Some).ok_or_else(|| wrong(name, "a whole number", &value))
    }

    /// The fields that ask for more. They are read also where they are not advertised, and refused there (U361, U363).
    pub(crate) fn escalation(&mut self, confines: bool, subject: &str) -> Result<Escalation, Refusal> {
        let escalation = Escalation {
            sandbox_permissions: self.text("sandbox_permissions")?,
            justification: self.text("justification")?,
        };
        if !confines && escalation.sandbox_permissions.is_some() {
            return Err(Refusal::arguments(format!(
                "sandbox_permissions is not available in this composition (no sandboxing {subject} to escalate)"
            )));
        }
        Ok(escalation)
    }

    /// Refuses a name that a tool never knows, before another one is missed in its place. One that it knows elsewhere is
    /// left for [`Self::finish`] or has words of its own.
    pub(crate) fn refuse_unknown(&self, known: &[&str]) -> Result<(), Refusal> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(unknown(name)),
        }
    }

    /// Refuses what nobody has read.
    pub(crate) fn finish(self) -> Result<(), Refusal> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(unknown(name)),
        }
    }
}

fn unknown(name: &str) -> Refusal {
    Refusal::arguments(format!("unknown argument {}", quote(clipped(name))))
}

fn wrong(name: &str, expected: &str, found: &Value) -> Refusal {
    Refusal::arguments(format!("invalid {name}: expected {expected}, got {}", clipped(&found.to_string())))
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(MOST_REPEATED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn arguments(value: Value) -> Arguments {
        Arguments::new(value.as_object().cloned())
    }

    fn said<T: std::fmt::Debug>(result: Result<T, Refusal>) -> String {
        let result = result.unwrap_err().into_result();
        result.structured_content.unwrap()["message"].as_str().unwrap().to_owned()
    }

    // U364, U399
    #[test]
    fn what_is_wrong_is_said_exactly() {
        assert_eq!(
            said(arguments(json!({"command": " "})).required_text("command")),
            "invalid command: expected a non-empty string"
        );
        assert_eq!(
            said(arguments(json!({})).required_text("description")),
            "invalid description: expected a non-empty string"
        );
        for (value, shown) in [(json!(0), "0"), (json!(-5), "-5"), (json!("5"), "\"5\""), (json!(null), "null")] {
            let text = said(arguments(json!({"timeoutMs": value})).positive("timeoutMs"));
            assert_eq!(text, format!("invalid timeoutMs: expected a positive number, got {shown}"));
        }
        assert_eq!(
            said(arguments(json!({"command": 5})).required_text("command")),
            "invalid command: expected a string, got 5"
        );
        assert_eq!(said(arguments(json!({"x\u{202e}": 5})).finish()), "unknown argument \"x\\u{202e}\"");
    }

    // U361, U363
    #[test]
    fn escalation_is_refused_where_nothing_confines() {
        let asked = json!({"sandbox_permissions": "danger-full-access", "justification": "j"});
        assert_eq!(
            said(arguments(asked.clone()).escalation(false, "executor")),
            "sandbox_permissions is not available in this composition (no sandboxing executor to escalate)"
        );
        let read = arguments(asked).escalation(true, "executor").unwrap();
        assert_eq!(read.wish().sandbox_permissions, Some("danger-full-access"));
        assert!(Escalation::default().is_empty() && !read.is_empty());
    }

    proptest! {
        #[test]
        fn no_value_is_taken_for_another_type(text in ".{0,300}", number in any::<f64>()) {
            let value = json!({"a": text, "n": number});
            prop_assert!(arguments(value.clone()).flag("a").is_err());
            prop_assert!(arguments(value.clone()).positive("a").is_err());
            let positive = arguments(value).positive("n");
            prop_assert_eq!(matches!(positive, Ok(Some(_))), number.is_finite() && number > 0.0);
        }
    }
}
