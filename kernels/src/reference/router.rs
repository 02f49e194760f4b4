//! Choosing experts: the six best of biased scores, or six fixed ones per token.
//!
//! Formula: the public reference implementation's. The weights come from the scores without the bias.

use super::exp::exp;
use crate::Rows;
use crate::experts::{EXPERTS_USED, Routes};

/// Sums of chosen scores are not taken below the smallest normal half float.
const SMALLEST_SUM: f32 = 6.103_515_6e-5;

/// The routes of every row from the router's logits. `fixed` gives a row's experts where the layer routes by token;
/// otherwise the best of `score + bias` win, the lower id on ties.
pub(crate) fn route(
    logits: &Rows,
    bias: Option<&[f32]>,
    fixed: Option<&[[u32; EXPERTS_USED]]>,
    weight_scale: f32,
) -> Routes {
    let mut routes = Routes::default();
    for (row, logits) in logits.iter().enumerate() {
        let scores: Vec<f32> = logits.iter().map(|&logit| softplus(logit).sqrt()).collect();
        let experts = match fixed {
            Some(fixed) => fixed[row],
            None => best(&scores, bias),
        };
        let chosen = experts.map(|expert| scores[expert as usize]);
        let sum = chosen.iter().sum::<f32>().max(SMALLEST_SUM);
        routes.experts.push(experts);
        routes.weights.push(chosen.map(|score| score / sum * weight_scale));
    }
    routes
}

fn softplus(x: f32) -> f32 {
    x.max(0.0) + exp(-x.abs()).ln_1p()
}

fn best(scores: &[f32], bias: Option<&[f32]>) -> [u32; EXPERTS_USED] {
    let biased = |expert: usize| scores[expert] + bias.map_or(0.0, |bias| bias[expert]);
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // A stable sort keeps the lower id first on ties.
    order.sort_by(|&a, &b| biased(b).total_cmp(&biased(a)));
    std::array::from_fn(|rank| order[rank] as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lower_id_and_the_bias_chooses_but_does_not_weigh() {
        let logits = Rows::from_values(8, vec![1.0; 8]);
        let routes = route(&logits, None, None, 1.5);
        assert_eq!(routes.experts[0], [0, 1, 2, 3, 4, 5]);
        let bias = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0];
        let routes = route(&logits, Some(&bias), None, 1.5);
        assert_eq!(routes.experts[0], [7, 6, 0, 1, 2, 3]);
        assert!(routes.weights[0].iter().all(|&weight| (weight - 0.25).abs() < 1e-6));
    }
}
