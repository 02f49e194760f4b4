//! Products of stored matrices with rows of activations.
//!
//! Weights are expanded a panel of rows at a time, and every activation row passes over the panel while it is in the
//! cache. Panels run on all threads; how the work is cut never changes a sum (see `dot.rs`).

use super::workspace::{Tasks, Workspace};
use super::{blocks, dot};
use crate::{Matrix, Rows};
use rayon::prelude::*;
use std::ops::Range;

/// One matrix of a stack with the rows it is applied to.
pub(crate) struct Product<'a> {
    pub(crate) matrix: &'a Matrix,
    /// Which matrix of the stack.
    pub(crate) index: usize,
    /// Which of its rows: all of them but for grouped outputs.
    pub(crate) rows: Range<usize>,
    pub(crate) inputs: Vec<&'a [f32]>,
}

/// Weight rows expanded together: with 256 to 1,024 columns they stay in the first-level cache.
const PANEL_ROWS: usize = 16;
/// Activation rows that pass over a panel together.
const INPUT_ROWS: usize = 24;
/// Multiply-adds that make a task worth handing to another thread.
const TASK_PRODUCTS: usize = 1 << 18;

/// `matrix . row` for every row.
pub(crate) fn multiply(workspace: &Workspace, matrix: &Matrix, inputs: &Rows) -> Rows {
    let mut result = workspace.rows(inputs.len(), matrix.rows());
    let size = Size { values: inputs.len() * matrix.rows(), columns: matrix.columns() };
    multiply_all(workspace, size, result.values_mut(), || {
        vec![Product { matrix, index: 0, rows: 0..matrix.rows(), inputs: inputs.iter().collect() }]
    });
    result
}

/// Splits rows and outputs into `groups` equal parts and multiplies part by part.
pub(crate) fn multiply_groups(workspace: &Workspace, matrix: &Matrix, groups: usize, inputs: &Rows) -> Rows {
    let (columns, outputs) = (matrix.columns(), matrix.rows() / groups);
    let product = |group: usize| Product {
        matrix,
        index: 0,
        rows: group * outputs..(group + 1) * outputs,
        inputs: inputs.iter().map(|row| &row[group * columns..][..columns]).collect(),
    };
    let size = Size { values: inputs.len() * matrix.rows(), columns };
    let mut parts = workspace.take(size.values);
    multiply_all(workspace, size, &mut parts, || (0..groups).map(product).collect());
    let mut result = workspace.rows(inputs.len(), matrix.rows());
    workspace.work(|| {
        let parts: Vec<&[f32]> = parts.chunks_exact((inputs.len() * outputs).max(1)).collect();
        for row in 0..inputs.len() {
            for (out, part) in result.row_mut(row).chunks_exact_mut(outputs).zip(&parts) {
                out.copy_from_slice(&part[row * outputs..][..outputs]);
            }
        }
    });
    result
}

/// What products take, known before they are.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Results of all of them.
    pub(crate) values: usize,
    /// The most columns of a matrix.
    pub(crate) columns: usize,
}

/// All products, one behind the other in `results`, each as many rows as it has inputs.
pub(crate) fn multiply_all<'a>(
    workspace: &Workspace,
    size: Size,
    results: &mut [f32],
    products: impl FnOnce() -> Vec<Product<'a>>,
) {
    let mut panels = workspace.take(size.values);
    let room = workspace.tasks(scratch(size.columns));
    workspace.work(|| {
        let products = products();
        let mut rest = &mut panels[..];
        let tasks = products.iter().flat_map(tasks_of).map(|(product, rows)| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(rows.len() * product.inputs.len());
            rest = others;
            (product, rows, own)
        });
        run(tasks.collect(), |(product, rows, out)| panel(&room, product, rows, out));
        let (mut panels, mut results) = (&panels[..], results);
        for product in &products {
            let len = product.inputs.len() * product.rows.len();
            let (panel, result);
            (panel, panels) = panels.split_at(len);
            (result, results) = results.split_at_mut(len);
            transpose(panel, product.inputs.len(), product.rows.len(), result);
        }
    });
}

fn run<T: Send>(mut tasks: Vec<T>, work: impl Fn(T) + Sync + Send) {
    match tasks.len() {
        1 => tasks.drain(..).for_each(work),
        _ => tasks.into_par_iter().for_each(work),
    }
}

