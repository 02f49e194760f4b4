//! Embeddings, value for value.

use crate::data::{assert_same_bits, matrix};
use crate::kit::{cpu, cpu_step, cuda, cuda_step};
use ds4_kernels::Backend;
use ds4_kernels::reference::blocks::SUPPORTED;

#[test]
fn every_type_of_table_gives_the_bits_of_the_cpu() {
    let cuda = cuda();
    let tokens = [0, 99, 3, 17, 16, 99];
    for kind in SUPPORTED {
        let table = matrix(kind, [1, 100, 768], 2);
        let want = cpu_step(&tokens, |step| cpu().embed(&cpu().matrix(table.clone()).expect("takes it"), step));
        let table = cuda.matrix(table).expect("takes it");
        let got = cuda_step(&cuda, &tokens, |step| cuda.download(cuda.embed(&table, step)).expect("computes"));
        assert_same_bits(&got, &want, &kind.to_string());
    }
}
