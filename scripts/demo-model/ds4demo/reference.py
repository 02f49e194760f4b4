"""A second, independent forward pass: numpy, float64, one token at a time, shapes read from the tensors themselves.

It shares no code with the torch model, so that agreement between the two says something about both.  `rounding=True`
applies what the packed caches do: E4M3 rows, Hadamard and E2M1 indexer vectors, binary16 for what is left.
"""
import numpy as np

from . import config as k

E4M3 = np.array([m * 2.0**-9 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][:127])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def normed(x, weight=None):
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + k.RMS_EPS)
    return y if weight is None else y * weight


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def to_codes(magnitudes, table):
    """Nearest entry of a sorted table, ties to the even code."""
    upper = np.searchsorted(table, magnitudes).clip(1, len(table) - 1)
    lower = upper - 1
    below, above = magnitudes - table[lower], table[upper] - magnitudes
    return table[np.where((above < below) | ((above == below) & (upper % 2 == 0)), upper, lower)]


def block_float(x, group, table, floor):
    """Groups with a power-of-two scale."""
    g = x.reshape(-1, group)
    scale = 2.0 ** np.ceil(np.log2(np.maximum(np.abs(g).max(1, keepdims=True), floor) / table[-1]))
    return (np.sign(g) * to_codes(np.minimum(np.abs(g) / scale, table[-1]), table) * scale).reshape(x.shape)


def binary16(x):
    return x.astype(np.float16).astype(np.float64)


def packed_row(row):
    plain = k.HEAD_WIDTH - k.ROTARY
    return binary16(np.concatenate([block_float(row[:plain], 64, E4M3, 1e-4), row[plain:]]))


def walsh_hadamard(x):
    y, half = x.reshape(-1, k.INDEX_WIDTH).copy(), 1
    while half < k.INDEX_WIDTH:
        pairs = y.reshape(len(y), -1, 2, half)
        y = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2).reshape(len(y), -1)
        half *= 2
    return (y * k.INDEX_WIDTH**-0.5).reshape(x.shape)


def packed_index(x):
    return binary16(block_float(walsh_hadamard(x), 32, E2M1, 6 * 2.0**-126))


class Rotation:
    def __init__(self, ratio):
        i = np.arange(0, k.ROTARY, 2)
        if ratio == 0:
            self.frequency = k.ROPE_BASE ** (-i / k.ROTARY)
        else:
            def turns(beta):
                return k.ROTARY * np.log(k.ROPE_ORIGINAL_CONTEXT / (beta * 2 * np.pi)) / (2 * np.log(k.COMPRESS_ROPE_BASE))
            low, high = np.floor(turns(k.YARN_BETA_FAST)), np.ceil(turns(k.YARN_BETA_SLOW))
            ramp = ((i / 2 - low) / (high - low)).clip(0, 1)
            self.frequency = k.COMPRESS_ROPE_BASE ** (-i / k.ROTARY) * (1 - ramp + ramp / k.ROPE_FACTOR)

    def __call__(self, x, position, direction=1):
        angle = position * self.frequency * direction
        turned = (x[..., -k.ROTARY::2] + 1j * x[..., -k.ROTARY + 1::2]) * np.exp(1j * angle)
        out = x.copy()
        out[..., -k.ROTARY::2], out[..., -k.ROTARY + 1::2] = turned.real, turned.imag
        return out


class Rows:
    """A growing table of vectors."""

    def __init__(self, width):
        self.data, self.count = np.zeros((64, width)), 0

    def push(self, row):
        if self.count == len(self.data):
            self.data = np.concatenate([self.data, np.zeros_like(self.data)])
        self.data[self.count] = row
        self.count += 1

    @property
    def table(self):
        return self.data[:self.count]


