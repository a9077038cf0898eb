//! The errors with which a broker refuses an operation, by the names of Kafka's classes, with their numbers in the protocol.

use std::fmt::Display;

use crate::error::Error;

/// An error of Kafka: the name of its class, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal(&'static str, i16);

impl Refusal {
    pub(super) const CORRUPT_RECORD: Self = Self("CorruptRecordException", 2);
    pub(super) const ILLEGAL_ARGUMENT: Self = Self("IllegalArgumentException", -1);
    pub(super) const INCONSISTENT_TOPIC_ID: Self = Self("InconsistentTopicIdException", 103);
    pub(super) const INVALID_OFFSET: Self = Self("InvalidOffsetException", -1);
    pub(super) const INVALID_PRODUCER_EPOCH: Self = Self("InvalidProducerEpochException", 47);
    pub(super) const INVALID_RECORD: Self = Self("InvalidRecordException", 87);
    pub(super) const INVALID_TXN_STATE: Self = Self("InvalidTxnStateException", 48);
    pub(super) const KAFKA: Self = Self("KafkaException", -1);
    pub(super) const OFFSETS_OUT_OF_ORDER: Self = Self("OffsetsOutOfOrderException", -1);
    pub(super) const OFFSET_OUT_OF_RANGE: Self = Self("OffsetOutOfRangeException", 1);
    pub(super) const OUT_OF_ORDER_SEQUENCE: Self = Self("OutOfOrderSequenceException", 45);
    /// Records without a valid key.
    pub(super) const RECORD_VALIDATION: Self = Self("RecordValidationException", 87);
    pub(super) const RECORD_VALIDATION_TIMESTAMP: Self = Self("RecordValidationException", 32);
    pub(super) const RECORD_TOO_LARGE: Self = Self("RecordTooLargeException", 10);
    pub(super) const RECORD_BATCH_TOO_LARGE: Self = Self("RecordBatchTooLargeException", 18);
    pub(super) const SEGMENT_OFFSET_OVERFLOW: Self = Self("LogSegmentOffsetOverflowException", -1);
    pub(super) const TRANSACTION_COORDINATOR_FENCED: Self = Self("TransactionCoordinatorFencedException", 52);
    pub(super) const UNEXPECTED_APPEND_OFFSET: Self = Self("UnexpectedAppendOffsetException", -1);
    pub(super) const UNSUPPORTED_OPERATION: Self = Self("UnsupportedOperationException", -1);

    /// Returns the error with a text.
    pub(super) fn because(self, text: impl Display) -> Error {
        Error::Refused { error: self.0, code: self.1, text: text.to_string() }
    }

    /// Returns whether an error is this one.
    pub(super) fn is(self, of: &Error) -> bool {
        matches!(of, Error::Refused { error, .. } if *error == self.0)
    }
}
