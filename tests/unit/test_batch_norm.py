"""BatchNorm for a shared batch, by two threads in place of two processes; tests/e2e/test_ranks.py has those."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from gan.training.batch_norm import SharedBatchNorm


@pytest.fixture
def _of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    barrier, given = threading.Barrier(2, timeout=60), dict[int, Tensor]()

    def all_reduce(tensor: Tensor) -> None:
        given[threading.get_ident()] = tensor.clone()
        barrier.wait()
        tensor.copy_(torch.stack([*given.values()]).sum(0))
        barrier.wait()

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)


@pytest.mark.usefixtures("_of_two")
@pytest.mark.parametrize(("low", "rough"), [(False, 1e-5), (True, 0.02)])
def test_two_parts_are_normalised_as_the_whole_is(low: bool, rough: float) -> None:
    torch.manual_seed(0)
    convs = [nn.Conv2d(inputs, outputs, 3, bias=False) for inputs, outputs in ((3, 8), (8, 4))]
    alone = nn.Sequential(convs[0], nn.BatchNorm2d(8), nn.ReLU(), convs[1], nn.BatchNorm2d(4))
    for weight in alone.parameters():
        nn.init.normal_(weight)
    images, wanted = torch.randn(8, 3, 9, 9) + torch.arange(8.0).view(8, 1, 1, 1), torch.randn(8, 4, 5, 5)

    def learn(network: nn.Module, part: slice) -> tuple[list[Tensor], list[Tensor]]:
        mine = images[part].requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            network(mine)
            made = network(mine)
        loss = (made.float() - wanted[part]).square().sum((1, 2, 3)).mean()
        of_images, *of_weights = torch.autograd.grad(loss, [mine, *network.parameters()])
        return [made.detach(), len(mine) * of_images, network.eval()(mine).detach()], of_weights

    both = [copy.deepcopy(alone) for _ in range(2)]
    for network in both:
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.__class__ = SharedBatchNorm
    with ThreadPoolExecutor(2) as threads:
        (first, of_first), (second, of_second) = threads.map(learn, both, (slice(4), slice(4, 8)))
    whole, of_whole = learn(alone, slice(8))
    found = [torch.cat(pair) for pair in zip(first, second, strict=True)]
    found += [(one + other) / 2 for one, other in zip(of_first, of_second, strict=True)]
    for mine, one in zip(found, whole + of_whole, strict=True):
        assert (mine - one).abs().max() <= rough * one.abs().max()
