"""The pieces of the training loss."""
import torch

from .numerics import region
from .packing import ANSWER, PROMPT


def shifted(x: torch.Tensor, last=None) -> torch.Tensor:
    """Each row moved one to the left; the end is `last`, or wraps around where its value does not count."""
    end = x[:, :1] if last is None else torch.full_like(x[:, :1], last)
    return torch.cat([x[:, 1:], end], 1)


@region
def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    logits = logits.to(torch.float32)
    return torch.logsumexp(logits, -1) - logits.gather(-1, target[:, None])[:, 0]


def weighted_mean(each: torch.Tensor, codes: torch.Tensor, prompt_weight: float) -> torch.Tensor:
    """Answers count 1, prompts `prompt_weight`, padding nothing."""
    codes = codes.reshape(-1)
    weight = (codes == ANSWER).float() + prompt_weight * (codes == PROMPT).float()
    return (each * weight).sum() / weight.sum()


def answer_mean(each: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    answers = codes.reshape(-1) == ANSWER
    return (each * answers).sum() / answers.sum()
