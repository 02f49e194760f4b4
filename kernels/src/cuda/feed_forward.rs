//! The feed-forward site: the shared expert's products over all rows, the routed experts' over rows grouped by expert.

use super::device::Device;
use super::experts::GroupedRoutes;
use super::few;
use super::matrix::DeviceMatrix;
use super::multiply::{self, only};
use super::operand::{self, Gates, OwnOperand};
use super::route::DeviceRoutes;
use super::rows::DeviceRows;
use crate::backend::{Backend, Mlp};
use crate::experts::ExpertConstants;

/// `shared(x) + sum of weight * expert(x)` for every row.
pub(super) fn feed_forward<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    routed: &Mlp<B>,
    shared: &Mlp<B>,
    constants: &ExpertConstants,
    routes: &DeviceRoutes,
    rows: &DeviceRows,
) -> DeviceRows {
    if let Some(out) = few::feed_forward(device, routed, shared, constants, routes, rows) {
        return out;
    }
    let grouped = GroupedRoutes::new(device, routes, routed.gate.stack());
    let input = operand::of_rows(device, rows);
    let outputs = {
        let parts = multiply::grouped(device, [&routed.gate, &routed.up], &grouped.by_row(), grouped.len(), input);
        let hidden = activate(device, &parts, Some(&grouped), constants);
        only(multiply::grouped(device, [&routed.down], &grouped.by_slot(), grouped.len(), hidden.operand()))
    };
    let parts = multiply::product(device, [&shared.gate, &shared.up], 1, input);
    let hidden = activate(device, &parts, None, constants);
    let mut sums = only(multiply::product(device, [&shared.down], 1, hidden.operand()));
    grouped.add(device, &mut sums, &outputs);
    sums
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
