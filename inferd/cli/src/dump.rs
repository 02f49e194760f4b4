//! Looking at tokens and probabilities.

use crate::error::CliError;
use ds4_engine::{Logprob, PositionLogprobs};
use ds4_host::printable;
use ds4_model::{Prompt, Tokenizer};
use ds4_units::TokenId;
use nix::fcntl::OFlag;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Prints a prompt's tokens, one a line: id, then spelling in quotes; control tokens without quotes.
pub(crate) fn tokens(prompt: &Prompt, tokenizer: &Tokenizer) -> Result<(), CliError> {
    let mut output = io::stdout().lock();
    for token in tokenizer.encode(prompt) {
        let line = format!("{:>7}  {}\n", token.0, spelling(token, tokenizer));
        output.write_all(line.as_bytes()).map_err(CliError::Output)?;
    }
    output.flush().map_err(CliError::Output)
}

fn spelling(token: TokenId, tokenizer: &Tokenizer) -> String {
    let bytes = tokenizer.token_bytes(token).unwrap_or_default();
    if tokenizer.is_control(token) {
        return printable(&String::from_utf8_lossy(bytes)).into_owned();
    }
    // Bytes that are no whole characters show as \xNN.
    let mut text = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        text.push_str(&printable(chunk.valid()).replace('"', "\\\""));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text.push('"');
    text
}

/// A file that takes the log-probabilities of one answer. Prompts are private: the file is readable by its owner
/// alone, and no link is followed to it.
pub(crate) struct LogprobFile {
    file: File,
    path: PathBuf,
    prompt: Vec<u32>,
    positions: Vec<Value>,
}

impl LogprobFile {
    /// Creates or empties the file, before anything is computed.
    pub(crate) fn create(path: &Path, prompt: &[TokenId]) -> Result<LogprobFile, CliError> {
        let wrong = |reason: String| CliError::Dump { path: path.to_owned(), reason };
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits());
        let file = options.open(path).map_err(|error| wrong(error.to_string()))?;
        let mode = file.metadata().map_err(|error| wrong(error.to_string()))?.mode();
        if mode & 0o077 != 0 {
            return Err(wrong(format!(
                "others may open it (mode {:03o}): chmod 600 it, or name a new file",
                mode & 0o777
            )));
        }
        file.set_len(0).map_err(|error| wrong(error.to_string()))?;
        let prompt = prompt.iter().map(|token| token.0).collect();
        Ok(LogprobFile { file, path: path.to_owned(), prompt, positions: Vec::new() })
    }

    pub(crate) fn push(&mut self, position: &PositionLogprobs, tokenizer: &Tokenizer) {
        let entry = |entry: &Logprob| {
            let bytes = tokenizer.token_bytes(entry.token).unwrap_or_default();
            json!({"id": entry.token.0, "text": String::from_utf8_lossy(bytes), "logprob": entry.logprob})
        };
        let mut value = entry(&position.drawn);
        value["top"] = position.top.iter().map(entry).collect();
        self.positions.push(value);
    }

    /// Writes what was collected.
    pub(crate) fn write(mut self) -> Result<(), CliError> {
        let value = json!({"prompt_ids": self.prompt, "positions": self.positions});
        let written = serde_json::to_writer_pretty(&mut self.file, &value).map_err(io::Error::from);
        let written = written.and_then(|()| self.file.write_all(b"\n"));
        written.map_err(|error| CliError::Dump { path: self.path, reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_dump_is_private_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dump.json");
        LogprobFile::create(&path, &[TokenId(7)]).unwrap().write().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let value: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(value, json!({"prompt_ids": [7], "positions": []}));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = LogprobFile::create(&path, &[]).err().unwrap().to_string();
        assert!(error.contains("mode 644"), "{error}");

        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).unwrap();
        assert!(LogprobFile::create(&link, &[]).is_err());
        assert!(!folder.path().join("elsewhere").exists());
    }
}
