"""A network that enlarges anime faces four times, to crisp drawings of 384 pixels from faces of 96. Pure."""

from torch import Tensor, nn
from torch.nn.functional import leaky_relu, pixel_shuffle

TIMES = 4
WIDTH, INNER, BLOCKS = 48, 104, 4  # channels at the size of the face and at half of it, and blocks there
SLOPE = 0.2  # of the leaky ReLUs


class Block(nn.Module):
    """Residual block of two convolutions: (N, C, S, S) -> the same shape."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, 1, 1)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        return x + self.conv2(leaky_relu(self.conv1(x), SLOPE, inplace=True))


class Enlarger(nn.Module):
    """Enlarges faces four times: draws what is missing between their pixels, on top of the repeated pixels.

    Most of the work is done at half the size of the face, where it costs a quarter, and a convolution's 3x3 positions
    see twice as far. The last layer computes the 4x4 pixels of each pixel at once (Shi et al. 2016, "Real-time single
    image super-resolution"). `benchmarks/enlarger.py` taught it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, WIDTH, 3, 1, 1)
        self.before = Block(WIDTH)
        self.down = nn.Conv2d(WIDTH, INNER, 4, 2, 1)
        self.inner = nn.Sequential(*[Block(INNER) for _ in range(BLOCKS)])
        self.up = nn.Conv2d(INNER, 4 * WIDTH, 1)
        self.after = Block(WIDTH)
        self.last = nn.Conv2d(WIDTH, 3 * TIMES**2, 3, 1, 1)

    def forward(self, faces: Tensor) -> Tensor:
        """Enlarge faces: (N, 3, S, S) in [-1, 1], S even -> (N, 3, 4 S, 4 S), about the same range."""
        x = self.before(self.first(faces))
        x = x + pixel_shuffle(self.up(self.inner(leaky_relu(self.down(x), SLOPE))), 2)
        added = self.last(leaky_relu(self.after(x), SLOPE))
        return pixel_shuffle(added + faces.repeat_interleave(TIMES**2, 1), TIMES)
