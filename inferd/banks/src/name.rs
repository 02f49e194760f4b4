//! Names of files.

use sha1::{Digest as _, Sha1};
use std::fmt;

/// The name of a conversation's file: SHA-1 of its rendered text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub(crate) [u8; 20]);

const SUFFIX: &str = ".kv";
const TEMPORARY: &str = ".tmp";
const BAD: &str = ".bad";

/// What a file in an identity's folder is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A conversation.
    Stored(Name),
    /// A save that did not end.
    Temporary,
    /// A file that was set aside.
    Bad,
    /// Not ours.
    Other,
}

impl Name {
    /// The name of a conversation with this rendered text.
    pub fn of_text(text: &[u8]) -> Name {
        Name(Sha1::digest(text).into())
    }

    /// The name of a conversation's file called `file`; `None` for other files.
    pub fn of_file(file: &str) -> Option<Name> {
        match FileKind::of(file) {
            FileKind::Stored(name) => Some(name),
            _ => None,
        }
    }

    /// The file's name.
    pub fn file(&self) -> String {
        format!("{self}{SUFFIX}")
    }

    /// Under which the file is written before it is complete.
    pub(crate) fn temporary_file(&self) -> String {
        format!("{self}{SUFFIX}{TEMPORARY}")
    }

    /// Under which the file is set aside.
    pub(crate) fn bad_file(&self) -> String {
        format!("{self}{SUFFIX}{BAD}")
    }
}

impl FileKind {
    pub(crate) fn of(file: &str) -> FileKind {
        let Some((digest, rest)) = file.split_at_checked(40) else { return FileKind::Other };
        let mut bytes = [0; 20];
        if hex::decode_to_slice(digest, &mut bytes).is_err() {
            return FileKind::Other;
        }
        match rest.strip_prefix(SUFFIX) {
            // A name in capitals is the same conversation to other programs, but another file to us.
            Some("") if Name(bytes).file() == file => FileKind::Stored(Name(bytes)),
            Some(TEMPORARY) => FileKind::Temporary,
            Some(BAD) => FileKind::Bad,
            _ => FileKind::Other,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_a_file_is() {
        let name = Name::of_text(b"abc");
        assert_eq!(name.file(), "a9993e364706816aba3e25717850c26c9cd0d89d.kv");
        assert_eq!(FileKind::of(&name.file()), FileKind::Stored(name));
        assert_eq!(FileKind::of(&name.temporary_file()), FileKind::Temporary);
        assert_eq!(FileKind::of(&name.bad_file()), FileKind::Bad);
        for other in ["", "identity", "A9993E364706816ABA3E25717850C26C9CD0D89D.kv", "../x.kv", &"é".repeat(30)] {
            assert_eq!(FileKind::of(other), FileKind::Other, "{other}");
        }
    }
}
