"""Dehazing as an operator of MONAI Deploy."""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dehazing import dehaze_images, files_of
from monai.deploy.core import ConditionType, Fragment, Operator, OperatorSpec

from usdehaze import Dehazer


class DehazeOperator(Operator):
    """Dehazes the ultrasound of DICOM studies; see `dehazing.dehaze_images`.

    Named input:
        dicom_study_list: of ``DICOMDataLoaderOperator``.

    Named output:
        dehazed_images: list of the files of the derived images. Needs no receiver.
    """

    def __init__(self, fragment: Fragment, *args: Any, output_folder: Path, options: dict[str, Any], **kwargs: Any):
        """Makes the operator.

        Args:
            fragment: the application.
            args: of ``Operator``.
            output_folder: for the derived images; made where it is missing.
            options: of ``usdehaze.Dehazer.from_pretrained``; the networks are loaded when the first study comes.
            kwargs: of ``Operator``, such as ``name``.
        """
        self._folder, self._options = Path(output_folder), options
        self._dehazer: Dehazer | None = None
        self._log = logging.getLogger(f"{__name__}.{type(self).__name__}")
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        """See ``Operator``."""
        spec.input("dicom_study_list")
        spec.output("dehazed_images").condition(ConditionType.NONE)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """See ``Operator``.

        Raises:
            usdehaze.errors.UsdehazeError: the studies hold nothing to dehaze.
        """
        studies = op_input.receive("dicom_study_list")
        if self._dehazer is None:
            self._dehazer = Dehazer.from_pretrained(**self._options)
        self._folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="usdehaze-") as folder:
            files = files_of(studies, Path(folder))
            dehazed = dehaze_images(files, self._folder, self._dehazer, self._log.info)
        op_output.emit([str(path) for path in dehazed.images], "dehazed_images")