class Compressor:
    """Pools windows of `ratio` tokens; at ratio 4 each row also pools the window before."""

    def __init__(self, weights, prefix, ratio):
        self.kv, self.gate, self.ape, self.norm = (weights[f'{prefix}_{part}.weight'] for part in ('kv', 'gate', 'ape', 'norm'))
        self.ratio, self.width = ratio, len(self.norm)
        self.values, self.gates, self.before = [], [], None

    def push(self, n, position):
        """The normed row of the window that this token completes, or None."""
        self.values.append(self.kv @ n)
        self.gates.append(self.gate @ n + self.ape[position % self.ratio])
        if len(self.values) < self.ratio:
            return None
        v, g = np.stack(self.values), np.stack(self.gates)
        self.values, self.gates = [], []
        if self.ratio == 4:
            earlier, self.before = self.before, (v[:, :self.width], g[:, :self.width])
            v, g = v[:, self.width:], g[:, self.width:]
            if earlier is not None:
                v, g = np.concatenate([earlier[0], v]), np.concatenate([earlier[1], g])
        p = np.exp(g - g.max(0))
        return normed((p * v).sum(0) / p.sum(0), self.norm)


class Attention:
    def __init__(self, weights, ratio, top_k, rounding):
        self.w, self.ratio, self.top_k, self.rounding = weights, ratio, top_k, rounding
        self.rotate = Rotation(ratio)
        self.heads = len(weights['attn_sinks.weight'])
        self.group_rank = weights['attn_output_a.weight'].shape[0] // (self.heads * k.HEAD_WIDTH // weights['attn_output_a.weight'].shape[1])
        self.window = []
        if ratio:
            self.compressor, self.far = Compressor(weights, 'attn_compressor', ratio), Rows(k.HEAD_WIDTH)
        if ratio == 4:
            self.index_compressor, self.index = Compressor(weights, 'indexer_compressor', ratio), Rows(k.INDEX_WIDTH)

    def pack(self, row):
        return packed_row(row) if self.rounding else row

    def extend(self, n, position):
        """Appends the rows that this token completes."""
        row = self.compressor.push(n, position)
        if row is not None:
            self.far.push(self.pack(self.rotate(row, position + 1 - self.ratio)))
        if self.ratio == 4:
            row = self.index_compressor.push(n, position)
            if row is not None:
                row = self.rotate(row, position + 1 - self.ratio)
                self.index.push(packed_index(row) if self.rounding else row)

    def visible(self, n, low, position):
        """Compressed rows that the indexer selects; all of them at ratio 128 or while there are few."""
        if self.ratio == 128 or self.index.count <= self.top_k:
            return self.far.table
        queries = self.rotate((self.w['indexer.attn_q_b.weight'] @ low).reshape(-1, k.INDEX_WIDTH), position)
        if self.rounding:
            queries = packed_index_queries(queries)
        weights = self.w['indexer.proj.weight'] @ n * (k.INDEX_WIDTH * len(queries)) ** -0.5
        scores = weights @ np.maximum(queries @ self.index.table.T, 0)
        return self.far.table[np.sort(np.argsort(-scores, kind='stable')[:self.top_k])]

    def __call__(self, n, position):
        w = self.w
        low = normed(w['attn_q_a.weight'] @ n, w['attn_q_a_norm.weight'])
        queries = self.rotate(normed((w['attn_q_b.weight'] @ low).reshape(self.heads, k.HEAD_WIDTH)), position)
        row = self.rotate(normed(w['attn_kv.weight'] @ n, w['attn_kv_a_norm.weight']), position)
        self.window = (self.window + [self.pack(row)])[-k.WINDOW:]
        rows = np.stack(self.window)
        if self.ratio:
            self.extend(n, position)
            rows = np.concatenate([rows, self.visible(n, low, position)])
        scores = queries @ rows.T * k.HEAD_WIDTH**-0.5
        sinks = w['attn_sinks.weight'][:, None]
        top = np.maximum(scores.max(1, keepdims=True), sinks)
        p = np.exp(scores - top)
        out = self.rotate(p @ rows / (p.sum(1, keepdims=True) + np.exp(sinks - top)), position, -1)
        groups = w['attn_output_a.weight'].reshape(-1, self.group_rank, w['attn_output_a.weight'].shape[1])
        return w['attn_output_b.weight'] @ (groups @ out.reshape(len(groups), -1, 1)).ravel()


def packed_index_queries(queries):
    """Queries are rounded to E2M1 but never stored, so not to binary16."""
    return block_float(walsh_hadamard(queries), 32, E2M1, 6 * 2.0**-126)


def swiglu(gate, up, down, n):
    a, b = np.minimum(gate @ n, k.SWIGLU_LIMIT), np.clip(up @ n, -k.SWIGLU_LIMIT, k.SWIGLU_LIMIT)
    return down @ (a * sigmoid(a) * b)


