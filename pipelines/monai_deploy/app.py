"""A MONAI Deploy application: DICOM studies in, dehazed series out.

python pipelines/monai_deploy -i STUDY -o OUT [-m POSTERIOR.safetensors]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dehaze_operator import DehazeOperator
from monai.deploy.conditions import CountCondition
from monai.deploy.core import Application
from monai.deploy.operators.dicom_data_loader_operator import DICOMDataLoaderOperator


def dehazer_options(model: Path) -> dict[str, Any]:
    """Options of the dehazer: the posterior that ``--model`` names, a file or a folder with one; else the shipped one.

    Raises:
        ValueError: a folder with several.
    """
    found = sorted(model.glob("*.safetensors")) if model.is_dir() else [model] if model.is_file() else []
    if len(found) > 1:
        raise ValueError(f"{model} holds {len(found)} files of weights; expected one posterior")
    return {"posterior": str(found[0])} if found else {}


class DehazeApp(Application):
    """Loads the studies in the input folder, dehazes their ultrasound into the output folder."""

    def compose(self) -> None:
        """See ``Application``."""
        context = Application.init_app_context(self.argv)
        loader = DICOMDataLoaderOperator(
            self, CountCondition(self, 1), input_folder=Path(context.input_path), name="loader"
        )
        dehaze = DehazeOperator(
            self,
            output_folder=Path(context.output_path),
            options=dehazer_options(Path(context.model_path)),
            name="dehaze",
        )
        self.add_flow(loader, dehaze, {("dicom_study_list", "dicom_study_list")})


def main() -> None:
    DehazeApp().run()


if __name__ == "__main__":
    main()
