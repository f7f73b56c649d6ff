"""The compiler's revision: raised whenever emitted text changes."""

COMPILER_REVISION = "1"
