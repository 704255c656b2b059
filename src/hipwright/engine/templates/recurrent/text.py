"""The kernels of a recurrent layer as text: a block keeps batch rows over all time steps (docs/engine-templates.md).

The idea of keeping recurrent state, and weights where they fit, on chip over the whole sequence is that of persistent
RNNs (Diamos et al., ICML 2016); here a block owns whole batch rows, so that no block ever waits for another.
"""

from __future__ import annotations

from hipwright.records import Record

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}

CONSTANTS = """constexpr int @NAME@_wanted = (@H@ * RNN_SPLIT + 63) / 64 * 64;
constexpr int @NAME@_threads = @NAME@_wanted < 1024 ? @NAME@_wanted : 1024;
constexpr int @NAME@_turns = (@H@ * RNN_SPLIT + @NAME@_threads - 1) / @NAME@_threads;  // units of a thread
constexpr int @NAME@_chunks = (@H@ + RNN_SPLIT * @V@ - 1) / (RNN_SPLIT * @V@);  // 16-byte pieces of a weight row
"""

PACK = """// Recurrent weights [gates * hidden, hidden] to [chunk][gate][unit][lane][16 bytes], zero-padded: what a wave
// loads lies side by side. blockIdx.y: direction.
extern "C" __global__ void __launch_bounds__(256) @NAME@_pack(
    const @T@* w0, const @T@* w1, @T@* packed) {
    constexpr int H = @H@, G = @G@, V = @V@, S = RNN_SPLIT;
    constexpr int CHUNKS = @NAME@_chunks, UNITS = @NAME@_turns * @NAME@_threads / S;
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= CHUNKS * G * UNITS * S * V) return;
    const int v = i % V, s = i / V % S, u = i / (V * S) % UNITS, g = i / (V * S * UNITS) % G;
    const int k = (i / (V * S * UNITS * G) * S + s) * V + v;
    const @T@* w = blockIdx.y ? w1 : w0;
    packed[(long)blockIdx.y * @PITCH@ + i] = k < H && u < H ? w[(g * H + u) * H + k] : @T@(0.f);
}
"""

