//! The broker releases whose answers logdex reproduces exactly.

/// A broker release. All releases write the same files; answers, safety checks and recovery differ from the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// RocketMQ 4.9.3.
    V4_9_3,
    /// RocketMQ 5.3.3: the index is that of 4.9.3, the commit log has frames of version 2.
    V5_3_3,
    /// RocketMQ 5.5.0: tags are indexed, too.
    V5_5_0,
}

impl Release {
    /// Returns the release of a version number, if it is known.
    pub fn parse(version: &str) -> Option<Self> {
        match version {
            "4.9.3" => Some(Self::V4_9_3),
            "5.3.3" => Some(Self::V5_3_3),
            "5.5.0" => Some(Self::V5_5_0),
            _ => None,
        }
    }

    /// The version number.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4_9_3 => "4.9.3",
            Self::V5_3_3 => "5.3.3",
            Self::V5_5_0 => "5.5.0",
        }
    }
}
