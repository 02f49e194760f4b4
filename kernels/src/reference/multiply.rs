//! Products of stored matrices with rows of activations.
//!
//! Weights are expanded a panel of rows at a time, and every activation row passes over the panel while it is in the
//! cache. Panels run on all threads; how the work is cut never changes a sum (see `dot.rs`).

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
pub(crate) fn multiply(matrix: &Matrix, inputs: &Rows) -> Rows {
    let product = Product { matrix, index: 0, rows: 0..matrix.rows(), inputs: inputs.iter().collect() };
    multiply_all(&[product]).pop().expect("one product gives one result")
}

/// Splits rows and outputs into `groups` equal parts and multiplies part by part.
pub(crate) fn multiply_groups(matrix: &Matrix, groups: usize, inputs: &Rows) -> Rows {
    let (columns, outputs) = (matrix.columns(), matrix.rows() / groups);
    let products: Vec<Product<'_>> = (0..groups)
        .map(|group| Product {
            matrix,
            index: 0,
            rows: group * outputs..(group + 1) * outputs,
            inputs: inputs.iter().map(|row| &row[group * columns..][..columns]).collect(),
        })
        .collect();
    let parts = multiply_all(&products);
    let mut result = Rows::zeros(inputs.len(), matrix.rows());
    for row in 0..inputs.len() {
        for (out, part) in result.row_mut(row).chunks_exact_mut(outputs).zip(&parts) {
            out.copy_from_slice(part.row(row));
        }
    }
    result
}

/// All products, each giving as many rows as it has inputs.
pub(crate) fn multiply_all(products: &[Product<'_>]) -> Vec<Rows> {
    let tasks: Vec<(usize, Range<usize>)> = products.iter().enumerate().flat_map(tasks_of).collect();
    let panels: Vec<Vec<f32>> = run(&tasks, |(product, rows)| panel(&products[*product], rows.clone()));
    let mut panels = tasks.into_iter().zip(panels).peekable();
    let mut results = Vec::with_capacity(products.len());
    for (index, product) in products.iter().enumerate() {
        let mut own = Vec::new();
        while let Some(((_, rows), panel)) = panels.next_if(|((owner, _), _)| *owner == index) {
            own.push((rows.start - product.rows.start, panel));
        }
        results.push(transpose(&own, product.inputs.len(), product.rows.len()));
    }
    results
}

fn run<T: Sync, R: Send>(tasks: &[T], work: impl Fn(&T) -> R + Sync + Send) -> Vec<R> {
    match tasks {
        [only] => vec![work(only)],
        _ => tasks.par_iter().map(work).collect(),
    }
}

fn tasks_of((index, product): (usize, &Product<'_>)) -> Vec<(usize, Range<usize>)> {
    let work_per_row = product.matrix.columns() * product.inputs.len();
    if work_per_row == 0 {
        return Vec::new();
    }
    let rows_per_task = TASK_PRODUCTS.div_ceil(work_per_row).next_multiple_of(PANEL_ROWS);
    product
        .rows
        .clone()
        .step_by(rows_per_task)
        .map(|start| (index, start..(start + rows_per_task).min(product.rows.end)))
        .collect()
}

/// Outputs of some weight rows for all inputs: `[weight row][input]`.
fn panel(product: &Product<'_>, rows: Range<usize>) -> Vec<f32> {
    let (columns, inputs) = (product.matrix.columns(), product.inputs.len());
    let mut out = vec![0.0; rows.len() * inputs];
    let mut weights = vec![0.0; PANEL_ROWS.min(rows.len()) * columns];
    let mut sums = vec![0.0; PANEL_ROWS * INPUT_ROWS.min(inputs)];
    for (out, start) in out.chunks_mut(PANEL_ROWS * inputs).zip(rows.clone().step_by(PANEL_ROWS)) {
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
    out
}

/// Panels of `[output][input]`, each with its first output, to `inputs` rows of `outputs` values.
fn transpose(panels: &[(usize, Vec<f32>)], inputs: usize, outputs: usize) -> Rows {
    let mut result = Rows::zeros(inputs, outputs);
    if inputs == 1 {
        for (start, panel) in panels {
            result.row_mut(0)[*start..start + panel.len()].copy_from_slice(panel);
        }
        return result;
    }
    result.values_mut().par_chunks_mut(16 * outputs).enumerate().for_each(|(block, rows)| {
        let first = block * 16;
        let count = rows.len() / outputs;
        for (start, panel) in panels {
            for (offset, values) in panel.chunks_exact(inputs).enumerate() {
                for (row, &value) in values[first..first + count].iter().enumerate() {
                    rows[row * outputs + start + offset] = value;
                }
            }
        }
    });
    result
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
            let all = multiply(&matrix, &x);
            for (index, row) in x.iter().enumerate() {
                let alone = multiply(&matrix, &Rows::from_values(columns, row.to_vec()));
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
        let product = Product { matrix: &matrix, index: 0, rows: 0..4, inputs: Vec::new() };
        assert!(multiply_all(&[product])[0].is_empty());
    }
}
