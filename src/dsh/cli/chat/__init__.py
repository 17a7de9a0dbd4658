"""`dsh chat`: a conversation, in a window or in whole lines."""
