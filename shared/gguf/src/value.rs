//! The metadata value types of GGUF, as data and as bytes.

use crate::cursor::Cursor;
use crate::header::HeaderError;
use crate::limits::STRING_MAX;
use std::fmt;
use std::io::Read;

/// The format's id of a string value.
const STRING: u32 = 8;
/// The format's id of an array value.
const ARRAY: u32 = 9;
/// Elements reserved ahead for an array of strings, whose size in memory is more than in the file.
const STRINGS_AHEAD: u64 = 65_536;

macro_rules! scalar_values {
    ($($(#[$doc:meta])* $name:ident($type:ty) = $id:literal;)*) => {
        /// One metadata value.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Value {
            $($(#[$doc])* $name($type),)*
            /// A truth value.
            Bool(bool),
            /// UTF-8 text.
            String(String),
            /// Values of one type.
            Array(Array),
        }

        /// A metadata array: the element type, then the elements.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Array {
            $($(#[$doc])* $name(Vec<$type>),)*
            /// Truth values.
            Bool(Vec<bool>),
            /// UTF-8 texts.
            String(Vec<String>),
        }

        impl Value {
            /// What the type is called in messages.
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Value::$name(_) => stringify!($type),)*
                    Value::Bool(_) => "bool",
                    Value::String(_) => "string",
                    Value::Array(array) => array.type_name(),
                }
            }

            /// Reads the value of `key`, of the type with this id.
            pub(crate) fn read<R: Read>(cursor: &mut Cursor<R>, key: &str, id: u32) -> Result<Value, HeaderError> {
                match id {
                    $($id => Ok(Value::$name(<$type>::from_le_bytes(cursor.bytes("a metadata value")?))),)*
                    7 => {
                        let [byte] = cursor.bytes("a metadata value")?;
                        Ok(Value::Bool(truth(byte, key)?))
                    }
                    STRING => Ok(Value::String(cursor.string("a string value", STRING_MAX)?)),
                    ARRAY => Ok(Value::Array(Array::read(cursor, key)?)),
                    _ => Err(HeaderError::UnknownValueType { key: key.to_owned(), id }),
                }
            }

            /// Appends the type id and the value in the format's encoding.
            pub(crate) fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Value::$name(value) => {
                        out.extend(u32::to_le_bytes($id));
                        out.extend(value.to_le_bytes());
                    })*
                    Value::Bool(value) => {
                        out.extend(7u32.to_le_bytes());
                        out.push(u8::from(*value));
                    }
                    Value::String(text) => {
                        out.extend(STRING.to_le_bytes());
                        write_string(text, out);
                    }
                    Value::Array(array) => {
                        out.extend(ARRAY.to_le_bytes());
                        array.write(out);
                    }
                }
            }
        }

        /// Shows a number as itself, a text in quotes, an array as its length and type.
        impl fmt::Display for Value {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Value::$name(value) => write!(f, "{value}"),)*
                    Value::Bool(value) => write!(f, "{value}"),
                    Value::String(text) => write!(f, "{text:?}"),
                    Value::Array(array) => write!(f, "{} {}", array.len(), array.type_name()),
                }
            }
        }

        impl Array {
            /// What the type is called in messages.
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Array::$name(_) => concat!("array of ", stringify!($type)),)*
                    Array::Bool(_) => "array of bool",
                    Array::String(_) => "array of string",
                }
            }

            /// Number of elements.
            pub fn len(&self) -> usize {
                match self {
                    $(Array::$name(values) => values.len(),)*
                    Array::Bool(values) => values.len(),
                    Array::String(values) => values.len(),
                }
            }

            fn read<R: Read>(cursor: &mut Cursor<R>, key: &str) -> Result<Array, HeaderError> {
                let id = u32::from_le_bytes(cursor.bytes("an array's element type")?);
                let count = u64::from_le_bytes(cursor.bytes("an array's length")?);
                match id {
                    $($id => Ok(Array::$name(numbers(cursor, key, count, <$type>::from_le_bytes)?)),)*
                    7 => {
                        let bytes = numbers(cursor, key, count, |[byte]: [u8; 1]| byte)?;
                        Ok(Array::Bool(bytes.into_iter().map(|byte| truth(byte, key)).collect::<Result<_, _>>()?))
                    }
                    STRING => Ok(Array::String(strings(cursor, key, count)?)),
                    ARRAY => Err(HeaderError::NestedArray { key: key.to_owned() }),
                    _ => Err(HeaderError::UnknownValueType { key: key.to_owned(), id }),
                }
            }

            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Array::$name(values) => {
                        write_head($id, values.len(), out);
                        values.iter().for_each(|value| out.extend(value.to_le_bytes()));
                    })*
                    Array::Bool(values) => {
                        write_head(7, values.len(), out);
                        out.extend(values.iter().map(|&value| u8::from(value)));
                    }
                    Array::String(values) => {
                        write_head(STRING, values.len(), out);
                        values.iter().for_each(|text| write_string(text, out));
                    }
                }
            }
        }
    };
}

scalar_values! {
    /// 8 bits, unsigned.
    U8(u8) = 0;
    /// 8 bits, signed.
    I8(i8) = 1;
    /// 16 bits, unsigned.
    U16(u16) = 2;
    /// 16 bits, signed.
    I16(i16) = 3;
    /// 32 bits, unsigned.
    U32(u32) = 4;
    /// 32 bits, signed.
    I32(i32) = 5;
    /// 32-bit floating point.
    F32(f32) = 6;
    /// 64 bits, unsigned.
    U64(u64) = 10;
    /// 64 bits, signed.
    I64(i64) = 11;
    /// 64-bit floating point.
    F64(f64) = 12;
}

impl Array {
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}

fn truth(byte: u8, key: &str) -> Result<bool, HeaderError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(HeaderError::BadBool { key: key.to_owned(), byte }),
    }
}

/// Reads `count` numbers of `N` bytes. They take as much memory as file, which `claim` has bounded.
fn numbers<R: Read, T, const N: usize>(
    cursor: &mut Cursor<R>,
    key: &str,
    count: u64,
    from: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, HeaderError> {
    claim_array(cursor, key, count, N as u64)?;
    let mut values = Vec::with_capacity(count as usize);
    for _ in 0..count {
        values.push(from(cursor.bytes("an array element")?));
    }
    Ok(values)
}

fn strings<R: Read>(cursor: &mut Cursor<R>, key: &str, count: u64) -> Result<Vec<String>, HeaderError> {
    claim_array(cursor, key, count, size_of::<u64>() as u64)?;
    let mut values = Vec::with_capacity(count.min(STRINGS_AHEAD) as usize);
    for _ in 0..count {
        values.push(cursor.string("a string in an array", STRING_MAX)?);
    }
    Ok(values)
}

/// Refuses an array that cannot fit what is left of the file, before anything is allocated for it.
fn claim_array<R>(cursor: &Cursor<R>, key: &str, count: u64, element: u64) -> Result<(), HeaderError> {
    match count.checked_mul(element) {
        Some(len) if len <= cursor.remaining() => cursor.claim(len),
        _ => Err(HeaderError::ArrayPastEnd { key: key.to_owned(), count, element, remaining: cursor.remaining() }),
    }
}

fn write_head(id: u32, count: usize, out: &mut Vec<u8>) {
    out.extend(id.to_le_bytes());
    out.extend((count as u64).to_le_bytes());
}

/// Appends a string in the format's encoding: length, then bytes.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
