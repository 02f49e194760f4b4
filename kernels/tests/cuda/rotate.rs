//! Rotary position embedding.

use crate::kit::{assert_close, cuda, down, rows, up};
use ds4_kernels::Backend;
use ds4_kernels::kv_rows::PlainRows;
use ds4_kernels::reference::Cpu;
use ds4_kernels::rope::{Rope, Stretch};
use ds4_kernels::step::Step;
use ds4_units::{TokenId, TokenPos};

fn step<B>(positions: &[u32]) -> Step<'static, B> {
    let tokens = vec![TokenId(0); positions.len()];
    Step { tokens, positions: positions.iter().map(|&at| TokenPos(at)).collect(), segments: vec![], wanted: vec![] }
}

#[test]
fn heads_turn_as_on_the_cpu_at_any_position_and_back() {
    let cuda = cuda();
    let stretch = Stretch { factor: 16.0, original_context: 65_536.0, beta_fast: 32.0, beta_slow: 1.0 };
    let positions = [0, 1, 127, 128, 65_535, 1_048_575];
    for rope in [Rope::new(10_000.0, None), Rope::new(160_000.0, Some(stretch))] {
        for (heads, width) in [(64, 512), (1, 512), (64, 128), (3, 192)] {
            let input = rows(21, positions.len(), heads * width);
            let mut want = input.clone();
            let cpu = Cpu::<PlainRows>::new();
            cpu.rotate(&mut want, width, &rope, &step(&positions));
            let on_device = step(&positions);
            cuda.prepare(&on_device).unwrap();
            let mut got = up(&cuda, &input);
            cuda.rotate(&mut got, width, &rope, &on_device);
            let mut back = up(&cuda, &want);
            cuda.rotate_back(&mut back, width, &rope, &on_device);
            assert_close(&format!("rotate {heads} x {width}"), &down(&cuda, got), &want, 2e-7);
            assert_close(&format!("rotate back {heads} x {width}"), &down(&cuda, back), &input, 1e-6);
        }
    }
}
