"""What goes out: answers and notices, the proof that they arrived, and signs of life."""
