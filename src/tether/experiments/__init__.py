"""What is run, where its results go and how they look."""