LAYER = """// @TITLE@: RNN_SPLIT lanes share a hidden unit, RNN_ROWS batch rows a block, all steps.
// blockIdx.y: direction (the second runs backwards). gates: the input's products with their bias.
extern "C" __global__ void __launch_bounds__(@NAME@_threads) @NAME@(
    const @T@* gates0, const @T@* gates1, const @T@* w0, const @T@* w1, const @T@* bias0, const @T@* bias1,
    const @T@* h0, @CELL_IN@@T@* y, @T@* hn, @CELL_OUT@int steps, int batch, long gates_step, long gates_row,
    long y_step, long y_row, int layer) {
    constexpr int H = @H@, G = @G@, V = @V@, S = RNN_SPLIT, ROWS = RNN_ROWS, THREADS = @NAME@_threads;
    constexpr int TURNS = @NAME@_turns, CHUNKS = @NAME@_chunks, WIDTH = CHUNKS * S * V;  // hidden units, zero-padded
    constexpr int MINE = ROWS > S ? ROWS / S : 1;  // rows a lane finishes
    constexpr int KEPT = @KEPT@;  // chunks of weights held in registers
    __shared__ __attribute__((aligned(16))) float state[2][ROWS][WIDTH];
    const int lane = threadIdx.x % S, direction = blockIdx.y, first = blockIdx.x * ROWS;
    const int row = first + lane_reduce_scatter_row<ROWS, S>(lane);
    const bool writer = lane % (ROWS >= S ? 1 : S / ROWS) == 0;
    const long gates_move = direction ? -gates_step : gates_step, y_move = direction ? -y_step : y_step;
    const @T@* gates = direction ? gates1 + (steps - 1) * gates_step : gates0;  // of the step that is read next
    const @T@* w = @WEIGHTS@;
    const @T@* bias = direction ? bias1 : bias0;
    const long slot = ((long)layer * gridDim.y + direction) * batch;  // in h0 and c0
    for (int i = threadIdx.x; i < ROWS * WIDTH; i += THREADS) {
        const int r = i / WIDTH, k = i % WIDTH;
        state[0][r][k] = h0 && k < H && first + r < batch ? (float)h0[(slot + first + r) * H + k] : 0.f;
        state[1][r][k] = 0.f;
    }
@KEEP@
    float own[TURNS][MINE], shift[TURNS][G];  // @OWN@
    @T@ ahead[TURNS][MINE][G];                // the next step's input products
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int u = (threadIdx.x + turn * THREADS) / S, unit = u < H ? u : H - 1;
#pragma unroll
        for (int g = 0; g < G; ++g) shift[turn][g] = bias ? (float)bias[g * H + unit] : 0.f;
#pragma unroll
        for (int m = 0; m < MINE; ++m) {
            const int b = row + m < batch ? row + m : batch - 1;
            own[turn][m] = @OWN_START@ ? (float)@OWN_START@[(slot + b) * H + unit] : 0.f;
#pragma unroll
            for (int g = 0; g < G; ++g) ahead[turn][m][g] = gates[b * gates_row + g * H + unit];
        }
    }
    __syncthreads();
@Y_START@    for (int step = 0; step < steps; ++step) {
        const int now = step & 1;
        gates += step + 1 < steps ? gates_move : 0;
@UNROLL_TURNS@
        for (int turn = 0; turn < TURNS; ++turn) {
            const int u = (threadIdx.x + turn * THREADS) / S, unit = u < H ? u : H - 1;
            float in[MINE][G], sum[G][ROWS] = {};
#pragma unroll
            for (int m = 0; m < MINE; ++m) {
                const int b = row + m < batch ? row + m : batch - 1;
#pragma unroll
                for (int g = 0; g < G; ++g) {
                    in[m][g] = (float)ahead[turn][m][g];
                    ahead[turn][m][g] = gates[b * gates_row + g * H + unit];
                }
            }
@PRODUCT@
#pragma unroll
            for (int g = 0; g < G; ++g) lane_reduce_scatter<ROWS, S>(sum[g], lane);
#pragma unroll
            for (int m = 0; m < MINE; ++m) {
@CELL@
                if (writer && u < H) {
                    state[1 - now][row + m - first][u] = h;
@Y_STORE@                }
            }
        }
@Y_NEXT@        __syncthreads();
    }
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int u = (threadIdx.x + turn * THREADS) / S;
#pragma unroll
        for (int m = 0; m < MINE; ++m) {
            if (!writer || u >= H || row + m >= batch) continue;
            const long place = ((long)direction * batch + row + m) * H + u;
            if (hn) hn[place] = @T@(state[steps & 1][row + m - first][u]);@CELL_LAST@
        }
    }
}
"""

KEEP_DIRECT = """    Vector16B<@T@> kept[TURNS][G][CHUNKS];  // this thread's weights, for all steps
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int u = (threadIdx.x + turn * THREADS) / S;
#pragma unroll
        for (int g = 0; g < G; ++g) {
#pragma unroll
            for (int i = 0; i < CHUNKS; ++i) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    const int k = (i * S + lane) * V + v;
                    kept[turn][g][i].v[v] = u < H && k < H ? w[(g * H + u) * H + k] : @T@(0.f);
                }
            }
        }
    }"""

KEEP_PACKED = """    Vector16B<@T@> kept[KEPT > 0 ? TURNS : 1][G][KEPT > 0 ? KEPT : 1];  // for all steps
    constexpr int UNITS = TURNS * THREADS / S;
#pragma unroll
    for (int turn = 0; turn < (KEPT > 0 ? TURNS : 0); ++turn) {
#pragma unroll
        for (int g = 0; g < G; ++g) {
#pragma unroll
            for (int i = 0; i < KEPT; ++i)
                kept[turn][g][i] = load_16_bytes(
                    w + ((long)((i * G + g) * UNITS * S) + threadIdx.x + turn * THREADS) * V);
        }
    }"""

_USE = """                        const int place = (i * S + lane) * V + part;
                        const float4 h = *reinterpret_cast<const float4*>(&state[now][r][place]);
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
            for (int i = 0; i < KEPT; ++i) {
"""
    + _LOOPS.replace("@USE@", _USE.replace("@W@", "kept[turn][g][i]"))
    + """
            }"""
)

