"""Output for people: a table and a live line in the terminal, and one page of HTML."""
