// What stands around the experts' products: rows grouped by the expert they chose, and every row's experts added up.
#include "group.cuh"
#include "intrinsics.cuh"

#define EXPERTS_USED 6
#define GROUPING_WARPS_MAX 32

struct Grouping {
    const uint32_t *experts;    // [rows][EXPERTS_USED]
    const float *weights;       // the same
    uint32_t *sources;          // the row of every slot
    uint32_t *slots;            // the slot of every route
    float *slot_weights;
    Group *groups;
    uint32_t routes;
    uint32_t stack;             // experts
    uint32_t group_rows;        // rows of a group at most
    uint32_t group_room;        // groups there can be: those that there are not get no rows
    uint32_t slot_room;         // slots there can be: those that there are not have NO_ROW as their source
    uint32_t slot_unit;         // every expert's first slot is a multiple of this power of two
};

#define NO_ROW 0xffffffffu

static __device__ __forceinline__ uint32_t warp_prefix(uint32_t x, uint32_t lane) {
    for (int step = 1; step < 32; step <<= 1) {
        const uint32_t below = __shfl_up_sync(0xffffffffu, x, step);
        if (lane >= step) x += below;
    }
    return x;
}

// One block. Slots are in order of expert, then of route, whatever the timing: a counting sort whose parts are taken
// in order. Shared memory: a word per expert for every warp, and two more.
extern "C" __global__ void __launch_bounds__(GROUPING_WARPS_MAX * 32) experts_group(Grouping grouping) {
    extern __shared__ uint32_t words[];
    wait_for_previous();
    let_next_start();
    const uint32_t stack = grouping.stack, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const uint32_t warps = blockDim.x / 32;
    uint32_t *own = words + warp * stack, *starts = words + warps * stack, *firsts = starts + stack;
    const uint32_t length = (grouping.routes + blockDim.x - 1) / blockDim.x * 32;
    const uint32_t begin = min(warp * length, grouping.routes), end = min(begin + length, grouping.routes);
    for (uint32_t i = threadIdx.x; i < warps * stack; i += blockDim.x) words[i] = 0;
    for (uint32_t i = threadIdx.x; i < grouping.slot_room; i += blockDim.x) grouping.sources[i] = NO_ROW;
    __syncthreads();
    for (uint32_t route = begin + lane; route < end; route += 32) atomicAdd(own + min(grouping.experts[route], stack - 1), 1u);
    __syncthreads();
    for (uint32_t expert = threadIdx.x; expert < stack; expert += blockDim.x) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < warps; i++) {
            const uint32_t count = words[i * stack + expert];
            words[i * stack + expert] = sum;
            sum += count;
        }
        starts[expert] = sum;
    }
    __syncthreads();
    if (!warp) {
        uint32_t slots = 0, groups = 0;
        for (uint32_t first = 0; first < stack; first += 32) {
            const uint32_t expert = first + lane, count = expert < stack ? starts[expert] : 0;
            uint32_t cut = (count + grouping.group_rows - 1) / grouping.group_rows, each = grouping.group_rows;
            // Equal groups where kernels take rows by units: none is nearly empty.
            if (cut > 1 && grouping.slot_unit > 1) {
                each = ((count + cut - 1) / cut + grouping.slot_unit - 1) & ~(grouping.slot_unit - 1);
                cut = (count + each - 1) / each;
            }
            const uint32_t room = (count + grouping.slot_unit - 1) & ~(grouping.slot_unit - 1);
            const uint32_t room_sum = warp_prefix(room, lane), cut_sum = warp_prefix(cut, lane);
            if (expert < stack) {
                starts[expert] = slots + room_sum - room;
                firsts[expert] = groups + cut_sum - cut;
                for (uint32_t i = 0; i < cut; i++) {
                    const uint32_t done = i * each;
                    grouping.groups[firsts[expert] + i] = {expert, starts[expert] + done, min(each, count - done), 0};
                }
            }
            slots += __shfl_sync(0xffffffffu, room_sum, 31);
            groups += __shfl_sync(0xffffffffu, cut_sum, 31);
        }
        for (uint32_t group = groups + lane; group < grouping.group_room; group += 32) grouping.groups[group] = {0, 0, 0, 0};
        __syncwarp();
        if (!lane) grouping.groups[0].count = groups;
    }
    __syncthreads();
    for (uint32_t first = begin; first < end; first += 32) {
        const uint32_t route = first + lane;
        const uint32_t expert = route < end ? min(grouping.experts[route], stack - 1) : 0xffffffffu;
        const uint32_t same = __match_any_sync(0xffffffffu, expert), rank = __popc(same & ((1u << lane) - 1));
        uint32_t before = 0;
        if (route < end) before = own[expert];
        __syncwarp();
        if (route < end) {
            const uint32_t slot = starts[expert] + before + rank;
            grouping.sources[slot] = route / EXPERTS_USED;
            grouping.slot_weights[slot] = grouping.weights[route];
            grouping.slots[route] = slot;
            if (!rank) own[expert] = before + __popc(same);
        }
        __syncwarp();
    }
}

// `sums` holds the shared expert's rows; the routed experts' are added in the order of the row's routes.
extern "C" __global__ void __launch_bounds__(256)
experts_combine(float *sums, const float *outputs, const uint32_t *slots, uint32_t width, uint32_t) {
    wait_for_previous();
    let_next_start();
    const uint32_t row = blockIdx.y;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += gridDim.x * blockDim.x) {
        float sum = sums[(size_t)row * width + i];
#pragma unroll
        for (int rank = 0; rank < EXPERTS_USED; rank++) sum += outputs[(size_t)slots[row * EXPERTS_USED + rank] * width + i];
        sums[(size_t)row * width + i] = sum;
    }
}
