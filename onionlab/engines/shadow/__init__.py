"""The engine `shadow`: the user's installation of Shadow and TGen."""
