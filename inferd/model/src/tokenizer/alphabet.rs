//! The byte alphabet of byte-level BPE: every byte is spelled as one printable character.
//!
//! Printable Latin-1 characters spell themselves; the other 68 bytes, in order, are U+0100 and up. The scheme comes
//! from GPT-2; the vocabulary's tokens are stored in it.

/// Both directions of the alphabet.
pub(super) struct Alphabet {
    of_byte: [char; 256],
    /// Index: code point. All of the alphabet lies below U+0144.
    of_char: [Option<u8>; 0x144],
}

impl Alphabet {
    pub(super) fn new() -> Alphabet {
        let mut alphabet = Alphabet { of_byte: ['\0'; 256], of_char: [None; 0x144] };
        let mut next_stand_in = 0x100;
        for byte in 0..=u8::MAX {
            let code_point = match byte {
                b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => u32::from(byte),
                _ => {
                    next_stand_in += 1;
                    next_stand_in - 1
                }
            };
            let c = char::from_u32(code_point).unwrap_or_default();
            alphabet.of_byte[usize::from(byte)] = c;
            alphabet.of_char[code_point as usize] = Some(byte);
        }
        alphabet
    }

    /// The character that spells a byte.
    pub(super) fn char_of(&self, byte: u8) -> char {
        self.of_byte[usize::from(byte)]
    }

    /// Appends the spelling of bytes.
    pub(super) fn spell(&self, bytes: &[u8], out: &mut String) {
        out.extend(bytes.iter().map(|&byte| self.char_of(byte)));
    }

    /// Appends the bytes a spelling stands for. A spelling with characters outside the alphabet stands for itself.
    pub(super) fn read(&self, spelling: &str, out: &mut Vec<u8>) {
        let start = out.len();
        for c in spelling.chars() {
            match self.of_char.get(c as usize).copied().flatten() {
                Some(byte) => out.push(byte),
                None => {
                    out.truncate(start);
                    out.extend_from_slice(spelling.as_bytes());
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_spelled_by_its_own_character_and_read_back() {
        let alphabet = Alphabet::new();
        let bytes: Vec<u8> = (0..=255).collect();
        let mut spelled = String::new();
        alphabet.spell(&bytes, &mut spelled);
        let mut read = Vec::new();
        alphabet.read(&spelled, &mut read);
        assert_eq!(read, bytes);
        assert_eq!((alphabet.char_of(b' '), alphabet.char_of(b'\n'), alphabet.char_of(0xAD)), ('Ġ', 'Ċ', 'Ń'));
    }

    #[test]
    fn a_spelling_outside_the_alphabet_stands_for_itself() {
        let mut read = Vec::new();
        Alphabet::new().read("a｜b", &mut read);
        assert_eq!(read, "a｜b".as_bytes());
    }
}
