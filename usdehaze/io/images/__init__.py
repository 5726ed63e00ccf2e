"""Images in: single ones, stacks, and folders of them."""
