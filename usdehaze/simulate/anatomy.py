"""Random anatomy: where walls, cavities, valves and layers lie, as implicit shapes on a polar grid.

Coordinates are Cartesian in units of the imaging depth: x to the right, z down from the apex of the fan. A shape is a
signed distance, negative inside, evaluated wherever it is asked for; moving the points moves the anatomy, which is
how cines beat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from usdehaze.simulate.draw import Draw

# Chambers of each view: centre x, centre z, half width, half length, tilt (rad); zero width = no chamber.
_NONE = (0.0, 0.5, 0.0, 0.0, 0.0)
_VIEWS = (
    (  # apical four-chamber
        (0.07, 0.42, 0.13, 0.28, 0.0),
        (0.06, 0.85, 0.13, 0.12, 0.0),
        (-0.19, 0.47, 0.09, 0.22, 0.1),
        (-0.20, 0.83, 0.12, 0.12, 0.0),
    ),
    ((0.00, 0.42, 0.15, 0.29, 0.0), (0.00, 0.86, 0.14, 0.12, 0.0), _NONE, _NONE),  # apical two-chamber
    (  # apical long axis
        (0.02, 0.42, 0.14, 0.28, 0.0),
        (-0.09, 0.84, 0.11, 0.12, 0.0),
        (0.13, 0.82, 0.06, 0.12, -0.2),
        _NONE,
    ),
    (  # parasternal long axis
        (-0.14, 0.54, 0.27, 0.12, 0.1),
        (0.25, 0.70, 0.14, 0.12, 0.0),
        (0.00, 0.28, 0.26, 0.06, 0.1),
        (0.22, 0.47, 0.16, 0.06, -0.2),
    ),
    ((0.05, 0.52, 0.18, 0.18, 0.0), _NONE, (-0.20, 0.40, 0.08, 0.20, -0.5), _NONE),  # parasternal short axis
    (  # subcostal
        (0.12, 0.55, 0.12, 0.26, 0.9),
        (-0.16, 0.72, 0.13, 0.13, 0.5),
        (0.02, 0.36, 0.08, 0.22, 0.9),
        (-0.22, 0.50, 0.12, 0.12, 0.0),
    ),
)

_SHARES = (0, 0, 0, 1, 1, 2, 2, 3, 4, 5)  # apical views are where haze is worst


def rotate(x: Tensor, z: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Rotates the points by ``-angle``: a shape evaluated there is turned by ``+angle``."""
    c, s = angle.cos(), angle.sin()
    return c * x + s * z, c * z - s * x


@dataclass
class Ellipses:
    """Smooth closed shapes: ellipses whose radius wavers with three harmonics. All fields ``(batch, K, 1, 1)``."""

    x: Tensor
    z: Tensor
    half_width: Tensor
    half_length: Tensor
    tilt: Tensor
    waver: Tensor  # (batch, K, 3, 1, 1) amplitudes of harmonics 2, 3, 4
    phase: Tensor  # (batch, K, 3, 1, 1)

    def distance(self, x: Tensor, z: Tensor) -> Tensor:
        """Signed distance along the ray from the centre, ``(batch, K, H, W)``, for points ``(batch, H, W)``."""
        px, pz = rotate(x[:, None] - self.x, z[:, None] - self.z, self.tilt)
        ex, ez = px / self.half_width.clamp_min(1e-3), pz / self.half_length.clamp_min(1e-3)
        rho = torch.hypot(ex, ez).clamp_min(1e-2)
        c, s = ex / rho, ez / rho  # cos and sin of the polar angle; their multiples by the addition theorem
        ck, sk = c, s
        radius = torch.ones_like(rho)
        for k in range(3):
            ck, sk = ck * c - sk * s, sk * c + ck * s
            waver, phase = self.waver[:, :, k], self.phase[:, :, k]
            radius = radius + (waver * phase.cos()) * ck - (waver * phase.sin()) * sk
        return torch.hypot(px, pz) * (1 - radius / rho) + 10.0 * (self.half_width <= 0)


def _ellipses(draw: Draw, k: int, x: Tensor, z: Tensor, a: Tensor, b: Tensor, tilt: Tensor, waver: float) -> Ellipses:
    decay = torch.tensor([1.0, 0.6, 0.4], device=draw.device)[:, None, None]
    amplitude = draw.normal(1.0, k, 3) * decay * draw.uniform(0.2, 1.0, 1)[:, :, None] * waver
    return Ellipses(x, z, a, b, tilt, amplitude, draw.uniform(0, 2 * math.pi, k, 3))


