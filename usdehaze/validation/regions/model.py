"""Region and Regions: masks with a role, and the checks that every set of regions must pass."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import ndimage

from usdehaze.budget import spend
from usdehaze.errors import InputError

ROLES = ("tissue", "haze")
FAINT = "faint"  # walls at risk; beside tissue and haze, or alone
AUTOMATIC = "automatic"  # origin of regions that nobody drew
GIVEN = "given"
MOST_OUTSIDE = 0.01  # of a region's pixels beyond the image: more are told


class PackedMasks:
    """Masks of one size, kept as deflated bits and unpacked a frame at a time.

    Read like a bool array ``(N, H, W)``: ``len(masks)``, ``masks[n]``; some 100 bytes a mask.

    Args:
        masks: bool ``(H, W)`` each, taken one at a time.
        shape: ``(H, W)``.
    """

    def __init__(self, masks: Iterable[np.ndarray], shape: tuple[int, int]) -> None:
        self.shape = shape
        self._packed = [zlib.compress(np.packbits(mask).tobytes(), 1) for mask in masks]

    def __len__(self) -> int:
        return len(self._packed)

    def __getitem__(self, index: int) -> np.ndarray:
        bits = np.frombuffer(zlib.decompress(self._packed[index]), np.uint8)
        return np.unpackbits(bits, count=self.shape[0] * self.shape[1]).astype(bool).reshape(self.shape)

    def any(self) -> bool:
        """Whether any pixel of any mask is inside."""
        return any(self[n].any() for n in range(len(self)))


@dataclass(frozen=True)
class Region:
    """One region.

    Attributes:
        name: what it is called in tables and reports.
        role: "tissue", "haze" or "faint".
        mask: bool ``(1, H, W)``, the same in every frame it holds in, or ``(T, H, W)``; packed where there may be many.
        frames: indices of the frames it holds in.
        cut: it was drawn beyond the frame, and holds what lies in it.
    """

    name: str
    role: str
    mask: np.ndarray | PackedMasks
    frames: frozenset[int] | range
    cut: bool = False


@dataclass(frozen=True)
class Regions:
    """Every region of a cine.

    Attributes:
        regions: in the order of the file.
        shape: ``(T, H, W)`` of the cine.
        source: name of the file they came from; "" for automatic ones.
        origin: "given" (drawn by somebody) or "automatic" (found in the input).
        margin_px: by how much they were eroded, pixels.
    """

    regions: tuple[Region, ...]
    shape: tuple[int, int, int]
    source: str = ""
    origin: str = GIVEN
    margin_px: float = 0.0

    @property
    def names(self) -> dict[str, list[str]]:
        """Names of the regions by role: of tissue and haze, and of faint walls where there are any."""
        names = {role: [region.name for region in self.regions if region.role == role] for role in (*ROLES, FAINT)}
        return {role: of_role for role, of_role in names.items() if of_role or role in ROLES}

    def leaving(self, image: np.ndarray) -> list[str]:
        """A sentence for every role whose regions leave the image, bool ``(H, W)``: what lies there is no echo; for
        every one that has no pixel; and for those that were drawn beyond the frame."""
        found = []
        for role in filter(self.names.get, self.names):
            masks = (self.mask(role, frame) for frame in range(self.shape[0]))
            share = max((float((~image[mask]).mean()) for mask in masks if mask.any()), default=None)
            if share is None:
                eroded = f" once eroded by {self.margin_px:g} pixels" if self.margin_px else ""
                found.append(f"Its {role} regions hold no pixel in these frames{eroded}.")
            elif share > MOST_OUTSIDE:
                percent = f"{100 * share:.0f} %"
                found.append(f"Up to {percent} of the pixels of its {role} regions in a frame are outside the image.")
            if any(region.cut for region in self.regions if region.role == role):
                found.append(f"Its {role} regions reach beyond the frame: measured is what lies in it.")
        return found

    def mask(self, role: str, frame: int) -> np.ndarray:
        """Bool ``(H, W)``: union of the regions of one role in one frame."""
        union = np.zeros(self.shape[1:], dtype=bool)
        for region in (*self._lasting[role], *self._held.get((role, frame), ())):
            if frame in region.frames:
                union |= region.mask[frame if len(region.mask) > 1 else 0]
        return union

    @cached_property
    def _held(self) -> dict[tuple[str, int], list[Region]]:
        """Regions that hold in few frames, by their role and these."""
        held: dict[tuple[str, int], list[Region]] = {}
        for region in self.regions:
            spend(self.source)
            for frame in () if self._lasts(region) else region.frames:
                held.setdefault((region.role, frame), []).append(region)
        return held

    @cached_property
    def _lasting(self) -> dict[str, list[Region]]:
        """Regions that hold in most frames, by their role."""
        lasting = defaultdict(list)
        for region in filter(self._lasts, self.regions):
            lasting[region.role].append(region)
        return lasting

    def _lasts(self, region: Region) -> bool:
        return 2 * len(region.frames) > self.shape[0]

    def frames(self, roles: tuple[str, ...] = ROLES) -> list[int]:
        """Frames in which every one of these roles has pixels, ascending; of tissue and haze by default."""
        found = []
        for t in range(self.shape[0]):
            spend(self.source)
            if all(self.mask(role, t).any() for role in roles):
                found.append(t)
        return found

    def eroded(self, margin_px: float) -> Regions:
        """The same regions without the pixels within ``margin_px`` of their border (edges of the frame are none)."""
        if margin_px == 0:
            return self

        def inner(region: Region) -> PackedMasks:
            masks = (region.mask[n] for n in range(len(region.mask)))
            inner = (m if m.all() else ndimage.distance_transform_edt(m) > margin_px for m in masks)
            return PackedMasks(inner, self.shape[1:])

        regions = tuple(replace(region, mask=inner(region)) for region in self.regions)
        return replace(self, regions=regions, margin_px=margin_px)


def checked(name: object, regions: Regions, first_frame: int) -> Regions:
    """The regions, if they can be measured: tissue and haze in one frame at least, or faint walls; haze off both.

    Args:
        name: the file at fault, for errors.
        regions: to be checked.
        first_frame: index in the source of the first frame, for errors.

    Raises:
        InputError: they cannot.
    """
    there = {region.role for region in regions.regions}
    for role in ROLES:
        if role not in there and FAINT not in there:
            raise InputError(name, f"no {role} region", "at least one tissue and one haze region, or a faint one")
    if not regions.frames() and not regions.frames((FAINT,)):
        eroded = f" once eroded by {regions.margin_px:g} pixels" if regions.margin_px else ""
        found = f"no frame has both a tissue and a haze region{eroded}"
        raise InputError(name, found, "both in one frame at least", "a smaller --margin may do" if eroded else "")
    for role in ("tissue", FAINT):
        for t in regions.frames((role, "haze")):
            shared = int((regions.mask(role, t) & regions.mask("haze", t)).sum())
            if shared:
                found = f"{role} and haze overlap in {shared} pixels of frame {t + first_frame}"
                raise InputError(name, found, "regions that are apart")
    return regions
