"""What adapting a tissue prior to one probe gains."""
