"""From the checked recurrence to its normal form."""
