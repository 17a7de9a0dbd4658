"""`dsh plugins` and `dsh plugin new`."""
