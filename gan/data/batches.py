"""Batches of faces on the device. A module apart from `faces`, because decoding processes must not import torch."""

import functools
import math

import numpy as np
import torch
from torch import Tensor

from gan.data.faces import Pack
from gan.device import has_room, layout, send
from gan.images import to_tensor
from gan.latent import stream

LOT = 4096  # number of faces copied to the device at a time


class Batches:
    """The batches of training faces: every face once per epoch, in an order that depends only on (seed, epoch).

    A batch may span two epochs, so that no face is left out or repeated. `chosen` are the indices of the faces to train
    on, (n,); if the GPU has room, they all stay on it. `flip` is the probability that a face is mirrored. `part` is the
    slice of each batch to return, for several devices that share it. `codes` are the classes of the pack's faces,
    (N, V); see `gan.classes`.
    """

    def __init__(
        self,
        pack: Pack,
        chosen: np.ndarray,
        batch_size: int,
        seed: int,
        device: torch.device,
        flip: float = 0.0,
        part: slice = slice(None),
        codes: np.ndarray | None = None,
    ) -> None:
        self.pack, self.chosen, self.batch_size = pack, chosen, batch_size
        self.seed, self.device, self.flip, self.part = seed, device, flip, part
        self.resident = None
        if has_room(device, len(chosen) * pack.pixels[0].nbytes):
            self.resident = torch.empty(len(chosen), *pack.pixels.shape[1:], dtype=torch.uint8, device=device)
            for start in range(0, len(chosen), LOT):  # in parts, so that memory never holds a second copy of all
                lot = pack.read(chosen[start : start + LOT])
                self.resident[start : start + len(lot)] = torch.from_numpy(lot)
        codes = np.zeros((len(pack.pixels), 0), np.int64) if codes is None else codes
        self.codes = torch.from_numpy(codes[chosen])
        # The orders of two epochs are kept, since a batch may span both.
        self._order = functools.lru_cache(2)(lambda epoch: stream(seed, epoch, "faces").permutation(len(chosen)))

    def __len__(self) -> int:
        return len(self.chosen)

    def steps(self, epochs: float) -> float:
        """Return the number of steps in `epochs` epochs, rounded up; infinite if `epochs` is."""
        return math.inf if math.isinf(epochs) else math.ceil(epochs * len(self) / self.batch_size)

    def epochs(self, step: int) -> int:
        """Return the number of complete epochs after `step` steps."""
        return step * self.batch_size // len(self)

    def indices(self, step: int) -> np.ndarray:
        """Return the indices (batch_size,) into the chosen faces for the batch of `step`, which counts from 1."""
        end = step * self.batch_size
        return np.array([self._order(i // len(self))[i % len(self)] for i in range(end - self.batch_size, end)])

    def classes(self, step: int) -> Tensor:
        """Return the classes of the batch of `step`, or of its part: (batch_size, V), int64, on the device."""
        return send(self.codes[torch.from_numpy(self.indices(step)[self.part])], self.device)

    def __call__(self, step: int) -> Tensor:
        """Return the batch of `step`, or its part: (batch_size, C, S, S) in [-1, 1] on the device.

        Raises:
            DataError: the pack was changed; see `Pack.read`.
        """
        indices = self.indices(step)[self.part]
        if self.resident is not None:
            pixels = self.resident[send(torch.from_numpy(indices), self.device)]
        else:
            pixels = send(torch.from_numpy(self.pack.read(self.chosen[indices])), self.device)
        if self.flip:
            mirrored = torch.from_numpy(stream(self.seed, step, "flip").random(self.batch_size)[self.part] < self.flip)
            pixels = torch.where(send(mirrored, self.device)[:, None, None, None], pixels.flip(2), pixels)
        # Unlike `contiguous`, `clone` also sets the strides of grey images, by which Apple's GPUs choose their layout.
        return to_tensor(pixels).clone(memory_format=layout(self.device))
