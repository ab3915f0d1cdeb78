"""Tables of numbers and categories: files, columns, and what a model must know of them."""
