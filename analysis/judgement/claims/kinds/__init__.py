"""What a claim can say: a module for each kind of statement, with the directions that use it."""
