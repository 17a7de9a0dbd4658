"""`dsh run`: one turn, from a prompt to an exit code; and what a conversation does alike."""
