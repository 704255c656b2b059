"""The kernels of a recurrent layer as text: a block keeps batch rows over all time steps (docs/engine-templates.md).

Keeping the recurrent state, and the weights where they fit, on chip over the whole sequence is the idea of persistent
RNNs (Diamos et al., ICML 2016); here a block owns whole batch rows, so that no block waits for another.
"""

from __future__ import annotations

from hipwright.records import Record

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}

CONSTANTS = """constexpr int @NAME@_padded_threads = (@H@ * RNN_SPLIT + 63) / 64 * 64;
constexpr int @NAME@_threads = @NAME@_padded_threads < 1024 ? @NAME@_padded_threads : 1024;
constexpr int @NAME@_passes = (@H@ * RNN_SPLIT + @NAME@_threads - 1) / @NAME@_threads;  // units of a thread
constexpr int @NAME@_chunks = (@H@ + RNN_SPLIT * @V@ - 1) / (RNN_SPLIT * @V@);  // vectors of a row
"""

PACK = """// Packs recurrent weights [gates * hidden, hidden] as [chunk][gate][unit][lane][16 bytes], zero-padded, so
// that the loads of a wave are contiguous. blockIdx.y: direction.
extern "C" __global__ void __launch_bounds__(256) @NAME@_pack(
    const @T@* w0, const @T@* w1, @T@* packed) {
    constexpr int H = @H@, G = @G@, V = @V@, S = RNN_SPLIT;
    constexpr int CHUNKS = @NAME@_chunks, UNITS = @NAME@_passes * @NAME@_threads / S;
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= CHUNKS * G * UNITS * S * V) return;
    const int v = i % V, s = i / V % S, u = i / (V * S) % UNITS, g = i / (V * S * UNITS) % G;
    const int k = (i / (V * S * UNITS * G) * S + s) * V + v;
    const @T@* w = blockIdx.y ? w1 : w0;
    packed[(long)blockIdx.y * @PITCH@ + i] = k < H && u < H ? w[(g * H + u) * H + k] : @T@(0.f);
}
"""

LAYER = """// @TITLE@: RNN_SPLIT lanes share a hidden unit, RNN_ROWS batch rows a block, all steps.
// blockIdx.y: direction (the second runs backwards). gates: the products of the inputs, with their bias.
extern "C" __global__ void __launch_bounds__(@NAME@_threads) @NAME@(
    const @T@* gates0, const @T@* gates1, const @T@* w0, const @T@* w1, const @T@* bias0, const @T@* bias1,
    const @T@* h0, @CELL_IN@@T@* y, @T@* hn, @CELL_OUT@int steps, int batch, long gates_step, long gates_row,
    long y_step, long y_row, int layer) {
    constexpr int H = @H@, G = @G@, V = @V@, S = RNN_SPLIT, ROWS = RNN_ROWS, THREADS = @NAME@_threads;
    constexpr int PASSES = @NAME@_passes, CHUNKS = @NAME@_chunks, WIDTH = CHUNKS * S * V;  // hidden units, zero-padded
    constexpr int LANE_ROWS = ROWS > S ? ROWS / S : 1;  // rows that a lane finishes
    constexpr int RESIDENT = @KEPT@;  // chunks of weights that stay in registers
    __shared__ __attribute__((aligned(16))) float state[2][ROWS][WIDTH];
    const int lane = threadIdx.x % S, direction = blockIdx.y, first_row = blockIdx.x * ROWS;
    const int row = first_row + lane_reduce_scatter_row<ROWS, S>(lane);
    const bool is_writer = lane % (ROWS >= S ? 1 : S / ROWS) == 0;
    const long gates_stride = direction ? -gates_step : gates_step, y_stride = direction ? -y_step : y_step;
    const @T@* gates = direction ? gates1 + (steps - 1) * gates_step : gates0;  // of the step that is loaded next
    const @T@* w = @WEIGHTS@;
    const @T@* bias = direction ? bias1 : bias0;
    const long state_row = ((long)layer * gridDim.y + direction) * batch;  // row in h0 and c0
    for (int i = threadIdx.x; i < ROWS * WIDTH; i += THREADS) {
        const int r = i / WIDTH, k = i % WIDTH;
        state[0][r][k] = h0 && k < H && first_row + r < batch ? (float)h0[(state_row + first_row + r) * H + k] : 0.f;
        state[1][r][k] = 0.f;
    }
@KEEP@
    float carried[PASSES][LANE_ROWS], biases[PASSES][G];  // @OWN@
    @T@ next_gates[PASSES][LANE_ROWS][G];              // the gates of the next step
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int u = (threadIdx.x + pass * THREADS) / S, unit = u < H ? u : H - 1;
#pragma unroll
        for (int g = 0; g < G; ++g) biases[pass][g] = bias ? (float)bias[g * H + unit] : 0.f;
#pragma unroll
        for (int m = 0; m < LANE_ROWS; ++m) {
            const int b = row + m < batch ? row + m : batch - 1;
            carried[pass][m] = @OWN_START@ ? (float)@OWN_START@[(state_row + b) * H + unit] : 0.f;
#pragma unroll
            for (int g = 0; g < G; ++g) next_gates[pass][m][g] = gates[b * gates_row + g * H + unit];
        }
    }
    __syncthreads();
@Y_START@    for (int step = 0; step < steps; ++step) {
        const int buffer = step & 1;
        gates += step + 1 < steps ? gates_stride : 0;
@UNROLL_TURNS@
        for (int pass = 0; pass < PASSES; ++pass) {
            const int u = (threadIdx.x + pass * THREADS) / S, unit = u < H ? u : H - 1;
            float in[LANE_ROWS][G], sum[G][ROWS] = {};
#pragma unroll
            for (int m = 0; m < LANE_ROWS; ++m) {
                const int b = row + m < batch ? row + m : batch - 1;
#pragma unroll
                for (int g = 0; g < G; ++g) {
                    in[m][g] = (float)next_gates[pass][m][g];
                    next_gates[pass][m][g] = gates[b * gates_row + g * H + unit];
                }
            }
@PRODUCT@
#pragma unroll
            for (int g = 0; g < G; ++g) lane_reduce_scatter<ROWS, S>(sum[g], lane);
#pragma unroll
            for (int m = 0; m < LANE_ROWS; ++m) {
@CELL@
                if (is_writer && u < H) {
                    state[1 - buffer][row + m - first_row][u] = h;
@Y_STORE@                }
            }
        }
@Y_NEXT@        __syncthreads();
    }
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int u = (threadIdx.x + pass * THREADS) / S;
#pragma unroll
        for (int m = 0; m < LANE_ROWS; ++m) {
            if (!is_writer || u >= H || row + m >= batch) continue;
            const long index = ((long)direction * batch + row + m) * H + u;
            if (hn) hn[index] = @T@(state[steps & 1][row + m - first_row][u]);@CELL_LAST@
        }
    }
}
"""

