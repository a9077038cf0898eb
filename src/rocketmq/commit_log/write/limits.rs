//! The messages that a broker of a release takes, and that its store reads again.
//!
//! A broker answers with an error to any other message (upstream `TopicValidator`, `DefaultMessageStore#checkMessage`,
//! `MessageExtEncoder#encode`, `HookUtils#checkBeforePutMessage`). If one is in the log all the same, the store of 4.9.3 may end
//! the log there and delete the files after it.

use super::new_message::NewMessage;
use crate::error::{Error, Result};
use crate::rocketmq::commit_log::frame::{COMPRESSED, COMPRESSION_TYPE, INNER_BATCH, NEED_UNWRAP};
use crate::rocketmq::names::{LONGEST_TOPIC, LONGEST_TOPIC_V1};
use crate::rocketmq::release::Release;

/// Topics of consumers that are read again, the only ones that may be longer.
const RETRY: &str = "%RETRY%";
/// Bytes that a frame of 5.x may have besides a body of the largest size.
const BESIDE_BODY: usize = 64 << 10;

/// The limits of the broker that is going to load the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The broker's release.
    pub release: Release,
    /// Upstream `maxMessageSize`: bytes of the longest frame (4.9.3) or body (later releases).
    pub max_message_size: usize,
}

impl Limits {
    /// The default of `maxMessageSize`.
    pub const MAX_MESSAGE_SIZE: usize = 4 << 20;

    /// # Errors
    /// `InvalidArgument` for a topic that the broker does not take.
    pub(super) fn check_topic(&self, topic: &str) -> Result<()> {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'_' | b'-');
        let longest = match self.release {
            Release::V5_3_3 | Release::V5_5_0 if topic.starts_with(RETRY) => LONGEST_TOPIC,
            Release::V4_9_3 | Release::V5_3_3 | Release::V5_5_0 => LONGEST_TOPIC_V1,
        };
        if !topic.is_empty() && topic.len() <= longest && topic.bytes().all(is_legal) {
            return Ok(());
        }
        let expected = format!("1 to {longest} of the characters a-z, A-Z, 0-9, %, |, _ and -");
        Err(self.refused(&format!("topic {topic:?} of {} bytes", topic.len()), &expected))
    }

    /// # Errors
    /// `InvalidArgument` for a message that the broker does not take.
    pub(super) fn check(&self, message: &NewMessage<'_>) -> Result<()> {
        let flag = message.sys_flag;
        let kind = (flag & COMPRESSION_TYPE) >> COMPRESSION_TYPE.trailing_zeros();
        let (size, what, most) = match self.release {
            Release::V4_9_3 => {
                if flag & (INNER_BATCH | NEED_UNWRAP) != 0 {
                    return Err(self.refused(&format!("sys_flag={flag:#x}"), "no inner batch (0x80, 0x40)"));
                }
                if flag & COMPRESSED != 0 && !matches!(kind, 0 | 3) {
                    return Err(
                        self.refused(&format!("sys_flag={flag:#x}"), "a body that is compressed with zlib, if at all")
                    );
                }
                (message.size(), "message", self.max_message_size)
            }
            Release::V5_3_3 | Release::V5_5_0 => {
                if kind > 3 {
                    return Err(self.refused(&format!("sys_flag={flag:#x}"), "a compression type of 0 to 3"));
                }
                let most = self.max_message_size.saturating_add(BESIDE_BODY);
                if message.size() > most {
                    (message.size(), "message", most)
                } else {
                    (message.body.len(), "body", self.max_message_size)
                }
            }
        };
        if size > most {
            let expected = format!("at most {most} bytes (max_message_size={})", self.max_message_size);
            return Err(self.refused(&format!("a {what} of {size} bytes"), &expected));
        }
        Ok(())
    }

    fn refused(&self, found: &str, expected: &str) -> Error {
        let later =
            if self.release == Release::V4_9_3 { "; with compat of a later release its limits hold" } else { "" };
        let release = self.release.name();
        Error::InvalidArgument(format!("{found}: expected {expected}, as a {release} broker does{later}"))
    }
}
