//! Routing against the CPU's.

use crate::data::rows;
use crate::kit::{TestCuda, cpu, cpu_step, cuda, cuda_step};
use ds4_kernels::backend::Routing;
use ds4_kernels::experts::{EXPERTS_USED, ExpertConstants, Routes};
use ds4_kernels::{Backend, Rows};

const CONSTANTS: ExpertConstants = ExpertConstants { weight_scale: 1.5, clamp: 10.0 };

fn assert_equal(got: &Routes, want: &Routes) {
    assert_eq!(got.experts, want.experts);
    for (got, want) in got.weights.iter().flatten().zip(want.weights.iter().flatten()) {
        assert!((got - want).abs() <= 1e-6 * want.abs(), "{got} is not {want}");
    }
}

fn best(cuda: &TestCuda, logits: &Rows, bias: Option<Vec<f32>>) -> (Routes, Routes) {
    let tokens = vec![0; logits.len()];
    let routing = Routing::Best { bias: bias.clone() };
    let want = cpu_step(&tokens, |step| cpu().route(step, logits, &routing, &CONSTANTS));
    let routing = Routing::Best { bias: bias.map(|bias| cuda.vector(bias).expect("takes it")) };
    let logits = cuda.upload(logits).expect("takes it");
    let got = cuda_step(cuda, &tokens, |step| {
        cuda.download_routes(&cuda.route(step, &logits, &routing, &CONSTANTS)).expect("computes")
    });
    (got, want)
}

#[test]
fn the_best_experts_are_those_of_the_cpu() {
    for (experts, batch) in [(6, 1), (7, 3), (64, 5), (256, 130), (384, 33), (1024, 2)] {
        let mut logits = rows(batch, experts, experts as u64);
        logits.values_mut().iter_mut().for_each(|logit| *logit *= 6.0);
        let bias = (0..experts).map(|expert| (expert % 7) as f32 / 10.0).collect();
        let (got, want) = best(&cuda(), &logits, None);
        assert_equal(&got, &want);
        let (got, want) = best(&cuda(), &logits, Some(bias));
        assert_equal(&got, &want);
    }
}

#[test]
fn routing_under_a_sanitizer() {
    for (experts, batch) in [(7, 3), (256, 9)] {
        let (got, want) = best(&cuda(), &rows(batch, experts, 5), Some(vec![0.1; experts]));
        assert_equal(&got, &want);
    }
}

#[test]
fn ties_go_to_the_lower_id() {
    let (got, want) = best(&cuda(), &Rows::from_values(48, vec![1.0; 96]), None);
    assert_eq!(got.experts, [[0, 1, 2, 3, 4, 5]; 2]);
    assert_equal(&got, &want);
}

#[test]
fn a_logit_that_is_no_number_still_gives_six_different_experts() {
    let mut logits = rows(1, 32, 1);
    logits.values_mut()[3] = f32::NAN;
    logits.values_mut()[9] = f32::INFINITY;
    let (got, _) = best(&cuda(), &logits, None);
    let mut experts = got.experts[0].to_vec();
    experts.sort_unstable();
    experts.dedup();
    assert!(experts.len() == EXPERTS_USED && experts.iter().all(|&expert| expert < 32), "{experts:?}");
}

#[test]
fn fixed_experts_follow_the_token() {
    let cuda = cuda();
    let table: Vec<[u32; EXPERTS_USED]> =
        (0..40).map(|token| std::array::from_fn(|rank| (token * 5 + rank as u32 * 3) % 16)).collect();
    let tokens = [39, 0, 7, 7, 21];
    let logits = rows(tokens.len(), 16, 8);
    let routing = Routing::ByToken(cpu().expert_table(table.clone()).expect("takes it"));
    let want = cpu_step(&tokens, |step| cpu().route(step, &logits, &routing, &CONSTANTS));
    let routing = Routing::ByToken(cuda.expert_table(table).expect("takes it"));
    let logits = cuda.upload(&logits).expect("takes it");
    let got = cuda_step(&cuda, &tokens, |step| {
        cuda.download_routes(&cuda.route(step, &logits, &routing, &CONSTANTS)).expect("computes")
    });
    assert_equal(&got, &want);
}
