"""The kernel of a recurrent layer whose weights are spread over many blocks, as text (spread.py)."""

from __future__ import annotations

from hipwright.engine.templates.recurrent.text import CELLS, LayerSpec

CONSTANTS = """constexpr int @NAME@_threads = (RNN_UNITS * RNN_LANES + 63) / 64 * 64;
constexpr int @NAME@_blocks = (@H@ + RNN_UNITS - 1) / RNN_UNITS;  // blocks that share the units of their rows
"""

LAYER = """// @TITLE@: blocks share the units of RNN_SHARED_ROWS batch rows and exchange their states at every
// step. A block has RNN_UNITS of them, of whose weights RNN_LANES lanes keep a part each in registers, RNN_KEPT
// vectors of a row; the rest is read at every step.
// gates: the products of the inputs, with their bias. exchanged: zeros; a ticket, then words of two steps by turns.
extern "C" __global__ void __launch_bounds__(@NAME@_threads) @NAME@(
    const @T@* gates0, const @T@* gates1, const @T@* w0, const @T@* w1, const @T@* bias0, const @T@* bias1,
    const @T@* h0, @CELL_IN@@T@* y, @T@* hn, @CELL_OUT@int steps, int batch, long gates_step, long gates_row,
    long y_step, long y_row, int layer, long* exchanged, int directions) {
    constexpr int H = @H@, G = @G@, V = @V@, S = RNN_LANES, ROWS = RNN_SHARED_ROWS, THREADS = @NAME@_threads;
    constexpr int SHARING = @NAME@_blocks, CHUNKS = (H + S * V - 1) / (S * V), WIDTH = CHUNKS * S * V;
    constexpr int KEPT = RNN_KEPT < CHUNKS ? RNN_KEPT : CHUNKS;
    constexpr int LANE_ROWS = ROWS > S ? ROWS / S : 1;  // rows that a lane finishes
    __shared__ __attribute__((aligned(16))) float state[ROWS][WIDTH];  // of the step before
    const int ticket = take_block_ticket(reinterpret_cast<int*>(exchanged));
    long* const words = exchanged + 1;
    const int rows = ticket / SHARING, row_groups = (int)gridDim.x / (SHARING * directions);
    const int direction = rows / row_groups, first_row = rows % row_groups * ROWS;
    const int lane = threadIdx.x % S, own = threadIdx.x / S;
    const int u = own < RNN_UNITS ? ticket % SHARING * RNN_UNITS + own : H;
    const int unit = u < H ? u : H - 1;
    const int row = first_row + lane_reduce_scatter_row<ROWS, S>(lane);
    const bool is_writer = lane % (ROWS >= S ? 1 : S / ROWS) == 0 && u < H;
    const long gates_stride = direction ? -gates_step : gates_step, y_stride = direction ? -y_step : y_step;
    const @T@* gates = direction ? gates1 + (steps - 1) * gates_step : gates0;  // of the step that is loaded next
    const @T@* w = direction ? w1 : w0;
    const @T@* bias = direction ? bias1 : bias0;
    const long state_row = ((long)layer * directions + direction) * batch;  // row in h0 and c0
    for (int i = threadIdx.x; i < ROWS * WIDTH; i += THREADS) {
        const int r = i / WIDTH, k = i % WIDTH;
        state[r][k] = h0 && k < H && first_row + r < batch ? (float)h0[(state_row + first_row + r) * H + k] : 0.f;
    }
    const bool whole = H % (S * V) == 0 && is_vector_aligned<@T@, V>(w);
    const auto load_weights = [&](Vector16B<@T@> (&into)[G], int i) {  // of chunk i of the unit's rows
#pragma unroll
        for (int g = 0; g < G; ++g) {
            const int k = (i * S + lane) * V;
            const @T@* const from = w + (g * H + unit) * H;
            if (whole) {
                into[g] = load_16_bytes(from + k);
            } else {
#pragma unroll
                for (int v = 0; v < V; ++v) into[g].v[v] = k + v < H ? from[k + v] : @T@(0.f);
            }
        }
    };
    Vector16B<@T@> resident[KEPT > 0 ? KEPT : 1][G];  // weights of this thread, for all steps
#pragma unroll
    for (int i = 0; i < KEPT; ++i) load_weights(resident[i], i);
    float carried[LANE_ROWS], newest[LANE_ROWS], biases[G];  // @OWN@, the hidden state
    @T@ next_gates[LANE_ROWS][G];                              // the gates of the next step
#pragma unroll
    for (int g = 0; g < G; ++g) biases[g] = bias ? (float)bias[g * H + unit] : 0.f;
#pragma unroll
    for (int m = 0; m < LANE_ROWS; ++m) {
        const int b = row + m < batch ? row + m : batch - 1;
        carried[m] = @OWN_START@ ? (float)@OWN_START@[(state_row + b) * H + unit] : 0.f;
        newest[m] = h0 ? (float)h0[(state_row + b) * H + unit] : 0.f;
#pragma unroll
        for (int g = 0; g < G; ++g) next_gates[m][g] = gates[b * gates_row + g * H + unit];
    }
    __syncthreads();
@Y_START@    for (int step = 0; step < steps; ++step) {
        gates += step + 1 < steps ? gates_stride : 0;
        float in[LANE_ROWS][G], sum[G][ROWS] = {};
#pragma unroll
        for (int m = 0; m < LANE_ROWS; ++m) {
            const int b = row + m < batch ? row + m : batch - 1;
#pragma unroll
            for (int g = 0; g < G; ++g) {
                in[m][g] = (float)next_gates[m][g];
                next_gates[m][g] = gates[b * gates_row + g * H + unit];
            }
        }
        const auto add = [&](const Vector16B<@T@> (&weights)[G], int i) {
#pragma unroll
            for (int part = 0; part < V; part += 4) {
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    const float4 h = *reinterpret_cast<const float4*>(&state[r][(i * S + lane) * V + part]);
#pragma unroll
                    for (int g = 0; g < G; ++g) {
                        sum[g][r] += (float)weights[g].v[part] * h.x;
                        sum[g][r] += (float)weights[g].v[part + 1] * h.y;
                        sum[g][r] += (float)weights[g].v[part + 2] * h.z;
                        sum[g][r] += (float)weights[g].v[part + 3] * h.w;
                    }
                }
            }
            schedule_barrier(sum);
        };
        Vector16B<@T@> ahead[G];  // of the chunk that is added next, of those that are not kept
        if (KEPT < CHUNKS) load_weights(ahead, KEPT);
#pragma unroll
        for (int i = 0; i < KEPT; ++i) add(resident[i], i);
#pragma unroll 2
        for (int i = KEPT; i < CHUNKS; ++i) {
            Vector16B<@T@> weights[G];
#pragma unroll
            for (int g = 0; g < G; ++g) weights[g] = ahead[g];
            if (i + 1 < CHUNKS) load_weights(ahead, i + 1);
            add(weights, i);
        }
#pragma unroll
        for (int g = 0; g < G; ++g) lane_reduce_scatter<ROWS, S>(sum[g], lane);
        long* const now = words + (long)(((step & 1) * directions + direction) * batch + first_row) * H;
#pragma unroll
        for (int m = 0; m < LANE_ROWS; ++m) {
@CELL@
            newest[m] = h;
            if (is_writer && row + m < batch) {
                publish_at_step(now + (row + m - first_row) * H + u, h, step + 1);
@Y_STORE@            }
        }
@Y_NEXT@        if (step + 1 == steps) break;
        __syncthreads();  // the state is no longer read
        const int end = (batch - first_row < ROWS ? batch - first_row : ROWS) * H;
        constexpr int COUNT = ROWS * H >= 8 * THREADS ? 8 : (ROWS * H + THREADS - 1) / THREADS;
        for (int first = threadIdx.x; first < end; first += COUNT * THREADS)
            await_step<COUNT>(now, first, THREADS, end, step + 1, [&](int i, float value) {
                state[i / H][i % H] = value;
            });
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < LANE_ROWS; ++m) {
        if (!is_writer || row + m >= batch) continue;
        const long index = ((long)direction * batch + row + m) * H + u;
        if (hn) hn[index] = @T@(newest[m]);@CELL_LAST@
    }
}
"""

