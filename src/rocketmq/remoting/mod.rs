//! The remoting protocol, between brokers and their clients. docs/formats/rocketmq-wire.md describes the format.
//!
//! Source: upstream `RemotingCommand`, `RocketMQSerializable`, `SendMessageProcessor`.

mod command;
mod json_header;
mod sends;

pub use command::{ANSWER, Command, Header, MAX_FRAME, ONE_WAY, VERSION, decode, frame_length};
pub use sends::{Frames, Refused, SendFacts, SendTable, Sends, frames};
