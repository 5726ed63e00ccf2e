"""``python pipelines/monai_deploy``, and the entry point of a MONAI Application Package."""

from app import main

if __name__ == "__main__":
    main()
