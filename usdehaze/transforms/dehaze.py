"""DehazeUltrasound: frames in dB become their tissue and, on request, haze and uncertainty."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from monai.config import KeysCollection, NdarrayOrTensor
from monai.data import MetaTensor
from monai.transforms import MapTransform, Transform
from monai.utils import TransformBackends, convert_to_dst_type, ensure_tuple_rep

from usdehaze.cine import Cartesian, Geometry, Polar
from usdehaze.dehazing.dehazer import Dehazer, DehazerOptions, check_options
from usdehaze.errors import InputError, UsdehazeError
from usdehaze.geometry.sector import find_fan
from usdehaze.io.hdf5.layouts.resemblance import lie_elsewhere
from usdehaze.io.limits import MIN_SIDE
from usdehaze.io.whole_screen import fan_on_its_side
from usdehaze.transforms.layout import array_of
from usdehaze.transforms.meta import ESTIMATE, GEOMETRY, check_cine, cine_of, dynamic_range_of, geometry_in, name_of
from usdehaze.transforms.result import mark_estimates

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DehazeUltrasound(Transform):
    """Takes the haze off ultrasound frames: ``(T, H, W)`` dB -> tissue ``(T, H, W)`` dB, or ``(1, T, H, W)`` likewise.

    What comes back has the layout, type, device and metadata of the input (float32 where that is not floating point),
    and the values of ``Dehazer.dehaze``: deterministic, whatever batch size or number of workers. The metadata of a
    MetaTensor gain ``usdehaze``, the settings that made it, ``usdehaze_version``, ``estimate``, which of the images it
    is, and the ``geometry`` that was used. Pixels that the metadata know to hold no grey tissue stay bit for bit.

    Geometry, the first of these that applies:

    1. the argument ``geometry``;
    2. the metadata written by `LoadUltrasound`. Where a spatial transform has changed the shape or the affine since,
       that geometry no longer fits, and the frames are refused: dehaze first, or give ``geometry="find"``; likewise
       where pixels have changed places and the affine was not told, as by ``Transpose``. (An elastic deformation,
       which makes new values of them, cannot be noticed.)
    3. the sector finder, on the frames themselves; where it finds none, they are taken as a rectangle: rows near to
       far, columns across the beams.

    Frames without metadata are taken as 60 dB without colour or other regions, and that is a warning: MONAI's
    ``PersistentDataset`` and ``set_track_meta(False)`` take metadata away that decide values. Say both
    ``dynamic_range_db`` and ``geometry`` where the frames never had any. (`DehazeUltrasoundd` refuses tensors without.)

    Args:
        dehazer: a Dehazer of one's own. By default one is made by ``Dehazer.from_pretrained(**options)`` on first use
            in each process, and never pickled: workers of a DataLoader, forked or spawned, load the priors themselves.
            On CUDA with forked workers, CUDA must not have been used before in the parent process.
        geometry: of the frames, or "find" for the sector finder; by default as above.
        dynamic_range_db: dB between full scale and the floor; by default what the metadata say, else 60.
        return_haze: return ``(tissue, haze)``.
        return_std: also return the deviation of the tissue over posterior samples, dB, as last of the tuple; needs
            ``samples`` of 2 or more.
        options: of `usdehaze.Dehazer.from_pretrained`: preset, guidance, steps, samples, caution, strength, seed,
            device, batch_size, tissue_prior, haze_prior, ...

    Raises:
        TypeError, ValueError: an option that ``from_pretrained`` does not know, options beside a ``dehazer``, a
            geometry or dynamic range that is none.
        UsdehazeError: ``return_std`` with one sample, or options that cannot be used; when first called, a device that
            is not there or weights that do not fit their card.
        InputError: when called, for frames that are not 3-D, hold NaN or values outside ``[-dynamic_range_db, 0]``,
            whose geometry no longer fits, that have been dehazed already, or are a collated batch; where the sector
            finder is asked, also for a fan on its side, and frames that seem to lie along another axis than the first.

    Example:
        >>> from usdehaze.simulate import simulate_cine
        >>> from usdehaze.transforms import DehazeUltrasound
        >>> hazy = simulate_cine(n_frames=1).hazy  # (1, 128, 128) float32, dB
        >>> tissue, haze = DehazeUltrasound(return_haze=True, steps=20)(hazy)  # doctest: +SKIP
    """

    backend = [TransformBackends.TORCH, TransformBackends.NUMPY]  # noqa: RUF012 (MONAI's convention)
    _stacklevel = 2  # whom a warning is for: the caller

    def __init__(
        self,
        dehazer: Dehazer | None = None,
        geometry: Geometry | Literal["find"] | None = None,
        dynamic_range_db: float | None = None,
        return_haze: bool = False,
        return_std: bool = False,
        **options: Unpack[DehazerOptions],
    ) -> None:
        inspect.signature(Dehazer.from_pretrained).bind(**options)  # a misspelt option fails here, not in a worker
        if dehazer is not None and options:
            raise TypeError(f"options {', '.join(options)} have no effect on a dehazer that is made already")
        if geometry not in (None, "find") and not isinstance(geometry, Polar | Cartesian):
            raise ValueError(f'geometry must be "find", a geometry, or None, found {geometry!r}')
        check_dynamic_range(dynamic_range_db)
        samples = (check_options(**options) if dehazer is None else dehazer.settings).samples
        if return_std and samples < 2:
            raise UsdehazeError(f"a deviation over posterior samples needs samples of at least 2, found {samples}")
        self.geometry = geometry
        self.dynamic_range_db = dynamic_range_db
        self.return_haze = return_haze
        self.return_std = return_std
        self.options = options
        self._given = dehazer
        self._made: Dehazer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    @property
    def dehazer(self) -> Dehazer:
        """The Dehazer at work, made now if need be."""
        if self._given is not None:
            return self._given
        if self._made is None:
            self._made = Dehazer.from_pretrained(**self.options)
        return self._made

    def __call__(self, img: NdarrayOrTensor) -> Any:
        """
        Args:
            img: ``(T, H, W)`` or ``(1, T, H, W)`` dB in ``[-dynamic_range_db, 0]``; MetaTensor, Tensor or ndarray.

        Returns:
            Tissue, or the tuple asked for, each of the shape of ``img``, dB.
        """
        check_cine(img, "an array or tensor (T, H, W), frames on the channel axis, or (1, T, H, W)")
        check_scan(img)
        missing = self.unknown_of(img)
        if missing:
            warnings.warn(f"{name_of(img)} without metadata: {missing} assumed", stacklevel=self._stacklevel)
        span, frames = dynamic_range_of(img, self.dynamic_range_db), array_of(img)
        cine = cine_of(img, frames, self._geometry_of(img, frames, span), span)
        result = self.dehazer.dehaze(cine)
        outputs = {"tissue": result.tissue}
        if self.return_haze:
            outputs["haze"] = result.haze
        if self.return_std and result.std is not None:
            outputs["tissue_std"] = result.std
        floating = torch.is_floating_point(img) if isinstance(img, torch.Tensor) else img.dtype.kind == "f"
        dtype = None if floating else torch.float32
        arrays = [array if img.ndim == 3 else array[None] for array in outputs.values()]
        converted: list[Any] = [convert_to_dst_type(array, dst=img, dtype=dtype)[0] for array in arrays]
        if isinstance(img, MetaTensor):
            mark_estimates(dict(zip(outputs, converted, strict=True)), result)
        return converted[0] if len(converted) == 1 else tuple(converted)

    def unknown_of(self, img: NdarrayOrTensor) -> str:
        """What decides values and neither the metadata of ``img`` nor the arguments say, in words; "" for nothing."""
        meta = img.meta if isinstance(img, MetaTensor) else {}
        unknown = []
        if self.dynamic_range_db is None and "dynamic_range_db" not in meta:
            unknown.append("a dynamic range of 60 dB")
        if self.geometry is None and GEOMETRY not in meta:
            unknown.append("the geometry that the sector finder sees, and no colour or other regions")
        return ", ".join(unknown)

    def _geometry_of(self, img: NdarrayOrTensor, frames: np.ndarray, span: float) -> Geometry:
        known = geometry_in(img) if self.geometry is None else self.geometry
        if known is not None and not isinstance(known, str):
            return known
        cine_of(img, frames, Cartesian(), span)  # checks the values before a sector is looked for in them
        check_axes(img, frames)
        seen = find_fan(frames, -span)
        lying = None if seen and seen.certain else fan_on_its_side(frames, -span, 1.0)
        if lying and not (seen and seen.score >= lying.score):
            advice = "exchange them (MONAI reads pictures and NIfTI columns first), or say geometry= of what they are"
            raise InputError(name_of(img), "its fan lies on its side", "rows before columns", advice)
        return Cartesian(sector=seen.sector if seen else None, found_by="sector finder" if seen else "none")


def check_axes(image: Any, frames: np.ndarray) -> None:
    """Refuses frames ``(T, H, W)`` of ``image`` that seem to lie along another axis than the first.

    Raises:
        InputError: they are too thin for images, or slices along another axis resemble each other far more.
    """
    if min(frames.shape[1:]) < MIN_SIDE or lie_elsewhere(frames.__getitem__, len(frames)):
        found = f"its frames seem to lie along another axis, found shape {tuple(image.shape)}"
        advice = "reorder them, or say geometry= of what they are"
        raise InputError(name_of(image), found, "frames, rows, columns", advice)


def check_scan(image: Any) -> None:
    """Refuses an estimate of dehazing, which is no scan any longer.

    Raises:
        InputError: the metadata say that it is one.
    """
    estimate = image.meta.get(ESTIMATE) if isinstance(image, MetaTensor) else None
    if estimate:
        found = f"its metadata say that it is the {estimate} of a scan that was dehazed"
        raise InputError(name_of(image), found, "the frames of a scan", "dehaze once, with what LoadUltrasound gives")


def check_dynamic_range(dynamic_range_db: float | None) -> None:
    """Raises a ValueError for what is neither None nor a positive number of dB."""
    if dynamic_range_db is not None and not 0 < float(dynamic_range_db) < float("inf"):
        raise ValueError(f"dynamic range of {dynamic_range_db:g} dB; expected a positive number of dB")


class DehazeUltrasoundd(MapTransform):
    """Dictionary version of `DehazeUltrasound`: tissue replaces the frames.

    Args:
        keys: keys of frames ``(T, H, W)`` or ``(1, T, H, W)`` in dB.
        haze_key: where to put the haze, one new key for each of ``keys``; None leaves it out.
        std_key: where to put the deviation of the tissue over posterior samples, likewise.
        allow_missing_keys: skip keys that are missing instead of raising.
        dehazer, geometry, dynamic_range_db, options: see `DehazeUltrasound`.

    Raises:
        ValueError: not one haze or deviation key for each key, or the same twice.
        KeyError: when called, for a missing key, or a haze or deviation key that is there already.
        TypeError, UsdehazeError, InputError: see `DehazeUltrasound`; when called, also for tensors that have lost their
            metadata, unless geometry and dynamic range are given as arguments.

    Example:
        >>> from monai.transforms import Compose
        >>> from usdehaze.transforms import DehazeUltrasoundd, LoadUltrasoundd
        >>> steps = Compose([LoadUltrasoundd("image"), DehazeUltrasoundd("image", haze_key="haze")])
        >>> sorted(steps({"image": "scan.h5"}))  # doctest: +SKIP
        ['haze', 'image']
    """

    backend = DehazeUltrasound.backend

    def __init__(
        self,
        keys: KeysCollection,
        haze_key: Sequence[str] | str | None = None,
        std_key: Sequence[str] | str | None = None,
        allow_missing_keys: bool = False,
        dehazer: Dehazer | None = None,
        geometry: Geometry | Literal["find"] | None = None,
        dynamic_range_db: float | None = None,
        **options: Unpack[DehazerOptions],
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.haze_keys = ensure_tuple_rep(haze_key, len(self.keys))
        self.std_keys = ensure_tuple_rep(std_key, len(self.keys))
        new_keys = [key for key in (*self.haze_keys, *self.std_keys) if key is not None]
        if len({*self.keys, *new_keys}) != len(self.keys) + len(new_keys):
            raise ValueError(f"keys, haze_key and std_key must all differ, found {self.keys}, {haze_key}, {std_key}")
        wanted = haze_key is not None, std_key is not None
        self.dehaze = DehazeUltrasound(dehazer, geometry, dynamic_range_db, *wanted, **options)
        self.dehaze._stacklevel = 3

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        d = dict(data)
        for key, *new_keys in self.key_iterator(d, self.haze_keys, self.std_keys):
            places = [key, *(new for new in new_keys if new is not None)]
            for place in places[1:]:
                if place in d:
                    raise KeyError(f"Key `{place}` exists already; {type(self).__name__} does not overwrite it.")
            missing = self.dehaze.unknown_of(d[key]) if isinstance(d[key], torch.Tensor) else ""
            if missing:
                raise InputError(
                    f"item {key!r}",
                    f"its metadata are lost, and with them what decides values ({missing} would be a guess)",
                    "frames as a loader of usdehaze made them",
                    "keep them (PersistentDataset(..., track_meta=True), set_track_meta(True)), or say both "
                    "dynamic_range_db= and geometry=",
                )
            made = self.dehaze(d[key])
            d.update(zip(places, made if isinstance(made, tuple) else (made,), strict=True))
        return d


DehazeUltrasoundD = DehazeUltrasoundDict = DehazeUltrasoundd
