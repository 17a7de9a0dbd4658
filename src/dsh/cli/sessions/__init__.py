"""`dsh sessions` and `dsh view`: stored sessions, looked at, copied, run again."""
