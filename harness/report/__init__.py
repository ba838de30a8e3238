"""Evidence as people and other programs read it: the summary of one run, and a report of many."""
