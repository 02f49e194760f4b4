//! A model that says what a script wants: everything around it is real, and nothing is computed.

use ds4_model::{
    BankError, BankFormat, BankImage, LogitsWanted, Model, ModelInfo, StepBatch, StepError, StepLogits, Tokenizer,
};
use ds4_units::{BankId, Bytes, TokenId, Tokens};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// From the prompt of a turn, control tokens spelled out, to the answer, control tokens spelled out.
pub(crate) type Script = fn(&str) -> String;

/// Answers by a script, token by token. Banks are lists of tokens, and can be cut anywhere.
pub(crate) struct ScriptedModel {
    info: ModelInfo,
    tokenizer: Arc<Tokenizer>,
    script: Script,
    /// Opens an answer.
    pub(crate) assistant: TokenId,
    /// Ends one.
    pub(crate) end: TokenId,
    /// How long a step takes.
    pub(crate) step: Duration,
    banks: BTreeMap<BankId, Bank>,
    next_bank: u32,
}

#[derive(Clone, Default)]
struct Bank {
    tokens: Vec<TokenId>,
    /// The answer to the prompt of this length: a script is asked once a turn.
    answer: Option<(usize, Vec<TokenId>)>,
}

impl ScriptedModel {
    /// A model that takes no time. Which tokens open and end an answer is for the caller to say.
    pub(crate) fn new(tokenizer: Arc<Tokenizer>, context: Tokens, script: Script) -> ScriptedModel {
        let info = ModelInfo {
            architecture: "scripted".into(),
            shape: "scripted".into(),
            trained_context: context,
            context,
            vocabulary: tokenizer.vocabulary_len(),
            prefill_rows: 512,
        };
        ScriptedModel {
            info,
            tokenizer,
            script,
            assistant: TokenId(u32::MAX),
            end: TokenId(u32::MAX),
            step: Duration::ZERO,
            banks: BTreeMap::new(),
            next_bank: 0,
        }
    }

    fn bank(&self, bank: BankId) -> Result<&Bank, BankError> {
        self.banks.get(&bank).ok_or(BankError::UnknownBank(bank))
    }

    fn insert(&mut self, bank: Bank) -> BankId {
        let id = BankId(self.next_bank);
        self.next_bank += 1;
        self.banks.insert(id, bank);
        id
    }

    /// The next token of a conversation: an answer begins two tokens after the last one that opens it (the second says
    /// whether it reasons).
    fn next(&self, bank: &mut Bank) -> TokenId {
        let opening = bank.tokens.iter().rposition(|&token| token == self.assistant);
        let begin = opening.map_or(bank.tokens.len(), |at| at + 2);
        if bank.answer.as_ref().is_none_or(|(at, _)| *at != begin) {
            let prompt: Vec<u8> = bank.tokens[..begin.min(bank.tokens.len())]
                .iter()
                .flat_map(|&token| self.tokenizer.token_bytes(token).unwrap_or_default())
                .copied()
                .collect();
            let text = (self.script)(&String::from_utf8_lossy(&prompt));
            bank.answer = Some((begin, self.tokenizer.encode(&self.tokenizer.parse_trusted(&text))));
        }
        let said = bank.tokens.len().saturating_sub(begin);
        let answer = bank.answer.as_ref().and_then(|(_, answer)| answer.get(said));
        answer.copied().unwrap_or(self.end)
    }
}

impl Model for ScriptedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn open_bank(&mut self) -> BankId {
        self.insert(Bank::default())
    }

    fn close_bank(&mut self, bank: BankId) {
        self.banks.remove(&bank);
    }

    fn frontier(&self, bank: BankId) -> Option<Tokens> {
        self.banks.get(&bank).map(|bank| Tokens(bank.tokens.len() as u32))
    }

    fn step(&mut self, batch: &StepBatch<'_>) -> Result<StepLogits, StepError> {
        std::thread::sleep(self.step);
        let (mut rows, mut values, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
        for segment in batch.segments {
            let mut bank = self.banks.remove(&segment.bank).ok_or(StepError::UnknownBank(segment.bank))?;
            if bank.tokens.is_empty() {
                tracing::info!("computing a prompt");
            }
            bank.tokens.extend_from_slice(segment.tokens);
            let next = (segment.logits != LogitsWanted::None).then(|| self.next(&mut bank));
            let greedy = segment.logits == LogitsWanted::Greedy;
            drawn.push(next.filter(|_| greedy));
            let wanted = next.filter(|_| !greedy);
            if let Some(next) = wanted {
                let row = values.len();
                values.resize(row + self.info.vocabulary, 0.0);
                values[row + next.index()] = 30.0;
            }
            rows.push(usize::from(wanted.is_some()));
            self.banks.insert(segment.bank, bank);
        }
        Ok(StepLogits::new(self.info.vocabulary, &rows, values).with_drawn(drawn))
    }

    fn checkpoint(&mut self, bank: BankId) -> Result<(), BankError> {
        self.bank(bank).map(|_| ())
    }

    fn restorable(&self, bank: BankId, to: Tokens) -> Result<Tokens, BankError> {
        self.bank(bank).map(|held| to.min(Tokens(held.tokens.len() as u32)))
    }

    fn truncate(&mut self, bank: BankId, to: Tokens) -> Result<Tokens, BankError> {
        let at = self.restorable(bank, to)?;
        let held = self.banks.get_mut(&bank).ok_or(BankError::UnknownBank(bank))?;
        held.tokens.truncate(at.index());
        Ok(at)
    }

    fn fork(&mut self, source: BankId, to: Tokens) -> Result<(BankId, Tokens), BankError> {
        let at = self.restorable(source, to)?;
        let tokens = self.bank(source)?.tokens[..at.index()].to_vec();
        Ok((self.insert(Bank { tokens, answer: None }), at))
    }

    /// Nothing is kept anywhere else: the server is started without a place for it.
    fn bank_format(&self) -> BankFormat {
        BankFormat { layout: "scripted".into(), block_tokens: Tokens(128), block: Bytes(0), recurrent: Bytes(0) }
    }

    fn export(&self, bank: BankId, _: usize) -> Result<BankImage, BankError> {
        self.bank(bank).map(|_| BankImage { blocks: Vec::new(), recurrent: Vec::new() })
    }

    fn import(&mut self, _: &[TokenId], _: &BankImage) -> Result<BankId, BankError> {
        Err(BankError::Image { problem: "a scripted bank cannot be brought back".into() })
    }

    fn resident_bytes(&self, bank: BankId) -> Result<Bytes, BankError> {
        Ok(Bytes(4 * self.bank(bank)?.tokens.len() as u64))
    }

    fn price(&self, tokens: Tokens) -> Bytes {
        Bytes(4 * u64::from(tokens.0))
    }
}
