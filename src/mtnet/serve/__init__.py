"""`mtnet serve`: networks that learn new tasks over HTTP, and a page to draw on."""
