"""Layer-wise pretraining as a stacked denoising autoencoder (Vincent et al. 2010), as DEC and VaDE start.

Each layer learns to give back its input from a version of it with holes; the layers before it are fixed.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from dbull.errors import NumericalError, SettingsError
from dbull.nets.adam import Adam
from dbull.nets.augment import MaskingNoise
from dbull.nets.vae import VAE

CHUNK_ROWS = 4096
NOISE = MaskingNoise(0.2)


def stacked_denoising(
    vae: VAE, inputs: Tensor, n_epochs: int, generator: torch.Generator, learning_rate: float, batch_rows: int
) -> Iterator[tuple[int, int, float]]:
    """Pretrain encoder and decoder layer by layer; yields layer, epoch and mean squared error.

    Layers pair up from the outside in: the first of the encoder with the last of the decoder, down to the
    head of the latent mean with the first of the decoder. Rows stay where they are, and all is drawn there,
    by a generator of that place. Losses are read once an epoch, since that waits for the device; on the CPU,
    where it costs nothing, each is looked at before its step.
    """
    pairs = layer_pairs(vae)
    if pairs[0][1].out_features != inputs.shape[1]:
        raise SettingsError(
            "stacked pretraining gives back what the encoder sees: switch the front end off "
            "(front_end=False), and use a likelihood with one output per value"
        )
    device = next(vae.parameters()).device
    hidden = inputs
    for depth, (encode, decode) in enumerate(pairs):
        innermost = depth == len(pairs) - 1
        optimiser = Adam([*encode.parameters(), *decode.parameters()], learning_rate)
        for epoch in range(n_epochs):
            losses, sizes = [], []
            order = torch.randperm(len(hidden), generator=generator, device=hidden.device)
            for rows in order.split(batch_rows):
                shown = hidden[rows]
                code = encode(NOISE(shown, generator).to(device))
                back = decode(code if innermost else torch.relu(code))
                # Inner layers see the output of a rectifier and must give back such.
                loss = ((back if depth == 0 else torch.relu(back)) - shown.to(device)).square().mean()
                if device.type == "cpu":
                    _check(loss, depth)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(loss.detach())
                sizes.append(len(rows))
            yield depth, epoch, _mean(losses, sizes, depth)
        if not innermost:
            with torch.no_grad():
                chunks = (encode(chunk.to(device)) for chunk in hidden.split(CHUNK_ROWS))
                hidden = torch.cat([torch.relu(chunk).to(inputs.device) for chunk in chunks])


def _mean(losses: list[Tensor], sizes: list[int], depth: int) -> float:
    """Return the mean over the rows of an epoch."""
    read = torch.stack(losses).cpu()
    _check(read, depth)
    total: float = sum(loss * size for loss, size in zip(read.tolist(), sizes, strict=True))
    return total / sum(sizes)


def _check(losses: Tensor, depth: int) -> None:
    if not bool(torch.isfinite(losses).all()):
        raise NumericalError(
            f"pretraining of layer {depth + 1} left the range of numbers: lower learning_rate, or look for "
            "extreme values in the data"
        )


def layer_pairs(vae: VAE) -> list[tuple[nn.Linear, nn.Linear]]:
    """Return the linear layers of encoder and decoder in pairs, from the outside in."""
    if vae.shape.encoder != "mlp":
        raise SettingsError(f"stacked pretraining is for encoder='mlp', not {vae.shape.encoder!r}")
    inward = [layer for layer in [*vae.trunk.children(), vae.mean_head] if isinstance(layer, nn.Linear)]
    outward = [layer for layer in vae.decoder.children() if isinstance(layer, nn.Linear)]
    return list(zip(inward, reversed(outward), strict=True))