class Layer:
    def __init__(self, weights, ratio, top_k, expert_scale, rounding):
        self.w, self.expert_scale = weights, expert_scale
        self.attention = Attention(weights, ratio, top_k, rounding)

    def site(self, streams, which, norm, block):
        m = k.STREAMS
        fn, scale, base = (self.w[f'hc_{which}_{part}.weight'] for part in ('fn', 'scale', 'base'))
        mix = fn @ normed(streams.ravel())
        pre = sigmoid(mix[:m] * scale[0] + base[:m]) + k.HC_EPS
        post = 2 * sigmoid(mix[m:2 * m] * scale[1] + base[m:2 * m])
        z = (mix[2 * m:] * scale[2] + base[2 * m:]).reshape(m, m)
        c = np.exp(z - z.max(1, keepdims=True))
        c = c / c.sum(1, keepdims=True) + k.HC_EPS
        for i in range(2 * k.SINKHORN_PASSES - 1):
            c = c / (c.sum(i % 2, keepdims=True) + k.HC_EPS)
        y = block(normed(pre @ streams, self.w[norm + '.weight']))
        return post[:, None] * y + c.T @ streams

    def feed_forward(self, n, token):
        w = self.w
        p = np.sqrt(np.logaddexp(0, w['ffn_gate_inp.weight'] @ n))
        if 'ffn_gate_tid2eid.weight' in w:
            chosen = w['ffn_gate_tid2eid.weight'][token].astype(int)
        else:
            chosen = np.argsort(-(p + w['exp_probs_b.bias']), kind='stable')[:k.EXPERTS_USED]
        y = swiglu(w['ffn_gate_shexp.weight'], w['ffn_up_shexp.weight'], w['ffn_down_shexp.weight'], n)
        for e in chosen:
            y = y + p[e] / p[chosen].sum() * self.expert_scale * swiglu(
                w['ffn_gate_exps.weight'][e], w['ffn_up_exps.weight'][e], w['ffn_down_exps.weight'][e], n)
        return y

    def __call__(self, streams, token, position):
        streams = self.site(streams, 'attn', 'attn_norm', lambda n: self.attention(n, position))
        return self.site(streams, 'ffn', 'ffn_norm', lambda n: self.feed_forward(n, token))


class Reference:
    """Feeds tokens one by one.  `weights`: dequantised tensors by GGUF name; the MTP block is optional."""

    def __init__(self, weights, ratios, top_k, expert_scale, rounding=False):
        self.w = {name: np.asarray(t, np.float64) for name, t in weights.items()}

        def layer(prefix, ratio):
            part = {name[len(prefix):]: t for name, t in self.w.items() if name.startswith(prefix)}
            return Layer(part, ratio, top_k, expert_scale, rounding)
        self.layers = [layer(f'blk.{i}.', ratio) for i, ratio in enumerate(ratios)]
        self.mtp = layer('mtp.0.', 0) if 'mtp.0.e_proj.weight' in self.w else None
        self.position = 0

    def head(self, prefix, norm, streams):
        fn, scale, base = (self.w[f'{prefix}_{part}.weight'] for part in ('fn', 'scale', 'base'))
        pre = sigmoid(fn @ normed(streams.ravel()) * scale[0] + base) + k.HC_EPS
        return self.w['output.weight'] @ normed(pre @ streams, self.w[norm])

    def step(self, token):
        """-> logits after this token, streams of its position"""
        streams = np.repeat(self.w['token_embd.weight'][token][None], k.STREAMS, 0)
        for layer in self.layers:
            streams = layer(streams, token, self.position)
        self.position += 1
        return self.head('output_hc', 'output_norm.weight', streams), streams

    def draft(self, streams, token, position):
        """MTP logits from the streams of `position` and the token that follows it."""
        e = self.w['mtp.0.e_proj.weight'] @ normed(self.w['token_embd.weight'][token], self.w['mtp.0.enorm.weight'])
        h = normed(streams, self.w['mtp.0.hnorm.weight']) @ self.w['mtp.0.h_proj.weight'].T
        return self.head('mtp.0.hc_head', 'mtp.0.norm.weight', self.mtp(e + h, token, position))
