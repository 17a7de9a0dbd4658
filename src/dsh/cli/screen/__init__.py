"""What every command shows: two outputs, and what stands on them, never ahead of the log."""
