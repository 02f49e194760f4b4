//! Checksums for made-up files.

const HEAD: usize = 52;
const FRONT: usize = 224;

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// Makes all checksums right again, so that what they cover is believed as far as it goes.
pub fn seal(bytes: &mut [u8]) {
    let _ = try_seal(bytes);
}

/// `None` when the file is too short for what it says of itself.
fn try_seal(bytes: &mut [u8]) -> Option<()> {
    let front = HEAD.checked_add(word(bytes, HEAD - 4)?)?;
    let sections = word(bytes, front.checked_add(8)?)?;
    let table = front.checked_add(FRONT)?;
    let table_end = table.checked_add(sections.checked_mul(16)?)?;
    bytes.get(..table_end)?;
    let mut at = table_end;
    for entry in (table..table_end).step_by(16) {
        let len = u64::from_le_bytes(bytes[entry + 8..entry + 16].try_into().ok()?) as usize;
        let Some(content) = at.checked_add(len).and_then(|end| bytes.get(at..end)) else { break };
        let crc = crc32fast::hash(content).to_le_bytes();
        bytes[entry + 4..entry + 8].copy_from_slice(&crc);
        at += len;
    }
    for (covered, place) in [(table..table_end, front + 12), (0..HEAD, front + 16), (front..front + 220, front + 220)] {
        let crc = crc32fast::hash(&bytes[covered]).to_le_bytes();
        bytes[place..place + 4].copy_from_slice(&crc);
    }
    Some(())
}