CELL_LAST = """
        if (cn) cn[index] = @T@(carried[m]);"""
Y_START = "    @T@* y_now = y + (direction ? (steps - 1) * y_step + H : 0);  // outputs of this step\n"
Y_STORE = "                y_now[(row + m) * y_row + u] = @T@(h);\n"
Y_NEXT = "        y_now += y_stride;\n"


def spread_text(spec: LayerSpec) -> str:
    """The kernel of the layer."""
    lstm = spec.kind == "lstm"
    parts = {
        "TITLE": f"A layer of {spec.kind.replace('_', ' with ')}",
        "CELL": CELLS[spec.kind].replace("[pass]", "").replace("                ", "            "),
        "CELL_IN": "const @T@* c0, " if lstm else "",
        "CELL_OUT": "@T@* cn, " if lstm else "",
        "OWN": "the cell's state" if lstm else "the hidden state",
        "OWN_START": "c0" if lstm else "h0",
        "CELL_LAST": CELL_LAST if lstm else "",
        "Y_START": Y_START if spec.outputs else "",
        "Y_STORE": Y_STORE if spec.outputs else "",
        "Y_NEXT": Y_NEXT if spec.outputs else "",
        "NAME": spec.name,
        "H": str(spec.hidden),
        "G": str(spec.gates),
        "V": str(spec.vector),
        "T": spec.ctype,
    }
    text = CONSTANTS + "\n" + LAYER
    for mark, value in parts.items():
        text = text.replace(f"@{mark}@", value)
    return text
