//! Who still holds weights of an owner that is gone.
//!
//! Memory that a worker has mapped outlives its owner. A new owner that finds it missing should say where it is.

use ds4_units::Bytes;
use std::fs;

/// A process that has weights of an owner of this name mapped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) bytes: Bytes,
}

/// All such processes that this one may look at. `prefix` begins the names of the owner's ranges. Reads `/proc`.
pub(crate) fn holders(prefix: &str) -> Vec<Holder> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut holders: Vec<Holder> = pids
        .filter_map(|pid| {
            // A process that has ended meanwhile, or is another user's, is not counted.
            let bytes = mapped(&fs::read_to_string(format!("/proc/{pid}/maps")).ok()?, prefix);
            (bytes > Bytes::ZERO).then_some(Holder { pid, bytes })
        })
        .collect();
    holders.sort_by_key(|holder| (std::cmp::Reverse(holder.bytes), holder.pid));
    holders
}

/// Bytes of a memory map that lie in memory files whose names begin like this.
fn mapped(maps: &str, prefix: &str) -> Bytes {
    let lens = maps.lines().filter_map(|line| {
        let (fields, name) = line.split_once("/memfd:")?;
        if !name.starts_with(prefix) {
            return None;
        }
        let (start, end) = fields.split(' ').next()?.split_once('-')?;
        u64::from_str_radix(end, 16).ok()?.checked_sub(u64::from_str_radix(start, 16).ok()?)
    });
    Bytes(lens.fold(0u64, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_of_this_name_are_counted() {
        let maps = "7f0000000000-7f0000100000 r--s 00000000 00:01 5 /memfd:ds4-weights-base-000 (deleted)\n\
                    7f0000200000-7f0000201000 r--s 00000000 00:01 6 /memfd:ds4-weights-base-001 (deleted)\n\
                    7f0000300000-7f0000301000 r--s 00000000 00:01 6 /memfd:ds4-other-base-001 (deleted)\n\
                    7f0000400000-7f0000401000 r-xp 00000000 08:01 6 /usr/lib/libc.so\n";
        assert_eq!(mapped(maps, "ds4-weights-"), Bytes(0x101000));
    }
}
