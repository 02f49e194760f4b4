// route: experts and their weights of every row, a warp a row.
#include "route.cuh"

#define ROUTE_WARPS 4

extern "C" __global__ void __launch_bounds__(ROUTE_WARPS * 32) route(Router router) {
    wait_for_previous();
    let_next_start();
    const uint32_t lane = threadIdx.x & 31, row = blockIdx.x * ROUTE_WARPS + (threadIdx.x >> 5);
    if (row >= router.rows) return;
    float weight;
    const uint32_t chosen = route_row<32>(router, row, weight);
    if (lane < EXPERTS_USED) {
        router.experts[row * EXPERTS_USED + lane] = chosen;
        router.weights[row * EXPERTS_USED + lane] = weight;
    }
}
