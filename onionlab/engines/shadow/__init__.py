"""The engine `shadow`: Shadow and TGen as the user has installed them."""
