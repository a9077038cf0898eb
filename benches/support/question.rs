//! A line that `benches/report` sends.
#![allow(clippy::panic, reason = "a question that makes no sense ends the program")]

use std::path::PathBuf;

use serde_json::Value;

/// Fields of a question.
pub(crate) struct Question(pub(crate) Value);

impl Question {
    pub(crate) fn number(&self, name: &str) -> usize {
        let value = self.0.get(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("a number is needed: {name}"));
        usize::try_from(value).expect("64 bits")
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.text("path").into()
    }
}
