//! Lines of numbers under names: on the screen, in a file, and back from it.

use crate::error::BenchError;
use std::path::{Path, PathBuf};

/// A number as it is written; empty where there is none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell(String);

impl Cell {
    /// A whole number.
    pub(crate) fn count(value: impl Into<u64>) -> Cell {
        Cell(value.into().to_string())
    }

    /// A number with so many places, if there is one.
    pub(crate) fn maybe(value: Option<f64>, places: usize) -> Cell {
        Cell(value.map_or(String::new(), |value| format!("{value:.places$}")))
    }
}

/// Lines of equal columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    columns: Vec<String>,
    lines: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without lines, whose head goes to standard output.
    pub(crate) fn begin(columns: &[&str]) -> Table {
        println!("{}", columns.join(","));
        Table { columns: columns.iter().map(|&name| name.to_owned()).collect(), lines: Vec::new() }
    }

    /// Adds a line, which goes to standard output.
    pub(crate) fn add(&mut self, line: Vec<Cell>) {
        println!("{}", join(&line));
        self.lines.push(line);
    }

    /// Points of a curve: the numbers of two columns, where both are there.
    pub(crate) fn curve(&self, x: &str, y: &str) -> Vec<(f64, f64)> {
        let place = |name: &str| self.columns.iter().position(|column| column == name);
        let (Some(x), Some(y)) = (place(x), place(y)) else { return Vec::new() };
        let number = |line: &[Cell], column: usize| line.get(column)?.0.parse::<f64>().ok();
        self.lines.iter().filter_map(|line| Some((number(line, x)?, number(line, y)?))).collect()
    }

    /// The first column's name.
    pub(crate) fn first_column(&self) -> &str {
        self.columns.first().map_or("", String::as_str)
    }

    /// Writes all lines as CSV.
    pub(crate) fn write(&self, path: &Path) -> Result<(), BenchError> {
        let lines = self.lines.iter().map(|line| join(line));
        let text: String = std::iter::once(self.columns.join(",")).chain(lines).map(|line| line + "\n").collect();
        std::fs::write(path, text)
            .map_err(|error| BenchError::Write { path: path.to_owned(), cause: error.to_string() })
    }

    fn parse(text: &str) -> Result<Table, String> {
        let mut lines = text.lines();
        let columns: Vec<String> = lines.next().unwrap_or_default().split(',').map(str::to_owned).collect();
        let cells = |line: &str| line.split(',').map(|cell| Cell(cell.to_owned())).collect::<Vec<_>>();
        let lines: Vec<Vec<Cell>> = lines.filter(|line| !line.is_empty()).map(cells).collect();
        match lines.iter().position(|line| line.len() != columns.len()) {
            Some(index) => Err(format!("line {} has other columns than the first", index + 2)),
            None => Ok(Table { columns, lines }),
        }
    }
}

fn join(line: &[Cell]) -> String {
    line.iter().map(|cell| cell.0.as_str()).collect::<Vec<_>>().join(",")
}

/// Tables from files, with the files' names.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<(String, Table)>, BenchError> {
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let table = text.and_then(|text| Table::parse(&text));
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        table.map(|table| (name, table)).map_err(|cause| BenchError::Read { path: path.clone(), cause })
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_empty_cells_are_no_points() {
        let mut table = Table::begin(&["ctx_tokens", "gen_tps"]);
        table.add(vec![Cell::count(2048u32), Cell::maybe(Some(61.234), 2)]);
        table.add(vec![Cell::count(4096u32), Cell::maybe(None, 2)]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.csv");
        table.write(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "ctx_tokens,gen_tps\n2048,61.23\n4096,\n");
        let read = read_all(&[path]).unwrap();
        assert_eq!(read, [("run".to_owned(), table)]);
        assert_eq!(read[0].1.curve("ctx_tokens", "gen_tps"), [(2048.0, 61.23)]);
    }

    #[test]
    fn a_line_with_other_columns_is_refused_with_its_number() {
        assert_eq!(Table::parse("a,b\n1,2\n3\n"), Err("line 3 has other columns than the first".into()));
    }
}