@dataclass
class Hearts:
    """One random heart per frame: up to four chambers, their wall, papillary muscles and valve leaflets."""

    chambers: Ellipses
    papillary: Ellipses
    wall: Tensor  # (batch, 1, 1) thickness
    leaflets: Tensor  # (batch, L, 6): root x, z, tip x, z, bulge, half thickness (negative: absent)

    @staticmethod
    def random(draw: Draw, wall: tuple[float, float]) -> Hearts:
        """Draws view, pose, chamber sizes, wall thickness in the range ``wall``, valves and papillary muscles."""
        view = torch.tensor(_SHARES, device=draw.device)[draw.integer(len(_SHARES))]
        table = torch.tensor(_VIEWS, device=draw.device)[view][..., None, None]
        cx, cz, a, b, tilt = table.unbind(2)
        present = (a > 0).float() * torch.maximum(
            draw.chance(0.9, 4), torch.eye(4, device=draw.device)[:1].reshape(1, 4, 1, 1)
        )
        scale, turn = draw.uniform(0.75, 1.6, 1), draw.normal(0.22, 1)
        a = a * scale * torch.exp(0.15 + draw.normal(0.22, 4)) * present
        b = b * scale * torch.exp(draw.normal(0.15, 4))
        cx, cz = cx + draw.normal(0.02, 4), cz - 0.5 + draw.normal(0.02, 4)
        cx, cz = rotate(cx * scale, cz * scale, -turn)
        mirror = 1 - 2 * draw.chance(0.5, 1)
        raised = draw.chance(0.5, 1) * draw.uniform(0, 0.25, 1)  # the apex is often out of sight
        cx, cz = mirror * cx + draw.normal(0.06, 1), cz + 0.5 + draw.normal(0.05, 1) - raised
        tilt = mirror * (tilt + turn) + draw.normal(0.08, 4)
        chambers = _ellipses(draw, 4, cx, cz, a, b, tilt, 0.07)
        # Papillary muscles and trabeculae: blobs astride the wall of the first chamber.
        where, n = draw.uniform(0, 2 * math.pi, 4), 4
        size = draw.uniform(0.01, 0.05, n) * draw.chance(0.5, n)
        px, pz = rotate(where.cos() * a[:, :1] * 0.85, where.sin() * b[:, :1] * 0.85, -tilt[:, :1])
        papillary = _ellipses(
            draw,
            n,
            cx[:, :1] + px,
            cz[:, :1] + pz,
            size,
            size * draw.uniform(0.8, 2.5, n),
            draw.uniform(-1.5, 1.5, n),
            0.1,
        )
        return Hearts(chambers, papillary, draw.log_uniform(*wall), _leaflets(draw, chambers))


def _leaflets(draw: Draw, chambers: Ellipses) -> Tensor:
    """Two leaflets where the first chamber meets the second, two where the third meets the fourth."""
    out = []
    for upper, lower in ((0, 1), (2, 3)):
        ux, uz, lx, lz = (t[:, k, 0, 0] for k in (upper, lower) for t in (chambers.x, chambers.z))
        width = torch.minimum(chambers.half_width[:, upper], chambers.half_width[:, lower])[:, 0, 0]
        there = (width > 0) & (draw.uniform(0, 1)[:, 0, 0] < 0.8)
        dx, dz = lx - ux, lz - uz
        length = torch.hypot(dx, dz).clamp_min(1e-3)
        dx, dz = dx / length, dz / length
        share = chambers.half_length[:, upper] / (
            chambers.half_length[:, upper] + chambers.half_length[:, lower] + 1e-6
        )
        mx, mz = ux + (lx - ux) * share[:, 0, 0], uz + (lz - uz) * share[:, 0, 0]
        opening = draw.uniform(0.0, 1.0)[:, 0, 0]
        for side in (-1.0, 1.0):
            jitter = draw.normal(0.01, 4)[:, :, 0, 0]
            root = 0.85 * width * side
            tip, rise = root * (0.1 + 0.6 * opening), (0.02 + 0.09 * opening) * (1 + 5 * jitter[:, 0])
            values = (
                mx - dz * root + jitter[:, 1],
                mz + dx * root + jitter[:, 2],
                mx - dz * tip - dx * rise,
                mz + dx * tip - dz * rise,
            )
            thick = torch.where(there, 0.003 + 0.006 * draw.uniform(0, 1)[:, 0, 0], torch.full_like(width, -10.0))
            out.append(torch.stack([*values, 1.5 * jitter[:, 3], thick], dim=1))
    return torch.stack(out, dim=1)


def leaflet_distance(leaflets: Tensor, x: Tensor, z: Tensor) -> Tensor:
    """Signed distance ``(batch, H, W)`` to the nearest leaflet, each a bowed line."""
    x0, z0, x1, z1, bulge, thick = (v[:, :, None, None] for v in leaflets.unbind(2))
    dx, dz = x1 - x0, z1 - z0
    length = torch.hypot(dx, dz).clamp_min(1e-3)
    px, pz = x[:, None] - x0, z[:, None] - z0
    along = ((px * dx + pz * dz) / length**2).clamp(0, 1)
    bow = bulge * torch.sin(math.pi * along) / length
    distance = torch.hypot(px - along * dx + bow * dz, pz - along * dz - bow * dx)
    return (distance - thick).amin(1)


def random_blobs(draw: Draw, k: int) -> Ellipses:
    """Cysts, vessels and lesions of a non-cardiac scene, anywhere in the field of view."""
    z = draw.uniform(0.1, 1.0, k)
    x = z * draw.uniform(-0.6, 0.6, k)
    size = draw.log_uniform(0.015, 0.2, k) * draw.chance(0.6, k)
    return _ellipses(draw, k, x, z, size, size * draw.uniform(0.5, 1.3, k), draw.uniform(-1.5, 1.5, k), 0.12)