KEEP_DIRECT = """    Vector16B<@T@> resident[PASSES][G][CHUNKS];  // the weights of this thread, for all steps
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int u = (threadIdx.x + pass * THREADS) / S;
#pragma unroll
        for (int g = 0; g < G; ++g) {
#pragma unroll
            for (int i = 0; i < CHUNKS; ++i) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    const int k = (i * S + lane) * V + v;
                    resident[pass][g][i].v[v] = u < H && k < H ? w[(g * H + u) * H + k] : @T@(0.f);
                }
            }
        }
    }"""

KEEP_PACKED = """    Vector16B<@T@> resident[RESIDENT > 0 ? PASSES : 1][G][RESIDENT > 0 ? RESIDENT : 1];
    constexpr int UNITS = PASSES * THREADS / S;
#pragma unroll
    for (int pass = 0; pass < (RESIDENT > 0 ? PASSES : 0); ++pass) {
#pragma unroll
        for (int g = 0; g < G; ++g) {
#pragma unroll
            for (int i = 0; i < RESIDENT; ++i)
                resident[pass][g][i] =
                    load_16_bytes(w + ((long)((i * G + g) * UNITS * S) + threadIdx.x + pass * THREADS) * V);
        }
    }"""

_USE = """                        const int index = (i * S + lane) * V + part;
                        const float4 h = *reinterpret_cast<const float4*>(&state[buffer][r][index]);
#pragma unroll
                        for (int g = 0; g < G; ++g) {
                            sum[g][r] += (float)@W@.v[part] * h.x;
                            sum[g][r] += (float)@W@.v[part + 1] * h.y;
                            sum[g][r] += (float)@W@.v[part + 2] * h.z;
                            sum[g][r] += (float)@W@.v[part + 3] * h.w;
                        }
"""
_LOOPS = """#pragma unroll
                for (int part = 0; part < V; part += 4) {
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
@USE@                    }
                }"""

PRODUCT_KEPT = (
    """#pragma unroll
            for (int i = 0; i < RESIDENT; ++i) {
"""
    + _LOOPS.replace("@USE@", _USE.replace("@W@", "resident[pass][g][i]"))
    + """
            }"""
)

PRODUCT_STREAMED = (
    """            Vector16B<@T@> current[G], next_weights[G];  // weights, loaded one chunk ahead
#pragma unroll
            for (int g = 0; g < G; ++g)
                next_weights[g] =
                    load_16_bytes(w + ((long)((RESIDENT * G + g) * UNITS * S) + threadIdx.x + pass * THREADS) * V);
"""
    + PRODUCT_KEPT
    + """
#pragma unroll 1
            for (int i = RESIDENT; i < CHUNKS; ++i) {
                const int next_chunk = i + 1 < CHUNKS ? i + 1 : i;
#pragma unroll
                for (int g = 0; g < G; ++g) {
                    current[g] = next_weights[g];
                    next_weights[g] = load_16_bytes(
                        w + ((long)((next_chunk * G + g) * UNITS * S) + threadIdx.x + pass * THREADS) * V);
                }
"""
    + _LOOPS.replace("@USE@", _USE.replace("@W@", "current[g]"))
    + """
            }"""
)