PRODUCT_STREAMED = (
    """            Vector16B<@T@> piece[G], coming[G];  // of the weights, read one ahead
#pragma unroll
            for (int g = 0; g < G; ++g)
                coming[g] = load_16_bytes(w + ((long)((KEPT * G + g) * UNITS * S) + threadIdx.x + turn * THREADS) * V);
"""
    + PRODUCT_KEPT
    + """
#pragma unroll 1
            for (int i = KEPT; i < CHUNKS; ++i) {
                const int following = i + 1 < CHUNKS ? i + 1 : i;
#pragma unroll
                for (int g = 0; g < G; ++g) {
                    piece[g] = coming[g];
                    coming[g] =
                        load_16_bytes(w + ((long)((following * G + g) * UNITS * S) + threadIdx.x + turn * THREADS) * V);
                }
"""
    + _LOOPS.replace("@USE@", _USE.replace("@W@", "piece[g]"))
    + """
            }"""
)

CELL_LAST = """
            if (cn) cn[place] = @T@(own[turn][m]);"""
Y_START = "    @T@* out = y + (direction ? (steps - 1) * y_step + H : 0);  // of this step\n"
Y_STORE = "                    if (row + m < batch) out[(row + m) * y_row + u] = @T@(h);\n"
Y_NEXT = "        out += y_move;\n"

CELLS = {
    "lstm": """                const float i_gate = sigmoid(in[m][0] + sum[0][m] + shift[turn][0]);
                const float f_gate = sigmoid(in[m][1] + sum[1][m] + shift[turn][1]);
                const float g_gate = tanhf(in[m][2] + sum[2][m] + shift[turn][2]);
                const float o_gate = sigmoid(in[m][3] + sum[3][m] + shift[turn][3]);
                const float c = own[turn][m] = f_gate * own[turn][m] + i_gate * g_gate;
                const float h = o_gate * tanhf(c);""",
    "gru": """                const float r_gate = sigmoid(in[m][0] + sum[0][m] + shift[turn][0]);
                const float z_gate = sigmoid(in[m][1] + sum[1][m] + shift[turn][1]);
                const float n_gate = tanhf(in[m][2] + r_gate * (sum[2][m] + shift[turn][2]));
                const float h = own[turn][m] = n_gate + z_gate * (own[turn][m] - n_gate);""",
    "rnn_tanh": """                const float h = own[turn][m] = tanhf(in[m][0] + sum[0][m] + shift[turn][0]);""",
    "rnn_relu": """                const float h = own[turn][m] = relu(in[m][0] + sum[0][m] + shift[turn][0]);""",
}


class LayerSpec(Record, frozen=True, kw_only=True):
    """One kernel: kind as in GATES, the storage type as C writes it, hidden units.

    streamed: only RNN_KEEP pieces of each weight row stay in registers, the rest is read at every step. outputs: is
    the hidden state of every step stored?
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
        """Elements of 16 bytes."""
        return 4 if self.ctype == "float" else 8

    def threads(self) -> str:
        """Threads of a block, for the plan: whole waves."""
        return f"min(1024, cdiv({self.hidden} * RNN_SPLIT, 64) * 64)"

    @property
    def pitch(self) -> int:
        """An upper bound of `packed` for every RNN_SPLIT: rows and units are padded to whole pieces and blocks."""
        return (self.hidden + 128) * self.gates * (self.hidden + 512)

    def packed(self) -> str:
        """Elements of one direction's packed weights, for the plan."""
        span = f"RNN_SPLIT * {self.vector}"
        lanes = f"cdiv({self.hidden} * RNN_SPLIT, {self.threads()}) * {self.threads()}"
        return f"cdiv({self.hidden}, {span}) * {self.gates} * {lanes} * {self.vector}"


def layer_text(spec: LayerSpec) -> str:
    """The layer's kernel, after the kernel that packs its weights if they are streamed."""
    lstm = spec.kind == "lstm"
    kept = "RNN_KEEP < CHUNKS ? RNN_KEEP : CHUNKS - 1" if spec.streamed else "CHUNKS"
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
