"""Choice of methods and representations."""
