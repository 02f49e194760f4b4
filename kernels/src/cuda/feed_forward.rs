//! The feed-forward site: the shared expert's products over all rows, the routed experts' over rows grouped by expert.

use super::batch;
use super::device::Device;
use super::experts::{GroupedRoutes, Slots};
use super::few;
use super::gemm::{self, Gating};
use super::gemm_operand::{self, Precision};
use super::matrix::DeviceMatrix;
use super::multiply::{self, only};
use super::multiply_plan::FEW_ROWS;
use super::operand::{self, Gates, OwnOperand};
use super::route::DeviceRoutes;
use super::rows::DeviceRows;
use crate::backend::{Backend, Mlp};
use crate::experts::{EXPERTS_USED, ExpertConstants};

/// `shared(x) + sum of weight * expert(x)` for every row.
pub(super) fn feed_forward<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    routed: &Mlp<B>,
    shared: &Mlp<B>,
    constants: &ExpertConstants,
    routes: &DeviceRoutes,
    rows: &DeviceRows,
) -> DeviceRows {
    let outputs = few::routed(device, [routed, shared], constants, routes, rows);
    let outputs = outputs.or_else(|| batch::feed_forward(device, [routed, shared], constants, routes, rows));
    if let Some(out) = outputs {
        return out;
    }
    if are_many(routed, rows) {
        let (slots, outputs) = many_routed(device, routed, constants, routes, rows);
        let mut sums = shared_expert(device, shared, constants, rows);
        slots.add(device, &mut sums, &outputs);
        sums
    } else {
        let (grouped, outputs) = few_routed(device, routed, constants, routes, rows);
        let mut sums = shared_expert(device, shared, constants, rows);
        grouped.add(device, &mut sums, &outputs);
        sums
    }
}

/// Whether the kernels for many rows take this expert and these rows.
fn are_many<B: Backend<Matrix = DeviceMatrix>>(expert: &Mlp<B>, rows: &DeviceRows) -> bool {
    let gates = [&expert.gate, &expert.up].into_iter().all(gemm::takes_gate);
    // Hidden values are one half float each.
    let down = gemm::takes(&expert.down) && gemm::precision(expert.down.kind()) == Precision::One;
    rows.len() > FEW_ROWS && gates && down
}

fn few_routed<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    routed: &Mlp<B>,
    constants: &ExpertConstants,
    routes: &DeviceRoutes,
    rows: &DeviceRows,
) -> (GroupedRoutes, DeviceRows) {
    let grouped = GroupedRoutes::new(device, routes, routed.gate.stack());
    let input = operand::of_rows(device, rows);
    let parts = multiply::grouped(device, [&routed.gate, &routed.up], &grouped.by_row(), grouped.len(), input);
    let hidden = activate(device, &parts, Some(&grouped), constants);
    let outputs = only(multiply::grouped(device, [&routed.down], &grouped.by_slot(), grouped.len(), hidden.operand()));
    (grouped, outputs)
}

fn many_routed<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    routed: &Mlp<B>,
    constants: &ExpertConstants,
    routes: &DeviceRoutes,
    rows: &DeviceRows,
) -> (Slots, DeviceRows) {
    let stack = routed.gate.stack();
    let mean = (routes.rows() * EXPERTS_USED).div_ceil(stack);
    let tile = gemm::tile_of_groups(device, [&routed.gate, &routed.down], mean);
    let slots = Slots::new(device, routes, stack, tile);
    let input = gemm_operand::of_rows(device, rows, gemm::order(device, &routed.gate), Precision::One);
    let hidden = {
        let own = gemm_operand::gather(device, &input, slots.sources(), slots.len());
        let gating = Gating {
            clamp: constants.clamp,
            weights: Some((slots.weights(), constants.weight_scale)),
            next: &routed.down,
        };
        gemm::gated(device, [&routed.gate, &routed.up], slots.len(), Some(&slots), &own.operand, &gating)
    };
    let outputs = gemm::grouped(device, &routed.down, &slots, &hidden.operand);
    (slots, outputs)
}

/// What the shared expert makes of every row.
pub(super) fn shared_expert<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    shared: &Mlp<B>,
    constants: &ExpertConstants,
    rows: &DeviceRows,
) -> DeviceRows {
    if are_many(shared, rows) {
        let input = gemm_operand::of_rows(device, rows, gemm::order(device, &shared.gate), Precision::One);
        let gating = Gating { clamp: constants.clamp, weights: None, next: &shared.down };
        let hidden = gemm::gated(device, [&shared.gate, &shared.up], rows.len(), None, &input, &gating);
        return gemm::product(device, &shared.down, 1, rows.len(), &hidden.operand);
    }
    let parts = multiply::product(device, [&shared.gate, &shared.up], 1, operand::of_rows(device, rows));
    let hidden = activate(device, &parts, None, constants);
    only(multiply::product(device, [&shared.down], 1, hidden.operand()))
}

fn activate(
    device: &Device,
    [gates, ups]: &[DeviceRows; 2],
    grouped: Option<&GroupedRoutes>,
    constants: &ExpertConstants,
) -> OwnOperand {
    let weights = grouped.map(GroupedRoutes::weights);
    operand::activated(device, &Gates { gates, ups, weights, clamp: constants.clamp })
}
