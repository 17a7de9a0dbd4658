"""`dsh doctor`: what is wrong, and what to do."""