fn tasks_of<'a, 'p>(product: &'p Product<'a>) -> impl Iterator<Item = (&'p Product<'a>, Range<usize>)> + use<'a, 'p> {
    let work_per_row = product.matrix.columns() * product.inputs.len();
    let (rows, rows_per_task) = match work_per_row {
        0 => (0..0, 1),
        work => (product.rows.clone(), TASK_PRODUCTS.div_ceil(work).next_multiple_of(PANEL_ROWS)),
    };
    let end = rows.end;
    rows.step_by(rows_per_task).map(move |start| (product, start..(start + rows_per_task).min(end)))
}

/// Values that a task takes while it runs: a panel's weights, and its sums.
fn scratch(columns: usize) -> usize {
    PANEL_ROWS * columns + PANEL_ROWS * INPUT_ROWS
}

/// Outputs of some weight rows for all inputs: `[weight row][input]`.
fn panel(room: &Tasks<'_>, product: &Product<'_>, rows: Range<usize>, out: &mut [f32]) {
    let (columns, inputs) = (product.matrix.columns(), product.inputs.len());
    let mut scratch = room.take(scratch(columns));
    let (weights, sums) = scratch.split_at_mut(PANEL_ROWS * columns);
    for (out, start) in out.chunks_mut(PANEL_ROWS * inputs).zip(rows.step_by(PANEL_ROWS)) {
        let count = out.len() / inputs;
        let weights = &mut weights[..count * columns];
        blocks::expand(product.matrix.kind(), product.matrix.rows_bytes(product.index, start..start + count), weights);
        for (block, at) in product.inputs.chunks(INPUT_ROWS).zip((0..).step_by(INPUT_ROWS)) {
            let sums = &mut sums[..count * block.len()];
            dot::dot_rows(weights, block, columns, sums);
            for (out, sums) in out.chunks_exact_mut(inputs).zip(sums.chunks_exact(block.len())) {
                out[at..at + block.len()].copy_from_slice(sums);
            }
        }
    }
}

/// `[output][input]` to `inputs` rows of `outputs` values.
fn transpose(panel: &[f32], inputs: usize, outputs: usize, result: &mut [f32]) {
    if inputs == 1 {
        result.copy_from_slice(panel);
        return;
    }
    result.par_chunks_mut(16 * outputs).enumerate().for_each(|(block, rows)| {
        let first = block * 16;
        let count = rows.len() / outputs;
        for (output, values) in panel.chunks_exact(inputs.max(1)).enumerate() {
            for (row, &value) in values[first..first + count].iter().enumerate() {
                rows[row * outputs + output] = value;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_gpu::Memory;
    use ds4_units::{Layout, TensorType};

    fn matrix(rows: usize, columns: usize) -> (Matrix, Vec<f32>) {
        let values: Vec<f32> = (0..rows * columns).map(|i| ((i * 7919) % 613) as f32 / 306.0 - 1.0).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let len = bytes.len();
        let memory = Memory::host(bytes);
        (Matrix::new(TensorType::F32, Layout::Gguf, [1, rows, columns], memory, 0..len).unwrap(), values)
    }

    #[test]
    fn every_shape_gives_the_sums_of_its_rows_whatever_shares_the_call() {
        for (outputs, columns, inputs) in [(1, 1, 1), (17, 33, 1), (40, 256, 25), (3000, 64, 7), (5, 16, 50)] {
            let (matrix, weights) = matrix(outputs, columns);
            let x = Rows::from_values(
                columns,
                (0..inputs * columns).map(|i| ((i * 31) % 97) as f32 / 48.0 - 1.0).collect(),
            );
            let all = multiply(&Workspace::default(), &matrix, &x);
            for (index, row) in x.iter().enumerate() {
                let alone = multiply(&Workspace::default(), &matrix, &Rows::from_values(columns, row.to_vec()));
                assert_eq!(alone.row(0), all.row(index));
                for (output, &got) in all.row(index).iter().enumerate() {
                    let weights = &weights[output * columns..][..columns];
                    let want: f64 = weights.iter().zip(row).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
                    assert!((want - f64::from(got)).abs() < 1e-3, "{want} {got}");
                }
            }
        }
    }

    #[test]
    fn a_product_without_inputs_is_empty() {
        let (matrix, _) = matrix(4, 8);
        let inputs = Rows::from_values(8, Vec::new());
        assert!(multiply(&Workspace::default(), &matrix, &inputs).is_empty());
    }
}
