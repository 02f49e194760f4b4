//! The repository's files, and Rust sources as tokens: no comments, each token with its line and whether only tests
//! compile it.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The folder that holds the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests crate lies in the workspace").to_path_buf()
}

/// Every file below `folder`, as a path relative to the workspace with `/` between its parts, in a fixed order.
/// Build outputs and folders whose name starts with a dot are left out.
pub(crate) fn files_below(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    walk(&root().join(folder), folder, &mut found);
    found.sort();
    found
}

fn walk(folder: &Path, name: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let entry = entry.expect("a readable folder");
        let file_name = entry.file_name().into_string().expect("file names are UTF-8");
        if file_name == "target" || file_name.starts_with('.') {
            continue;
        }
        let name = if name.is_empty() { file_name } else { format!("{name}/{file_name}") };
        let kind = entry.file_type().expect("a readable folder");
        if kind.is_dir() {
            walk(&entry.path(), &name, found);
        } else if kind.is_file() {
            found.push(name);
        }
    }
}

/// One token of a Rust file. Groups are flattened: their delimiters are tokens of their own.
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
    /// Under `#[cfg(test)]` or `#[test]`.
    pub(crate) only_in_tests: bool,
}

/// A Rust source file.
pub(crate) struct Source {
    /// Relative to the workspace.
    pub(crate) path: String,
    pub(crate) tokens: Vec<Token>,
}

impl Source {
    /// Lies in a folder that only tests, benches or fuzz targets are built from.
    pub(crate) fn is_test_file(&self) -> bool {
        self.path.starts_with("tests/")
            || ["/tests/", "/benches/", "/fuzz/"].iter().any(|folder| self.path.contains(folder))
    }

    /// Is a `config.rs`, or one of its modules.
    pub(crate) fn is_config(&self) -> bool {
        self.file_name() == "config.rs" || self.path.contains("/config/")
    }

    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The lines at which `pattern`, a sequence of tokens, begins outside tests.
    pub(crate) fn lines_with<'a>(&'a self, pattern: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
        self.tokens
            .windows(pattern.len())
            .filter(move |window| !window[0].only_in_tests && window.iter().zip(pattern).all(|(t, p)| t.text == *p))
            .map(|window| window[0].line)
    }
}

/// Every Rust file of the workspace.
pub(crate) fn rust_sources() -> Vec<Source> {
    files_below("").into_iter().filter(|path| path.ends_with(".rs")).map(read_source).collect()
}

fn read_source(path: String) -> Source {
    let text = fs::read_to_string(root().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    parse(path, &text)
}

fn parse(path: String, text: &str) -> Source {
    let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path} is not Rust: {error}"));
    let mut tokens = Vec::new();
    flatten(stream, false, &mut tokens);
    Source { path, tokens }
}

fn flatten(stream: TokenStream, only_in_tests: bool, out: &mut Vec<Token>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    // Set by a test attribute, until the item under it ends with its body or a semicolon.
    let mut in_test_item = false;
    for (index, tree) in trees.iter().enumerate() {
        in_test_item |= is_test_attribute(&trees, index);
        let only_in_tests = only_in_tests || in_test_item;
        let mut push = |text: String, line: usize| out.push(Token { text, line, only_in_tests });
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::None => ("", ""),
                };
                push(open.to_owned(), group.span_open().start().line);
                flatten(group.stream(), only_in_tests, out);
                out.push(Token { text: close.to_owned(), line: group.span_close().start().line, only_in_tests });
                in_test_item &= group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Punct(punct) => {
                push(punct.as_char().to_string(), punct.span().start().line);
                in_test_item &= punct.as_char() != ';';
            }
            other => push(other.to_string(), other.span().start().line),
        }
    }
}

/// Whether `#[test]` or `#[cfg(test)]` begins at `index`.
fn is_test_attribute(trees: &[TokenTree], index: usize) -> bool {
    let (TokenTree::Punct(hash), Some(TokenTree::Group(group))) = (&trees[index], trees.get(index + 1)) else {
        return false;
    };
    let text: String = group.stream().to_string().split_whitespace().collect();
    hash.as_char() == '#' && group.delimiter() == Delimiter::Bracket && (text == "test" || text == "cfg(test)")
}

#[test]
fn code_is_seen_and_comments_and_tests_are_told_apart() {
    let text = r#"
        // std::env::var("A")
        const TEXT: &str = "std::env::var";
        fn setting() { std::env::var("B"); }
        #[cfg(test)]
        mod tests {
            fn helper() { std::env::var("C"); }
        }
        #[test]
        fn sentence() { std::env::var("D"); }
        fn after() -> u8 { match 0 { _ => std::env::var("E") } }
    "#;
    let source = parse("shared/x/src/lib.rs".to_owned(), text);
    let lines: Vec<usize> = source.lines_with(&["env", ":", ":", "var"]).collect();
    assert_eq!(lines, [4, 11]);
}
