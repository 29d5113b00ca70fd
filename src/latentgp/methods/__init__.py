"""Methods as values, one file each, and the registry that names them."""
