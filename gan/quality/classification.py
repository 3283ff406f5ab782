"""A test of whether samples show the classes they were generated for, with a classifier not used in training."""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from config import Vocabulary
from gan.language import text
from gan.quality import metrics

LEAST = 50  # labelled faces needed in each half to measure a column
LEAST_FOR_FD = 500  # faces of a class needed in each set for a Fréchet distance of its own
SHOWN = 20  # maximum number of classes printed
DECAY = 1e-2  # weight decay of the classifier, for features of deviation 1


@dataclasses.dataclass(frozen=True)
class Column:
    """The results for one column of labels, as shares from 0 to 1.

    `agreement` is the classifier's accuracy on samples, whose true class is the one they were generated for; `real` is
    its accuracy on real faces that it was not trained on; `chance` is the accuracy expected if samples had random
    classes. `classes` has the first two for each class, the number of its samples and, if there are enough faces, the
    FD of its samples and its floor.
    """

    name: str
    agreement: float
    real: float
    chance: float
    classes: dict[str, dict[str, float]]

    def __str__(self) -> str:
        """Format the results as lines of text."""
        head = text("{}: {:.0%} of the samples look like their class; of real faces {:.0%}, by chance {:.0%}")
        lines = [head.format(self.name, self.agreement, self.real, self.chance)]
        for name, of in list(self.classes.items())[:SHOWN]:
            line = text("  {:12}{:>7,} samples, {:.0%}, real {:.0%}")
            line = line.format(name, int(of["samples"]), of["agreement"], of["real"])
            lines.append(line + (text("; FD {:.1f}, floor {:.1f}").format(of["fd"], of["floor"]) if "fd" in of else ""))
        if len(self.classes) > SHOWN:
            lines.append(text("  and {} more, in the JSON file").format(len(self.classes) - SHOWN))
        return "\n".join(lines)


def measure(
    vocabulary: Vocabulary,
    taught: tuple[Tensor, np.ndarray],
    others: tuple[Tensor, np.ndarray],
    samples: tuple[Tensor, np.ndarray],
) -> list[Column]:
    """Train a classifier for each column on some real faces, and apply it to other real faces and to samples.

    Each set has features (N, F) and codes as in `gan.classes`, (N, K); faces without a class are ignored. Columns with
    a single class or few labelled faces are left out.
    """
    found = []
    for column, (name, *classes) in enumerate(vocabulary):
        of_column = ((features, torch.from_numpy(codes[:, column])) for features, codes in (taught, others, samples))
        sets = [(features[of > 0], of[of > 0]) for features, of in of_column]
        (seen, own), (other_seen, other_own), (fake_seen, asked) = sets
        if len(classes) < 2 or min(len(own), len(other_own)) < LEAST or not len(asked):
            continue
        classify = classifier(seen, own - 1, len(classes))
        real, fake = classify(other_seen) + 1, classify(fake_seen) + 1
        frequency = torch.bincount(asked, minlength=len(classes) + 1) / len(asked)
        predicted = torch.bincount(fake, minlength=len(classes) + 1) / len(fake)
        of_classes = {}
        for code, one in enumerate(classes, 1):
            mine, other = asked == code, other_own == code
            if not mine.any() or not other.any():
                continue
            of = {"agreement": _share(fake[mine] == code), "real": _share(real[other] == code)}
            of = {"samples": int(mine.sum()), **of}
            least = min(int(some.sum()) for some in (own == code, other, mine))
            if least >= LEAST_FOR_FD:
                gaussian = metrics.gaussian(seen[own == code][:least])
                of["fd"] = metrics.frechet_distance(gaussian, metrics.gaussian(fake_seen[mine][:least]))
                of["floor"] = metrics.frechet_distance(gaussian, metrics.gaussian(other_seen[other][:least]))
            of_classes[one] = of
        chance = float((frequency * predicted).sum())
        found.append(Column(name, _share(fake == asked), _share(real == other_own), chance, of_classes))
    return found


def _share(right: Tensor) -> float:
    return right.double().mean().item()


def classifier(seen: Tensor, classes: Tensor, number: int) -> Callable[[Tensor], Tensor]:
    """Fit a logistic regression to features (N, F) and classes (N,) from 0; returns a function (M, F) -> (M,)."""
    mean, deviation = seen.mean(0), seen.std(0).clamp(min=1e-6)
    weights = torch.zeros(seen.shape[1] + 1, number, requires_grad=True)

    def logits(some: Tensor) -> Tensor:
        return ((some - mean) / deviation) @ weights[:-1] + weights[-1]

    optimizer = torch.optim.LBFGS([weights], max_iter=100, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(logits(seen), classes) + DECAY * weights[:-1].square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return lambda some: logits(some).detach().argmax(1)
