"""The networks: an encoder to a diagonal Gaussian over latent vectors, and a decoder back to the data.

What the encoder sees (`n_inputs`) need not be what the decoder gives back (`n_values`): a fixed front end may
stand before the encoder.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from dbull.errors import SettingsError, check_known
from dbull.nets.likelihood import Likelihood, make_likelihood

ENCODERS = ("mlp", "conv", "identity")
# Of the encoder's variance. At the lower end a latent vector is exact for every purpose of float32.
MIN_LOG_VAR, MAX_LOG_VAR = -14.0, 6.0
START_LOG_VAR = -4.0  # small, so that the first epochs learn to reconstruct instead of to average noise


@dataclass(frozen=True)
class NetworkShape:
    """Everything that is needed to build the networks anew before their weights are loaded."""

    n_inputs: int  # numbers per row that the encoder sees
    n_values: int  # numbers per row that the decoder describes
    latent_dim: int
    encoder: str = "mlp"
    hidden_dims: tuple[int, ...] = (500, 500, 2000)  # the paper's; the decoder mirrors them
    likelihood: str = "bernoulli"
    image_shape: tuple[int, int, int] | None = None  # height, width, channels; for "conv"

    def __post_init__(self) -> None:
        check_known("encoder", self.encoder, ENCODERS)
        if self.encoder == "conv" and self.image_shape is None:
            raise SettingsError("encoder='conv' needs image_shape, e.g. image_shape=(28, 28)")
        if self.encoder == "identity" and not self.n_inputs == self.n_values == self.latent_dim:
            raise SettingsError("encoder='identity' keeps the data as they are: latent_dim is their width")


class VAE(nn.Module):
    """Encoder, decoder and likelihood."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        self.likelihood: Likelihood = make_likelihood(shape.likelihood)
        n_outputs = self.likelihood.n_outputs
        self.trunk: nn.Module
        self.decoder: nn.Module
        self.mean_head: nn.Module
        if shape.encoder == "identity":
            self.trunk = self.decoder = self.mean_head = nn.Identity()
            return
        if shape.encoder == "conv":
            assert shape.image_shape is not None
            self.trunk, n_trunk = conv_trunk(shape.image_shape)
            self.decoder = conv_decoder(shape.image_shape, shape.latent_dim, n_outputs)
        else:
            n_trunk = shape.hidden_dims[-1] if shape.hidden_dims else shape.n_inputs
            self.trunk = nn.Sequential(*hidden_layers((shape.n_inputs, *shape.hidden_dims)))
            back = (shape.latent_dim, *reversed(shape.hidden_dims))
            layers = hidden_layers(back)
            self.decoder = nn.Sequential(*layers, nn.Linear(back[-1], n_outputs * shape.n_values))
        self.mean_head = nn.Linear(n_trunk, shape.latent_dim)
        self.log_var_head = nn.Linear(n_trunk, shape.latent_dim)
        nn.init.zeros_(self.log_var_head.weight)
        nn.init.constant_(self.log_var_head.bias, START_LOG_VAR)

    @property
    def learns(self) -> bool:
        """Whether there is anything to train."""
        return self.shape.encoder != "identity"

    def encode(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z | x), both (N, latent_dim)."""
        if not self.learns:
            return inputs, torch.full_like(inputs, MIN_LOG_VAR)
        hidden = self.trunk(inputs)
        log_var = self.log_var_head(hidden).clamp(MIN_LOG_VAR, MAX_LOG_VAR)
        return self.mean_head(hidden), log_var

    def encode_mean(self, inputs: Tensor) -> Tensor:
        """Return the mean of q(z | x) alone."""
        mean: Tensor = self.mean_head(self.trunk(inputs))
        return mean

    def decode(self, z: Tensor) -> Tensor:
        """Return what the likelihood makes a distribution of the data from."""
        output: Tensor = self.decoder(z)
        return output


def hidden_layers(sizes: Sequence[int]) -> list[nn.Module]:
    """Return linear layers through the given sizes, each followed by a rectifier."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return layers


CONV_CHANNELS = (32, 64, 128)


class _OfImages(nn.Module):
    """A layer that knows the shape of the images."""

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.image_shape = image_shape


class _FromRows(_OfImages):
    """Rows (N, height * width * channels) to images (N, channels, height, width)."""

    def forward(self, rows: Tensor) -> Tensor:
        return rows.reshape(-1, *self.image_shape).movedim(-1, 1)


class _ToRows(_OfImages):
    """Images to rows, cropped to the height and width asked for; several outputs per value side by side."""

    def forward(self, images: Tensor) -> Tensor:
        height, width, n_channels = self.image_shape
        parts = images[:, :, :height, :width].split(n_channels, dim=1)
        return torch.cat([part.movedim(1, -1).flatten(1) for part in parts], dim=1)


def conv_trunk(image_shape: tuple[int, int, int]) -> tuple[nn.Module, int]:
    """Return convolutions that halve the image at each layer, and how many numbers come out."""
    height, width, n_channels = image_shape
    layers: list[nn.Module] = [_FromRows(image_shape)]
    for n_in, n_out in pairwise((n_channels, *CONV_CHANNELS)):
        layers += [nn.Conv2d(n_in, n_out, 3, stride=2, padding=1), nn.ReLU()]
        height, width = -(-height // 2), -(-width // 2)
    return nn.Sequential(*layers, nn.Flatten()), CONV_CHANNELS[-1] * height * width


def conv_decoder(image_shape: tuple[int, int, int], latent_dim: int, n_outputs: int) -> nn.Module:
    """Return the mirror of `conv_trunk`."""
    height, width, n_channels = image_shape
    for _ in CONV_CHANNELS:
        height, width = -(-height // 2), -(-width // 2)
    first = (CONV_CHANNELS[-1], height, width)
    layers: list[nn.Module] = [nn.Linear(latent_dim, math.prod(first)), nn.ReLU(), nn.Unflatten(1, first)]
    for n_in, n_out in pairwise((*reversed(CONV_CHANNELS), n_outputs * n_channels)):
        layers += [nn.ConvTranspose2d(n_in, n_out, 4, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers[:-1], _ToRows(image_shape))
