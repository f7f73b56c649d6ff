"""From the derived forms to the text of a module."""
