"""What `recgen explain` says of each stage, and how formulas are written."""
