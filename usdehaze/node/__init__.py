"""A DICOM node: receives studies, has them dehazed, and sends the derived images on (extra ``node``)."""
