//! The rules by which an open file answers.

/// Whose answers a handle gives. The bytes that it writes are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// Complete answers: every link is checked, damage is reported and bypassed, and a writer repairs the effects of a crash.
    #[default]
    Complete,
    /// The broker's own, its faults included; nothing is repaired.
    Broker,
}

impl Answers {
    /// True for the broker's own.
    pub(crate) fn are_the_brokers(self) -> bool {
        self == Self::Broker
    }
}
