//! The release whose answers are given where releases differ.

/// A Kafka release; ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Compat {
    major: u16,
    minor: u16,
    patch: u16,
}

impl Compat {
    /// Parses a release such as `3.9.0` or `4.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut number = || parts.next().map(str::parse::<u16>);
        let major = number()?.ok()?;
        let minor = number()?.ok()?;
        let patch = number().unwrap_or(Ok(0)).ok()?;
        parts.next().is_none().then_some(Self { major, minor, patch })
    }

    const fn from_minor(major: u16, minor: u16) -> Self {
        Self { major, minor, patch: 0 }
    }

    /// Rules that changed with a release after 3.9.
    pub(crate) fn is_4(self) -> bool {
        self >= Self::from_minor(4, 0)
    }

    /// COMPAT(kafka `LogSegment#translateOffset`): the last offset of the batch, not its base offset.
    pub(crate) fn translates_to_last_offset(self) -> bool {
        !self.is_4()
    }

    /// COMPAT(kafka `FileRecords#searchForOffsetFromPosition`): batches are searched by their base offsets.
    pub(crate) fn searches_by_base_offset(self) -> bool {
        self >= Self::from_minor(4, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_parse_and_compare() {
        let [old, patch, new] = ["3.9.0", "3.9.2", "4.1"].map(|text| Compat::parse(text).unwrap());
        assert!(old < patch && patch < new);
        assert!(old.translates_to_last_offset() && !new.translates_to_last_offset());
        assert!(new.searches_by_base_offset() && !patch.searches_by_base_offset());
        for bad in ["", "4", "4.", "4.x", "4.1.1.1", "-1.0", "3.9.99999"] {
            assert_eq!(Compat::parse(bad), None, "{bad:?}");
        }
    }
}