CELL_LAST = """
            if (cn) cn[index] = @T@(carried[pass][m]);"""
Y_START = "    @T@* y_now = y + (direction ? (steps - 1) * y_step + H : 0);  // outputs of this step\n"
Y_STORE = "                    if (row + m < batch) y_now[(row + m) * y_row + u] = @T@(h);\n"
Y_NEXT = "        y_now += y_stride;\n"

CELLS = {
    "lstm": """                const float i_gate = sigmoid(in[m][0] + sum[0][m] + biases[pass][0]);
                const float f_gate = sigmoid(in[m][1] + sum[1][m] + biases[pass][1]);
                const float g_gate = tanhf(in[m][2] + sum[2][m] + biases[pass][2]);
                const float o_gate = sigmoid(in[m][3] + sum[3][m] + biases[pass][3]);
                const float c = carried[pass][m] = f_gate * carried[pass][m] + i_gate * g_gate;
                const float h = o_gate * tanhf(c);""",
    "gru": """                const float r_gate = sigmoid(in[m][0] + sum[0][m] + biases[pass][0]);
                const float z_gate = sigmoid(in[m][1] + sum[1][m] + biases[pass][1]);
                const float n_gate = tanhf(in[m][2] + r_gate * (sum[2][m] + biases[pass][2]));
                const float h = carried[pass][m] = n_gate + z_gate * (carried[pass][m] - n_gate);""",
    "rnn_tanh": """                const float h = carried[pass][m] = tanhf(in[m][0] + sum[0][m] + biases[pass][0]);""",
    "rnn_relu": """                const float h = carried[pass][m] = relu(in[m][0] + sum[0][m] + biases[pass][0]);""",
}


class LayerSpec(Record, frozen=True, kw_only=True):
    """The parameters of one kernel: kind as in GATES, the storage type as C writes it, hidden units.

    streamed: only RNN_RESIDENT vectors of each weight row stay in registers, the rest is read at every step.
    outputs: the hidden state of every step is stored.
    """

    name: str
    kind: str
    ctype: str
    hidden: int
    streamed: bool
    outputs: bool = True

    @property
    def gates(self) -> int:
        """Rows of the weight matrix per hidden unit."""
        return GATES[self.kind]

    @property
    def vector(self) -> int:
        """Elements of a 16-byte vector."""
        return 4 if self.ctype == "float" else 8

    def threads(self) -> str:
        """Threads of a block, as plan text: whole waves."""
        return f"min(1024, cdiv({self.hidden} * RNN_SPLIT, 64) * 64)"

    @property
    def pitch(self) -> int:
        """An upper bound of `packed` for every RNN_SPLIT: rows and units are padded to whole vectors and blocks.

        Whole vectors too, so that the second direction's weights begin on a vector's boundary.
        """
        most = (self.hidden + 128) * self.gates * (self.hidden + 512)
        return -(-most // self.vector) * self.vector

    def packed(self) -> str:
        """Elements of one direction's packed weights, as plan text."""
        span = f"RNN_SPLIT * {self.vector}"
        lanes = f"cdiv({self.hidden} * RNN_SPLIT, {self.threads()}) * {self.threads()}"
        return f"cdiv({self.hidden}, {span}) * {self.gates} * {lanes} * {self.vector}"


def layer_text(spec: LayerSpec) -> str:
    """The kernel of the layer, after the kernel that packs its weights if they are streamed."""
    lstm = spec.kind == "lstm"
    kept = "RNN_RESIDENT < CHUNKS ? RNN_RESIDENT : CHUNKS - 1" if spec.streamed else "CHUNKS"
    parts = {
        "TITLE": f"A layer of {spec.kind.replace('_', ' with ')}",
        "KEPT": kept,
        "WEIGHTS": f"w0 + direction * {spec.pitch}L" if spec.streamed else "direction ? w1 : w0",
        "PITCH": f"{spec.pitch}L",
        "KEEP": KEEP_PACKED if spec.streamed else KEEP_DIRECT,
        "PRODUCT": PRODUCT_STREAMED if spec.streamed else PRODUCT_KEPT,
        "UNROLL_TURNS": "#pragma unroll",
        "CELL": CELLS[spec.kind],
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
    text = CONSTANTS + (PACK if spec.streamed else "") + "\n" + LAYER
    for mark, value in parts.items():
        text = text.replace(f"@{mark}@", value)
    return text
