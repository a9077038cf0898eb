//! The JSON of fastjson, which brokers and their clients use for request bodies and for the files in `config`.
//!
//! It extends JSON by names without quotes (`{0:"a"}`), single quotes, and commas without a value between them. Half a surrogate
//! pair becomes `?`, as Java writes it. Objects as names, comments and Java's own notations (`new Date`, `Set[]`, `x'00'`) are
//! refused. Parsing takes linear time.

use std::borrow::Cow;

use memchr::memchr2;

/// Deepest allowed nesting. Values of a broker are nested five deep.
const DEEPEST: usize = 128;
/// Longest allowed number, in bytes. A 64-bit integer has at most twenty.
const LONGEST_NUMBER: usize = 40;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number without fraction and exponent.
    Integer(i64),
    /// Any other number, which is finite.
    Float(f64),
    /// A string.
    Text(Cow<'a, str>),
    /// Values in brackets.
    List(Vec<Value<'a>>),
    /// Members in their order; a name may occur twice.
    Map(Vec<(Cow<'a, str>, Value<'a>)>),
}

/// Parses a text and returns its value.
///
/// # Errors
/// The position, and the expected and the found text.
///
/// ```
/// use logdex::rocketmq::fastjson::{Value, parse};
/// assert_eq!(parse("{0:7}"), Ok(Value::Map(vec![("0".into(), Value::Integer(7))])));
/// assert_eq!(parse("{0:"), Err("at byte 3: expected a value, found the end".to_owned()));
/// ```
pub fn parse(text: &str) -> Result<Value<'_>, String> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.unexpected("the end")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Returns the text that is not read yet.
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn unexpected(&self, expected: &str) -> String {
        let found: String = self.rest().chars().take(20).collect();
        let found = if found.is_empty() { "the end".to_owned() } else { format!("{found:?}") };
        format!("at byte {}: expected {expected}, found {found}", self.at)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r' | 0x08 | 0x0c)) {
            self.at += 1;
        }
    }

    fn skip_commas(&mut self) {
        self.skip_space();
        while self.peek() == Some(b',') {
            self.at += 1;
            self.skip_space();
        }
    }

    /// Takes bytes of one kind, which is ASCII.
    fn take_while(&mut self, is_taken: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.bytes().position(|byte| !is_taken(byte)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn take_word(&mut self) -> &'a str {
        self.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
    }

    fn value(&mut self, depth: usize) -> Result<Value<'a>, String> {
        if depth > DEEPEST {
            return Err(self.unexpected(&format!("values that are nested at most {DEEPEST} deep")));
        }
        self.skip_space();
        let begin = self.at;
        match self.peek() {
            Some(b'{') => self.map(depth),
            Some(b'[') => self.list(depth),
            Some(quote @ (b'"' | b'\'')) => self.quoted(quote).map(Value::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => match self.take_word() {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                "null" => Ok(Value::Null),
                _ => {
                    self.at = begin;
                    Err(self.unexpected("a value"))
                }
            },
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value<'a>, String> {
        let mut values = Vec::new();
        self.at += 1;
        loop {
            self.skip_commas();
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(Value::List(values));
            }
            values.push(self.value(depth + 1)?);
            self.end_of_member(b']', "a comma or ]")?;
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value<'a>, String> {
        let mut members = Vec::new();
        self.at += 1;
        loop {
            self.skip_commas();
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(Value::Map(members));
            }
            let name = self.name()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("a colon"));
            }
            self.at += 1;
            members.push((name, self.value(depth + 1)?));
            self.end_of_member(b'}', "a comma or }")?;
        }
    }

    fn end_of_member(&mut self, end: u8, expected: &str) -> Result<(), String> {
        self.skip_space();
        match self.peek() {
            Some(found) if found == b',' || found == end => Ok(()),
            _ => Err(self.unexpected(expected)),
        }
    }

    fn name(&mut self) -> Result<Cow<'a, str>, String> {
        if let Some(quote @ (b'"' | b'\'')) = self.peek() {
            return self.quoted(quote);
        }
        let begin = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.take_word().is_empty() {
            self.at = begin;
            return Err(self.unexpected("a name"));
        }
        Ok(Cow::Borrowed(self.text.get(begin..self.at).unwrap_or_default()))
    }

    fn number(&mut self) -> Result<Value<'a>, String> {
        let begin = self.at;
        let text = self.take_while(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
        let number = if text.len() > LONGEST_NUMBER {
            None
        } else if text.contains(['.', 'e', 'E']) {
            text.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Float)
        } else {
            text.parse().ok().map(Value::Integer)
        };
        number.ok_or_else(|| {
            self.at = begin;
            self.unexpected("an integer of 64 bits or a finite number")
        })
    }

    fn quoted(&mut self, quote: u8) -> Result<Cow<'a, str>, String> {
        self.at += 1;
        let mut text = Cow::Borrowed("");
        loop {
            let rest = self.rest();
            let length = memchr2(quote, b'\\', rest.as_bytes()).unwrap_or(rest.len());
            let plain = rest.get(..length).unwrap_or_default();
            if text.is_empty() {
                text = Cow::Borrowed(plain);
            } else {
                text.to_mut().push_str(plain);
            }
            self.at += length;
            match self.peek() {
                None => return Err(self.unexpected("the closing quote")),
                Some(b'\\') => text.to_mut().push(self.escaped()?),
                Some(_) => {
                    self.at += 1;
                    return Ok(text);
                }
            }
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        let escape = self.rest().chars().nth(1);
        let found = match escape {
            Some(same @ ('"' | '\'' | '\\' | '/')) => same,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(digit @ '0'..='7') => char::from(digit as u8 - b'0'),
            Some('x') => {
                let code = self.hexadecimal(2, 2)?;
                self.at += 4;
                return Ok(char::from_u32(code).unwrap_or('?'));
            }
            Some('u') => return self.utf16(),
            _ => return Err(self.unexpected("an escape")),
        };
        self.at += 2;
        Ok(found)
    }

    /// Takes one UTF-16 unit in hexadecimal digits, or two units that are a surrogate pair.
    fn utf16(&mut self) -> Result<char, String> {
        let first = self.hexadecimal(2, 4)?;
        self.at += 6;
        if (0xd800..0xdc00).contains(&first)
            && self.rest().starts_with("\\u")
            && let second @ 0xdc00..0xe000 = self.hexadecimal(2, 4)?
        {
            self.at += 6;
            return Ok(char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)).unwrap_or('?'));
        }
        Ok(char::from_u32(first).unwrap_or('?'))
    }

    /// Returns the value of the hexadecimal digits at this distance from the current position.
    fn hexadecimal(&self, from: usize, digits: usize) -> Result<u32, String> {
        let text = self.rest().get(from..from + digits).unwrap_or_default();
        let is_plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = if is_plain { u32::from_str_radix(text, 16).ok() } else { None };
        value.ok_or_else(|| self.unexpected("an escape"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: &str) -> Value<'_> {
        Value::Text(value.into())
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn what_fastjson_takes_is_read() {
        let found = parse("{0:16,-1 : 2,a_$1:[,1,,2,],'b':'it\\'s',\"c\":{},\"d\":[null,true,false,-1.5e3]}").unwrap();
        let Value::Map(members) = found else { panic!("{found:?}") };
        let names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["0", "-1", "a_$1", "b", "c", "d"]);
        let values: Vec<Value<'_>> = members.into_iter().map(|(_, value)| value).collect();
        let integers = Value::List(vec![Value::Integer(1), Value::Integer(2)]);
        let mixed = vec![Value::Null, Value::Bool(true), Value::Bool(false), Value::Float(-1500.0)];
        let (first, map) = (Value::Integer(16), Value::Map(Vec::new()));
        assert_eq!(values, [first, Value::Integer(2), integers, text("it's"), map, Value::List(mixed)]);
    }

    #[test]
    fn escapes_are_characters_and_half_a_pair_is_a_question_mark() {
        let escapes = r#""\"\'\\\/\b\f\n\r\t\v\0\x41\u8ba2\ud83d\ude00|\ud800|\ude00|\ud800\u0041""#;
        assert_eq!(parse(escapes), Ok(text("\"'\\/\u{8}\u{c}\n\r\t\u{b}\0A\u{8ba2}\u{1f600}|?|?|?A")));
        for bad in [r#""\q""#, r#""\u12""#, r#""\u+123""#, r#""\u12\u{e9}""#, r#""\x4""#, r#""\"#] {
            assert!(error(bad).contains("expected"), "{bad}");
        }
    }

    #[test]
    fn numbers_are_bounded() {
        assert_eq!(parse("-9223372036854775808"), Ok(Value::Integer(i64::MIN)));
        for bad in ["9223372036854775808", "1e400", "-", "1-1", "1.2.3", &"9".repeat(1_000_000)] {
            assert!(
                error(bad).starts_with("at byte 0: expected an integer of 64 bits or a finite number"),
                "{bad:.40}"
            );
        }
    }

    #[test]
    fn an_error_names_the_place() {
        for (bad, expected) in [
            ("", "at byte 0: expected a value, found the end"),
            ("{1:2", "at byte 4: expected a comma or }, found the end"),
            ("[1 2]", "at byte 3: expected a comma or ], found \"2]\""),
            ("{{1:2}:3}", "at byte 1: expected a name, found \"{1:2}:3}\""),
            ("{\"a\" 1}", "at byte 5: expected a colon, found \"1}\""),
            ("nul", "at byte 0: expected a value, found \"nul\""),
            ("1 x", "at byte 2: expected the end, found \"x\""),
            ("\"a", "at byte 2: expected the closing quote, found the end"),
        ] {
            assert_eq!(error(bad), expected);
        }
        assert!(error(&"[".repeat(1_000_000)).contains("nested"));
    }

    #[test]
    fn long_texts_take_linear_time() {
        // A quadratic reader takes minutes for each of them.
        for part in ["\\\"", "\\u0041", ",", "1:", "9", " ", "[],"] {
            let long = part.repeat(2_000_000 / part.len());
            for open in ["\"", "[", "{", "{\"a\":\""] {
                _ = parse(&format!("{open}{long}"));
            }
        }
    }

    proptest! {
        #[test]
        fn json_is_read_as_it_is(value in any::<(i64, bool, String, Vec<String>, f64)>()) {
            let (integer, flag, name, texts, float) = value;
            let written = serde_json::json!([integer, flag, null, texts, float]);
            let written = serde_json::Value::from_iter([(name.clone(), written)]).to_string();
            let texts = Value::List(texts.into_iter().map(|each| Value::Text(each.into())).collect());
            let values = vec![Value::Integer(integer), Value::Bool(flag), Value::Null, texts, Value::Float(float)];
            prop_assert_eq!(parse(&written), Ok(Value::Map(vec![(name.into(), Value::List(values))])));
        }

        #[test]
        fn any_text_is_a_value_or_an_error(text in "[\\[\\]{}:,\"'\\\\u0-9a-f.e-]{0,40}") {
            _ = parse(&text);
        }
    }
}
