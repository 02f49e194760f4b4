//! What any bytes must keep, for the fuzz target and for the test that replays its seeds.

use ds4_banks::{Name, ReadFile, summarize, verify};
use std::io;

struct Given<'a>(&'a [u8]);

impl ReadFile for Given<'_> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let held = start.checked_add(buffer.len()).and_then(|end| self.0.get(start..end));
        buffer.copy_from_slice(held.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Any bytes are a conversation or a typed fault; what is accepted keeps its promises. True when accepted.
pub fn check(bytes: &[u8]) -> bool {
    let text = bytes.get(48..52).map_or(0, |len| u32::from_le_bytes(len.try_into().unwrap()) as usize);
    let text = 52_usize.checked_add(text).and_then(|end| bytes.get(52..end)).unwrap_or_default();
    let Ok(transcript) = verify(&Given(bytes), Name::of_text(text)).unwrap() else { return false };
    let summary = summarize(&Given(bytes)).unwrap().unwrap();
    assert_eq!(summary.tokens, transcript.len());
    assert_eq!(transcript.text(), text);
    assert_eq!(transcript.pieces().map(|piece| piece.tokens.len()).sum::<usize>(), transcript.tokens().len());
    true
}
