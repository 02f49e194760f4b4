"""Muon for matrices, AdamW for embeddings, output, routers, hyper-connections and vectors."""
import torch

from .config import ModelConfig

ADAM_NAMES = ('token_embd', 'output.weight', 'output_hc', 'hc_', '_ape', 'ffn_gate_inp', 'indexer.proj')
FIXED_SUFFIXES = ('tid2eid.weight', 'exp_probs_b.bias')
MUON_RATE, MUON_MOMENTUM, MUON_DECAY, NEWTON_STEPS = 0.016, 0.95, 0.1, 5
ADAM_DECAY = 0.02


def is_fixed(name: str) -> bool:
    """Tables and router biases get no gradient: the one is drawn once, the other follows the load."""
    return name.endswith(FIXED_SUFFIXES)


def uses_adam(name: str, tensor: torch.Tensor) -> bool:
    return tensor.dim() < 2 or any(part in name for part in ADAM_NAMES)


def adam_rate(name: str) -> float:
    if 'token_embd' in name:
        return 3e-3
    return 1e-3 if 'hc_' in name or 'ffn_gate_inp' in name else 2e-3


def orthogonalised(u: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz towards the nearest semi-orthogonal matrix, batched."""
    tall = u.shape[1] > u.shape[2]
    if tall:
        u = u.transpose(1, 2)
    u = u / (u.float().norm(dim=(1, 2), keepdim=True) + 1e-20).to(u.dtype)
    for _ in range(NEWTON_STEPS):
        gram = u @ u.transpose(1, 2)
        u = 3.4445 * u + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ u
    return u.transpose(1, 2) if tall else u


class Muon:
    """Momentum, orthogonalised update; matrices of one shape (each expert and each output group by itself) go as one batch."""

    def __init__(self, named: dict[str, torch.Tensor], config: ModelConfig):
        self.groups: dict[tuple, list] = {}
        for name, tensor in named.items():
            if name.endswith('attn_output_a.weight'):
                shape = (config.groups, config.group_rank, tensor.shape[-1])
            else:
                shape = (1,) * (3 - tensor.dim()) + tuple(tensor.shape)
            self.groups.setdefault(shape[1:], []).append((tensor, shape))
        device = next(iter(named.values())).device
        self.half = torch.bfloat16 if device.type == 'cuda' else torch.float32
        self.momentum = {s: torch.zeros((sum(shape[0] for _, shape in items), *s), device=device) for s, items in self.groups.items()}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for matrix, items in self.groups.items():
            grad = torch.cat([tensor.grad.view(shape) for tensor, shape in items], 0)
            momentum = self.momentum[matrix]
            momentum.lerp_(grad, 1 - MUON_MOMENTUM)
            update = orthogonalised(grad.lerp(momentum, MUON_MOMENTUM).to(self.half))
            scale = max(1.0, matrix[0] / matrix[1]) ** 0.5 * rate
            tensors, parts, at = [], [], 0
            for tensor, shape in items:
                tensors.append(tensor)
                parts.append(update[at:at + shape[0]].reshape(tensor.shape).float())
                at += shape[0]
            torch._foreach_mul_(tensors, 1 - rate * MUON_DECAY)
            torch._foreach_add_(tensors, parts, alpha=-scale)


class Optimiser:
    def __init__(self, tensors: dict[str, torch.Tensor], config: ModelConfig):
        self.trained = {n: t for n, t in tensors.items() if not is_fixed(n)}
        for tensor in self.trained.values():
            tensor.requires_grad_(True)
        adam = {n: t for n, t in self.trained.items() if uses_adam(n, t)}
        self.adam_tensors = list(adam.values())
        groups = [dict(params=[t], lr=adam_rate(n), base=adam_rate(n), weight_decay=ADAM_DECAY if t.dim() > 1 and 'hc_' not in n else 0.0) for n, t in adam.items()]
        self.adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-8, fused=self.adam_tensors[0].is_cuda)
        self.muon = Muon({n: t for n, t in self.trained.items() if n not in adam}, config)

    def gradients(self) -> list[torch.Tensor]:
        """All gradients, zeros where a tensor took no part."""
        for tensor in self.trained.values():
            if tensor.grad is None:
                tensor.grad = torch.zeros_like(tensor)
        return [tensor.grad for tensor in self.trained.values()]

    def step(self, factor: float) -> torch.Tensor:
        """One update at `factor` of the base rates; returns the gradient norm of what Adam trains, clipped to 1."""
        self.gradients()
        norm = torch.nn.utils.clip_grad_norm_(self.adam_tensors, 1.0)
        for group in self.adam.param_groups:
            group['lr'] = group['base'] * factor
        self.adam.step()
        self.muon.step(MUON_RATE * factor)
        for tensor in self.trained.values():
            tensor.grad = None
        return norm

    def state(self) -> dict:
        return {'adam': self.adam.state_dict(), 'momentum': list(self.muon.momentum.values())}

    def load(self, state: dict) -> None:
        self.adam.load_state_dict(state['adam'])
        for mine, saved in zip(self.muon.momentum.values(), state['momentum']):
            mine.copy_(saved)
