"""From the normal form to the chunk form, its adjoint, and the proof."""
