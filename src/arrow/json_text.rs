//! Columns of decoded bodies as JSON.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, UnionArray};
use arrow_json::EncoderOptions;
use arrow_json::writer::{Encoder, EncoderFactory, NullableEncoder, make_encoder};
use arrow_schema::{ArrowError, DataType, FieldRef};

/// Returns the JSON of each value that is not null.
pub(crate) fn json_texts(field: &FieldRef, array: &dyn Array) -> Result<Vec<Option<Vec<u8>>>, ArrowError> {
    let options = EncoderOptions::default().with_explicit_nulls(true).with_encoder_factory(Arc::new(Unions));
    let mut encoder = make_encoder(field, array, &options)?;
    let texts = (0..array.len()).map(|row| {
        let mut bytes = Vec::new();
        array.is_valid(row).then(|| encoder.encode(row, &mut bytes)).map(|()| bytes)
    });
    Ok(texts.collect())
}

/// Encodes unions of Avro, which `arrow-json` does not, as the value alone.
#[derive(Debug)]
struct Unions;

struct UnionEncoder<'a> {
    union: &'a UnionArray,
    members: Vec<(i8, NullableEncoder<'a>)>,
}

impl EncoderFactory for Unions {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let Some((union, DataType::Union(fields, _))) = array.as_union_opt().map(|union| (union, union.data_type()))
        else {
            return Ok(None);
        };
        let members = fields.iter().map(|(id, field)| Ok((id, make_encoder(field, union.child(id), options)?)));
        let members = members.collect::<Result<_, ArrowError>>()?;
        Ok(Some(NullableEncoder::new(Box::new(UnionEncoder { union, members }), union.logical_nulls())))
    }
}

impl Encoder for UnionEncoder<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let (id, at) = (self.union.type_id(row), self.union.value_offset(row));
        if let Some((_, member)) = self.members.iter_mut().find(|(known, _)| *known == id) {
            member.encode(at, out);
        }
    }
}
